#!/usr/bin/env bash
# Fetches a Debian kernel for tests in virtual machines: kernel.sh SERIES, as in kernel.sh 6.12
#
# Prints the folder, in ${XDG_CACHE_HOME:-~/.cache}/dsec/kernels, where there are then
#   release     what uname -r says of it
#   vmlinuz     the kernel
#   modules/    the modules that a guest needs, uncompressed, named in the order to load them
#   wanted      the list of those, as it is below
# Fetched once: asked again, it needs no network. Exits 77 where it cannot be fetched.
# Must hold: the machine's own apt lists, sources and packages stay as they are, and the folder
# appears whole or not at all.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$here/../..
# The guest's disks and root, then what Debian's kernel loads for DSec and its tests when asked: nobody
# does in a guest.
modules=(virtio_blk 9p 9pnet_virtio ext4 overlay erofs inet_diag tcp_diag veth tun loop xfs fuse nft_chain_nat nft_masq nft_ct nft_fib_inet)
suites=(trixie trixie-backports bookworm-backports sid)
tmp=

unable() {
	printf 'skipped: no kernel %s: %s\n' "$series" "$1" >&2
	exit 77
}

die() {
	printf 'kernel.sh: %s\n' "$1" >&2
	exit 1
}

main() {
	local kept

	# One folder per list of modules: trees that want different ones do not fetch by turns.
	kept=$kernels/$series-$(cksum <<<"${modules[*]}" | cut -d ' ' -f 1)

	mkdir -p "$kernels"
	exec 9>"$kernels/.lock"
	flock -w 600 9 || die "another kernel.sh has held $kernels for ten minutes"
	rm -rf "$kernels"/.new.??????
	# Not whole, or of another list with this sum.
	if [[ $(cat "$kept/wanted" 2>/dev/null) != "${modules[*]}" ]]; then
		tmp=$(mktemp -d "$kernels/.new.XXXXXX")
		trap 'rm -rf "$tmp"' EXIT
		package_fetch
		kernel_take "$tmp/kernel"
		rm -rf "$kept"
		mv -T "$tmp/kernel" "$kept"
	fi
	echo "$kept"
}

# The archives this machine installs Debian's main suite from, with the suites that have kernels.
sources_write() {
	local type options site suite component

	while read -r type options site suite component; do
		if [[ $options != \[* ]]; then
			component=$suite suite=$site site=$options options=
		fi
		if [[ $component != main || $suite == *-* ]]; then
			continue
		fi
		for suite in "${suites[@]}"; do
			echo "$type $options $site $suite main"
		done
	done < <("$top/loadgen/image.sh" --sources deb)
}

# An apt of its own, with sources and without the host's lists: the host's stay as they are.
apt_private() { # PROGRAM WORD...
	timeout --foreground -k 10 300 "$1" -qq -o Dir::Etc::sourcelist="$tmp/apt/sources.list" \
		-o Dir::Etc::sourceparts=/dev/null -o Dir::State="$tmp/apt/state" \
		-o Dir::Cache="$tmp/apt/cache" -o Dir::State::status="$tmp/apt/status" \
		-o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root "${@:2}"
}

package_fetch() {
	local package

	mkdir -p "$tmp/apt/"{state/lists/partial,cache/archives/partial}
	: >"$tmp/apt/status"
	sources_write >"$tmp/apt/sources.list"
	[[ -s $tmp/apt/sources.list ]] || unable "no apt source of Debian's main suite"
	# An archive may lack one of the suites: what the others have is found all the same.
	apt_private apt-get update >&2 || true
	package=$(apt_private apt-cache pkgnames linux-image- |
		grep -xE "linux-image-${series//./\\.}\.[0-9]+\+deb[0-9]+(\.[0-9]+)?-amd64" |
		sort -V | tail -n 1) || unable "no such package in the suites ${suites[*]}"
	printf 'fetching %s\n' "$package" >&2
	(cd "$tmp" && apt_private apt-get download "$package" >&2) ||
		unable "$package could not be fetched"
	dpkg-deb -x "$tmp/$package"_*.deb "$tmp/root"
}

kernel_take() { # FOLDER
	local release path count=0 word wanted="${modules[*]}"

	# Older packages have /lib, newer ones /usr/lib, and depmod looks below /lib.
	if [[ ! -d $tmp/root/lib ]]; then
		ln -s usr/lib "$tmp/root/lib"
	fi
	release=$(ls "$tmp/root/lib/modules")
	mkdir -p "$1/modules"
	if [[ -e $tmp/root/boot/vmlinuz-$release ]]; then
		mv "$tmp/root/boot/vmlinuz-$release" "$1/vmlinuz"
	else
		mv "$tmp/root/lib/modules/$release/vmlinuz" "$1/vmlinuz"
	fi
	depmod -b "$tmp/root" "$release"
	# A kernel that has this one as a module needs it first, and says so to nobody.
	if grep -q '/crc32c_generic\.ko' "$tmp/root/lib/modules/$release/modules.dep"; then
		modules=(crc32c_generic "${modules[@]}")
	fi
	modprobe -d "$tmp/root" -S "$release" --show-depends -a "${modules[@]}" >"$tmp/order" ||
		die "the kernel lacks one of the modules ${modules[*]}"
	while read -r word path; do
		if [[ $word != insmod ]] || grep -qxF "$path" "$tmp/taken" 2>/dev/null; then
			continue
		fi
		echo "$path" >>"$tmp/taken"
		count=$((count + 1))
		module_take "$path" "$1/modules/$(printf '%02d' "$count")"
	done <"$tmp/order"
	echo "$release" >"$1/release"
	echo "$wanted" >"$1/wanted"
}

module_take() { # PATH NAME_START
	local name

	name=$(basename "$1")
	case $name in
	*.ko.xz) xz -dc "$1" >"$2-${name%.xz}" ;;
	*.ko) cp "$1" "$2-$name" ;;
	*) die "a module of unknown compression: $name" ;;
	esac
}

[[ $# -eq 1 && $1 =~ ^[0-9]+\.[0-9]+$ ]] || {
	echo "usage: kernel.sh SERIES" >&2
	exit 2
}
series=$1
kernels=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/dsec/kernels
main
