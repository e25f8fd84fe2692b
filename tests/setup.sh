#!/usr/bin/env bash
# Installs the Debian packages that building, testing and measuring DSec need; only what is missing.
set -eu

packages=(
	# building
	build-essential cmake ninja-build pkg-config python3 git
	clang llvm lld libclang-rt-dev clang-format
	bpftool libbpf-dev libxdp-dev apparmor libapparmor-dev liburing-dev libseccomp-dev libcap-dev libmimalloc-dev
	libjansson-dev libarchive-dev libyaml-dev libssl-dev zlib1g-dev
	libcurl4-openssl-dev libzstd-dev
	# testing
	libcriterion-dev libuv1-dev iproute2 nftables procps util-linux strace zsh groff-base xfsprogs
	# the image, and the peers of the load generator
	erofs-utils zstd mmdebstrap busybox-static bubblewrap crun runc
)
# Tests in virtual machines, of types in Python, over ssh, of real servers, and of how pages look:
# skipped by name without them.
packages_optional=(qemu-system-x86 kmod mypy openssh-client openssh-server nginx-light redis-server nodejs skopeo
	chromium-headless-shell)
# Tests start servers of their own; those that these packages would start are not wanted here.
declare -A services=([openssh-server]="ssh.service ssh.socket" [nginx-light]=nginx.service
	[redis-server]=redis-server.service)

refuse() {
	printf 'setup: %s\n' "$1" >&2
	exit 1
}

release=$(uname -r)
IFS=.- read -r major minor _ <<<"$release"
if [ "$major" -lt 6 ] || { [ "$major" -eq 6 ] && [ "$minor" -lt 12 ]; }; then
	refuse "Linux $release is too old, 6.12 is the minimum: use Debian 13, or Debian 12 with the \
backports kernel (apt-get install -t bookworm-backports linux-image-amd64, then reboot)"
fi
[ "$(id -u)" = 0 ] || refuse 'run me as root: DSec creates namespaces, cgroups and mounts'
[ -e /sys/kernel/btf/vmlinux ] ||
	refuse 'this kernel has no BTF (CONFIG_DEBUG_INFO_BTF): use a kernel of Debian'
command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
	refuse "not a Debian: install what corresponds to ${packages[*]}"

# missing_of PACKAGE...: those that are not installed
missing_of() {
	local package status

	for package in "$@"; do
		status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || status=
		[ "$status" = installed ] || echo "$package"
	done
}

mapfile -t missing < <(missing_of "${packages[@]}")
mapfile -t missing_optional < <(missing_of "${packages_optional[@]}")
[ ${#missing[@]} -gt 0 ] || [ ${#missing_optional[@]} -gt 0 ] || exit 0

printf 'setup: installing %s\n' "${missing[*]} ${missing_optional[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
	"$@" </dev/null >"$log" 2>&1 || {
		cat "$log" >&2
		refuse "failed: $*"
	}
}
unwanted=()
for package in "${missing_optional[@]}"; do
	read -ra of_package <<<"${services[$package]:-}"
	unwanted+=("${of_package[@]}")
done
policy=/usr/sbin/policy-rc.d
policy_made=
if [[ ${#unwanted[@]} -gt 0 && ! -e $policy ]]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
	policy_made=1
fi
trap 'rm -f "$log" ${policy_made:+"$policy"}' EXIT
quietly apt-get update
[ ${#missing[@]} = 0 ] || quietly apt-get install -y --no-install-recommends "${missing[@]}"
[ ${#missing_optional[@]} = 0 ] ||
	apt-get install -y --no-install-recommends "${missing_optional[@]}" </dev/null >"$log" 2>&1 ||
	printf 'setup: no %s: tests that need it will be skipped\n' "${missing_optional[*]}" >&2
# Nor at the next boot; systemctl may be absent, or without a systemd that runs.
for service in "${unwanted[@]}"; do
	systemctl disable "$service" >/dev/null 2>&1 ||
		update-rc.d "${service%.*}" disable >/dev/null 2>&1 || true
done
