#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the images that the load generator and the tests run. Into OUT_DIR go:
#
#   image.sh OUT_DIR               debian.erofs, debian.json, root/
#   image.sh --minimal OUT_DIR     minimal.erofs, minimal.json, root-minimal/
#   image.sh --with-work OUT_DIR   debian-work.erofs, debian-work.json: OUT_DIR/work (which
#                                  realwork.sh prepare makes) on top of debian.erofs
#   image.sh --sources deb|deb-src writes this machine's Debian sources as one-line apt sources
#
# OUT_DIR is ~/.cache/dsec if not given. The image's path is all that goes to standard output.
# Asked again with the same inputs it does nothing.
# Must hold: everything appears whole or not at all; root/ and debian.erofs hold the same files with
# the same times; no device node outside /dev, and there only the fixed ones.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
packages=(python3 git gcc make bzip2 libc6-dev netbase)
directories_dropped=(/usr/share/man /usr/share/info /usr/share/locale)
sources_of_debian=
tmp=

say() { echo "image: $*" >&2; }

die() {
	echo "image: $*" >&2
	exit 1
}

need() { # COMMAND PACKAGE
	command -v "$1" >/dev/null || die "$1 is missing: apt-get install $2"
}

main() {
	local kind=debian out

	case ${1:-} in
	--sources)
		[[ ${2:-} == deb || ${2:-} == deb-src ]] || usage
		sources_print "$2"
		return
		;;
	--minimal) kind=minimal && shift ;;
	--with-work) kind=debian-work && shift ;;
	esac
	[[ $# -le 1 && ${1:-} != -* ]] || usage
	out=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/dsec}
	[[ $(id -u) -eq 0 ]] || die "must be root (device nodes, private mounts)"
	need mkfs.erofs erofs-utils
	need cc gcc
	mkdir -p "$out"
	out=$(cd "$out" && pwd)

	exec 9>"$out/.image.lock"
	flock -w 900 9 || die "another image.sh has held $out for 15 minutes"
	rm -rf --one-file-system "$out"/.image.??????
	tmp=$(mktemp -d "$out/.image.XXXXXX")
	trap 'rm -rf --one-file-system "$tmp"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	case $kind in
	debian) debian_make "$out" ;;
	minimal) minimal_make "$out" ;;
	debian-work)
		debian_make "$out"
		work_make "$out"
		;;
	esac
	echo "$out/$kind.erofs"
}

usage() {
	echo "usage: image.sh [--minimal|--with-work] [OUT_DIR] | image.sh --sources deb|deb-src" >&2
	exit 2
}

# ---- where packages come from ----

# The machine's own sources, those of Debian only: other vendors' are no part of an image. In the
# machine's order: where two archives have one version, apt takes it from the first.
sources_print() { # TYPE
	local found signed_by=

	found=$(sources_find)
	if [[ -z $found ]]; then
		say "no package lists on this machine yet: apt-get update"
		timeout --foreground -k 10 300 apt-get -qq update >&2 || die "apt-get update failed"
		found=$(sources_find)
	fi
	[[ -n $found ]] || die "no enabled apt source has Origin: Debian"
	[[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] &&
		signed_by='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] '
	awk -F '|' -v type="$1" -v signed_by="$signed_by" \
		'{ print type " " signed_by $1 " " $2 " " $3 }' <<<"$found"
}

# shellcheck disable=SC2016 # apt expands these
sources_find() {
	apt-get indextargets --format '$(SITE)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)|$(TARGET_OF)' \
		'Created-By: Packages' | awk -F '|' '$4 == "Debian" && $5 == "deb" && !seen[$0]++'
}

# ---- what every image has ----

# The names and nodes a sandbox needs whatever it runs; the image's own files, not the host's.
base_lay() { # ROOT
	local root=$1 name

	printf '127.0.0.1 localhost\n::1 localhost ip6-localhost\n' >"$root/etc/hosts"
	printf 'nameserver 127.0.0.1\noptions timeout:1 attempts:1\n' >"$root/etc/resolv.conf"
	echo localhost >"$root/etc/hostname"
	user_lay "$root"
	for name in proc sys run testbed; do
		mkdir -p "$root/$name"
		chmod 0755 "$root/$name"
	done
	mkdir -p "$root/tmp"
	chmod 1777 "$root/tmp"

	rm -rf --one-file-system "${root:?}/dev"
	find "$root" -xdev \( -type b -o -type c \) -delete
	mkdir -p "$root/dev/pts" "$root/dev/shm"
	chmod 0755 "$root/dev" "$root/dev/pts"
	chmod 1777 "$root/dev/shm"
	node_make "$root/dev/null" 1 3
	node_make "$root/dev/zero" 1 5
	node_make "$root/dev/full" 1 7
	node_make "$root/dev/random" 1 8
	node_make "$root/dev/urandom" 1 9
	node_make "$root/dev/tty" 5 0
	ln -s pts/ptmx "$root/dev/ptmx"
	ln -s /proc/self/fd "$root/dev/fd"
	ln -s /proc/self/fd/0 "$root/dev/stdin"
	ln -s /proc/self/fd/1 "$root/dev/stdout"
	ln -s /proc/self/fd/2 "$root/dev/stderr"

	mkdir -p "$root/usr/libexec/dsec"
	"$here/tiny/build.sh" "$root/usr/libexec/dsec"
}

# An ordinary user, for work that should not be root's.
user_lay() { # ROOT
	echo 'agent:x:1000:1000:agent:/home/agent:/bin/sh' >>"$1/etc/passwd"
	echo 'agent:x:1000:' >>"$1/etc/group"
	mkdir -p "$1/home/agent"
	chown 1000:1000 "$1/home/agent"
}

node_make() { # PATH MAJOR MINOR
	mknod "$1" c "$2" "$3"
	chmod 0666 "$1"
}

# Packages bring their files' times; what the installation itself wrote gets the newest of them.
# So the same packages give the same bytes, and a .pyc still agrees with its .py (mkfs.erofs -T
# would give every file one time and make each of them stale).
times_clamp() { # ROOT MARK, a file older than every one the installation wrote; prints that time
	local newest

	newest=$(find "$1" -xdev -type f ! -newer "$2" -printf '%Ts\n' | sort -n | tail -n 1)
	find "$1" -xdev -newermt "@$newest" -exec touch -h -d "@$newest" {} +
	echo "$newest"
}

erofs_make() { # ROOT FILE EPOCH
	SOURCE_DATE_EPOCH=$3 timeout --foreground -k 10 300 mkfs.erofs --quiet \
		-U 6473c5ec-0000-4000-8000-000000000001 "$2" "$1" >&2 || die "mkfs.erofs failed"
}

manifest_make() { # NAME IMAGE ROOT DPKG_DIR
	local digest

	digest=$(sha256sum "$2")
	printf '{"name": "%s", "sha256": "%s", "bytes": %s, "files": %s, "packages": {' "$1" \
		"${digest%% *}" "$(stat -c %s "$2")" "$(find "$3" -xdev -printf x | wc -c)"
	if [[ -d $4 ]]; then
		dpkg-query --admindir="$4" -W -f '${Package} ${Version}\n' | sort |
			awk '{ printf "%s\"%s\": \"%s\"", comma, $1, $2; comma = ", " }'
	fi
	printf '}}\n'
}

# Inputs that decide an image, as one digest.
stamp_make() { # WORD...
	{
		cat "${BASH_SOURCE[0]}" "$here"/tiny/*
		dpkg-query -W erofs-utils
		uname -m
		printf '%s\n' "$@"
	} | sha256sum | cut -d ' ' -f 1
}

stamp_matches() { # STAMP_FILE STAMP FILE...
	local stamp_file=$1 stamp=$2 file

	[[ -e $stamp_file && $(<"$stamp_file") == "$stamp" ]] || return 1
	for file in "${@:3}"; do
		[[ -e $file ]] || return 1
	done
}

# The stamp goes first and comes last: a run that is cut off between leaves no stamp.
publish() { # OUT STAMP STAMP_FILE NAME...
	local out=$1 stamp=$2 stamp_file=$3 name

	rm -f "$stamp_file"
	mkdir "$tmp/old"
	for name in "${@:4}"; do
		if [[ -e $out/$name ]]; then
			mv -T "$out/$name" "$tmp/old/$name"
		fi
		mv -T "$tmp/$name" "$out/$name"
	done
	rm -rf --one-file-system "$tmp/old"
	echo "$stamp" >"$tmp/stamp"
	mv "$tmp/stamp" "$stamp_file"
}

# ---- the Debian image ----

debian_make() { # OUT
	local out=$1 stamp epoch

	need mmdebstrap mmdebstrap
	sources_of_debian=$(sources_print deb)
	stamp=$(stamp_make debian "$sources_of_debian")
	if stamp_matches "$out/.debian.stamp" "$stamp" "$out"/{debian.erofs,debian.json,root}; then
		return
	fi
	say "debian: installing ${packages[*]} (about 30 s)"
	touch "$tmp/mark"
	debian_install "$tmp/root" || {
		tail -n 15 "$tmp/log" >&2
		die "debian: mmdebstrap failed"
	}
	debian_clean "$tmp/root"
	base_lay "$tmp/root"
	epoch=$(times_clamp "$tmp/root" "$tmp/mark")
	erofs_make "$tmp/root" "$tmp/debian.erofs" "$epoch"
	manifest_make debian "$tmp/debian.erofs" "$tmp/root" "$tmp/root/var/lib/dpkg" \
		>"$tmp/debian.json"
	publish "$out" "$stamp" "$out/.debian.stamp" root debian.erofs debian.json
	say "debian: $out/debian.erofs, $(($(stat -c %s "$out/debian.erofs") >> 20)) MiB"
}

# In a mount namespace of its own, which ends with it: what mmdebstrap mounted below the root is
# gone before anything may be removed there.
debian_install() { # ROOT
	local include drop options=()

	include=$(IFS=, && echo "${packages[*]}")
	for drop in "${directories_dropped[@]}"; do
		options+=("--dpkgopt=path-exclude=$drop/*")
	done
	while IFS= read -r drop; do
		options+=("--aptopt=$drop")
	done < <(apt-config dump --format '%f "%v";%n' Acquire::http::Proxy Acquire::https::Proxy |
		grep -v '""')
	timeout --foreground -k 10 900 unshare -m mmdebstrap --mode=root --variant=apt --format=directory \
		--include="$include" "${options[@]}" '' "$1" - <<<"$sources_of_debian" \
		>"$tmp/log" 2>&1
}

# Where the packages came from is the machine's business; the rest differs from run to run.
debian_clean() { # ROOT
	local root=$1

	rm -rf "$root"/etc/apt/sources.list.d/* "$root"/etc/apt/apt.conf.d/99mmdebstrap \
		"$root"/etc/dpkg/dpkg.cfg.d/99mmdebstrap "$root"/var/lib/apt/lists/* \
		"$root"/var/cache/apt/* "$root"/var/cache/ldconfig/* "$root"/var/cache/debconf/*-old \
		"$root"/var/lib/dpkg/*-old "$root"/run/*
	: >"$root/etc/apt/sources.list"
	: >"$root/etc/machine-id"
	find "$root/var/log" -type f -delete
}

# ---- the Debian image with real work in it ----

work_make() { # OUT
	local out=$1 stamp epoch

	[[ -e $out/.work.stamp && -d $out/work ]] ||
		die "no $out/work: run realwork.sh prepare $out first"
	stamp=$(stamp_make debian-work "$(<"$out/.debian.stamp")" "$(<"$out/.work.stamp")")
	if stamp_matches "$out/.debian-work.stamp" "$stamp" "$out"/debian-work.{erofs,json}; then
		return
	fi
	say "debian-work: debian and $out/work"
	epoch=$(find "$out/root" "$out/work" -xdev -type f -printf '%Ts\n' | sort -n | tail -n 1)
	mkdir "$tmp/merged"
	export tmp here epoch
	export -f work_write erofs_make manifest_make die
	unshare -m bash -euo pipefail -c 'work_write "$@"' work_write "$out" "$epoch" ||
		die "debian-work failed"
	publish "$out" "$stamp" "$out/.debian-work.stamp" debian-work.erofs debian-work.json
	say "debian-work: $out/debian-work.erofs"
}

work_write() { # OUT EPOCH, in a mount namespace of its own
	mount -t overlay overlay -o "ro,lowerdir=$1/work:$1/root" "$tmp/merged"
	erofs_make "$tmp/merged" "$tmp/debian-work.erofs" "$2"
	manifest_make debian-work "$tmp/debian-work.erofs" "$tmp/merged" \
		"$tmp/merged/var/lib/dpkg" >"$tmp/debian-work.json"
}

# ---- the minimal image, for tests ----

minimal_make() { # OUT
	local out=$1 stamp busybox epoch

	busybox=$(busybox_find "$out")
	stamp=$(stamp_make minimal "$(sha256sum "$busybox" | cut -d ' ' -f 1)")
	if stamp_matches "$out/.minimal.stamp" "$stamp" \
		"$out"/{minimal.erofs,minimal.json,root-minimal}; then
		return
	fi
	touch "$tmp/mark"
	minimal_lay "$tmp/root-minimal" "$busybox"
	epoch=$(times_clamp "$tmp/root-minimal" "$tmp/mark")
	erofs_make "$tmp/root-minimal" "$tmp/minimal.erofs" "$epoch"
	manifest_make minimal "$tmp/minimal.erofs" "$tmp/root-minimal" '' >"$tmp/minimal.json"
	publish "$out" "$stamp" "$out/.minimal.stamp" root-minimal minimal.erofs minimal.json
}

minimal_lay() { # ROOT BUSYBOX
	local root=$1 applet

	mkdir -p "$root"/{bin,sbin,etc,root,usr/bin,usr/sbin,var}
	chmod 0700 "$root/root"
	cp -p "$2" "$root/bin/busybox"
	while IFS= read -r applet; do
		[[ $applet == bin/busybox ]] || ln -s /bin/busybox "$root/$applet"
	done < <("$2" --list-full | grep -E '^(usr/)?s?bin/[^/]+$')
	printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' \
		>"$root/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
	base_lay "$root"
}

# The installed busybox-static, else the package's file, fetched once.
busybox_find() { # OUT
	local kept=$1/downloads/busybox-static

	if [[ $(dpkg-query -W -f '${db:Status-Status}' busybox-static 2>/dev/null) == installed ]]; then
		dpkg-query -L busybox-static | grep -E '^(/usr)?/bin/busybox$'
		return
	fi
	if [[ ! -x $kept ]]; then
		say "fetching busybox-static"
		mkdir -p "$1/downloads" "$tmp/busybox"
		(cd "$tmp" && timeout --foreground 120 apt-get -qq -o APT::Sandbox::User=root \
			download busybox-static >&2) ||
			die "busybox-static is missing: apt-get install busybox-static"
		dpkg-deb -x "$tmp"/busybox-static_*.deb "$tmp/busybox"
		mv "$(find "$tmp/busybox" -type f -path '*/bin/busybox')" "$kept"
	fi
	echo "$kept"
}

main "$@"
