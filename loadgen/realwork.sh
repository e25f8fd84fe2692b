#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Real projects' own tests, for running in a sandbox and beside one. Into OUT_DIR go:
#
#   realwork.sh prepare OUT_DIR           work/: zlib's source package in /testbed, CPython's tests
#                                         where python3 looks for them, and the scripts of realwork/
#                                         in /usr/libexec/dsec/realwork
#   realwork.sh outside OUT_DIR           outside.txt: both scripts' results in a plain chroot
#   realwork.sh compare INSIDE OUTSIDE    prints where two results differ; 1 if they do
#
# OUT_DIR is ~/.cache/dsec if not given. prepare wants OUT_DIR/root (image.sh makes it) and, asked
# again, does nothing; image.sh --with-work then makes debian-work.erofs. INSIDE holds what the two
# scripts wrote to their standard output, one after the other.
# Must hold: compare never calls equal what did not run to its end.
set -euo pipefail
shopt -s inherit_errexit

self=$(readlink -f "${BASH_SOURCE[0]}")
here=$(dirname "$self")
scripts=(zlib.sh cpython.sh)
tmp=

say() { echo "realwork: $*" >&2; }

die() {
	echo "realwork: $*" >&2
	exit 1
}

main() {
	case ${1:-}/$# in
	prepare/[12]) prepare "$(directory "${2:-}")" ;;
	outside/[12]) outside "$(directory "${2:-}")" ;;
	compare/3) compare "$2" "$3" ;;
	in-namespaces/2) in_namespaces "$2" ;;
	*)
		echo "usage: realwork.sh prepare|outside [OUT_DIR] | compare INSIDE OUTSIDE" >&2
		exit 2
		;;
	esac
}

directory() { # OUT_DIR; prints it, or the usual one, as an absolute path
	local out=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/dsec}

	[[ $(id -u) -eq 0 ]] || die "must be root (private mounts)"
	[[ -d $out/root ]] || die "no $out/root: run image.sh $out first"
	(cd "$out" && pwd)
}

scratch_make() { # OUT NAME; sets tmp, a directory that goes away with this process
	exec 8>"$1/.$2.lock"
	flock -w 900 8 || die "another realwork.sh has held $1 for 15 minutes"
	rm -rf --one-file-system "$1/.$2".??????
	tmp=$(mktemp -d "$1/.$2.XXXXXX")
	trap 'rm -rf --one-file-system "$tmp"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
}

# ---- fetching ----

prepare() { # OUT
	local out=$1 python stamp

	python=$(readlink "$out/root/usr/bin/python3")
	stamp=$(stamp_make "$out" "$python")
	if [[ -d $out/work && -e $out/.work.stamp && $(<"$out/.work.stamp") == "$stamp" ]]; then
		return
	fi
	command -v dpkg-source >/dev/null || die "dpkg-source is missing: apt-get install dpkg-dev"
	scratch_make "$out" work
	touch "$tmp/mark"
	mkdir -p "$out/downloads" "$tmp/work/testbed" "$tmp/work/usr/libexec/dsec/realwork"
	say "fetching zlib's source and $python's tests"
	apt_lay
	zlib_lay "$out/downloads"
	cpython_lay "$out/downloads" "$out/root" "$python"
	(cd "$here/realwork" && install -m 0755 "${scripts[@]}" cpython_results.py \
		"$tmp/work/usr/libexec/dsec/realwork/")
	chown -R 0:0 "$tmp/work"
	times_clamp
	rm -f "$out/.work.stamp"
	[[ ! -e $out/work ]] || mv "$out/work" "$tmp/work.old"
	mv "$tmp/work" "$out/work"
	echo "$stamp" >"$out/.work.stamp"
	say "$out/work"
}

stamp_make() { # OUT PYTHON
	{
		(cd "$here/realwork" && cat "$self" "${scripts[@]}" cpython_results.py)
		python_version "$1/root" "$2"
	} | sha256sum | cut -d ' ' -f 1
}

python_version() { # ROOT PYTHON
	# shellcheck disable=SC2016 # dpkg expands it
	dpkg-query --admindir="$1/var/lib/dpkg" -W -f '${Version}' "lib$2-stdlib"
}

# An apt of its own, with sources and without the host's lists: the host's stay as they are.
apt_lay() {
	mkdir -p "$tmp/apt/"{etc,state/lists/partial,cache/archives/partial}
	: >"$tmp/apt/status"
	"$here/image.sh" --sources deb-src >"$tmp/apt/etc/sources.list"
	"$here/image.sh" --sources deb >>"$tmp/apt/etc/sources.list"
	apt_private update || die "apt-get update of the source lists failed"
}

apt_private() { # WORD...
	timeout --foreground -k 10 300 apt-get -qq -o Dir::Etc::sourcelist="$tmp/apt/etc/sources.list" \
		-o Dir::Etc::sourceparts=/dev/null -o Dir::State="$tmp/apt/state" \
		-o Dir::Cache="$tmp/apt/cache" -o Dir::State::status="$tmp/apt/status" \
		-o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root "$@" >&2
}

zlib_lay() { # DOWNLOADS
	local version

	(cd "$1" && apt_private source --download-only zlib) || die "zlib's source: fetching failed"
	# apt leaves older versions where they are: take the newest.
	version=$(find "$1" -name 'zlib_*.dsc' | sort -V | tail -n 1)
	dpkg-source --no-check -x "$version" "$tmp/zlib" >/dev/null || die "zlib's source: bad package"
	version=${version##*/zlib_}
	mv "$tmp/zlib" "$tmp/work/testbed/zlib-${version%-*}"
}

cpython_lay() { # DOWNLOADS ROOT PYTHON
	local name=lib$3-testsuite version file

	version=$(python_version "$2" "$3")
	file=$1/${name}_${version/:/%3a}_all.deb
	if [[ ! -e $file ]]; then
		(cd "$1" && apt_private download "$name=$version") ||
			die "$name $version is not in the archive (any more): make the image anew"
	fi
	dpkg-deb -x "$file" "$tmp/work"
	rm -rf "$tmp/work/usr/share"
}

# What unpacking wrote gets the time of the newest packaged file: the same packages, the same image.
times_clamp() {
	local newest

	newest=$(find "$tmp/work" -type f ! -newer "$tmp/mark" -printf '%Ts\n' | sort -n | tail -n 1)
	find "$tmp/work" -newermt "@$newest" -exec touch -h -d "@$newest" {} +
}

# ---- outside ----

# The same files without any sandbox: a copy, not an overlay, since that is what a sandbox adds.
outside() { # OUT
	local out=$1 script failed=0

	[[ -d $out/work ]] || die "no $out/work: run realwork.sh prepare $out first"
	scratch_make "$out" outside
	say "running outside a sandbox (about 60 s)"
	cp -a --reflink=auto "$out/root" "$tmp/root"
	cp -a --reflink=auto "$out/work/." "$tmp/root"
	timeout --foreground -k 10 600 unshare --mount --pid --net --ipc --uts --fork \
		--kill-child "$self" in-namespaces "$tmp/root" >"$tmp/outside.txt" ||
		failed=1
	for script in "${scripts[@]}"; do
		grep -q "^== end ${script%.sh}\$" "$tmp/outside.txt" || failed=2
	done
	mv "$tmp/outside.txt" "$out/outside.txt"
	[[ $failed -ne 2 ]] || die "outside: did not run to its end, see $out/outside.txt"
	say "$out/outside.txt$([[ $failed -eq 0 ]] || echo ", with failed tests")"
}

# First process of its own namespaces. What it mounts and starts ends with it.
in_namespaces() { # ROOT
	local script status=0

	mount -t proc proc "$1/proc"
	mount -t devpts devpts -o newinstance,ptmxmode=0666,mode=0620 "$1/dev/pts"
	hostname localhost
	chroot "$1" python3 -c '
import fcntl, socket, struct
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
with socket.socket() as loopback:
    fcntl.ioctl(loopback, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))'
	for script in "${scripts[@]}"; do
		chroot "$1" sh "/usr/libexec/dsec/realwork/$script" || status=1
	done
	return $status
}

# ---- comparing ----

compare() { # INSIDE OUTSIDE
	local inside outside script

	for script in "${scripts[@]}"; do
		grep -q "^== end ${script%.sh}\$" "$1" || die "$1: no whole results of $script"
		grep -q "^== end ${script%.sh}\$" "$2" || die "$2: no whole results of $script"
	done
	inside=$(results "$1")
	outside=$(results "$2")
	results_have_modules "$1"
	results_have_modules "$2"
	if grep 'did not finish$' <<<"$inside"$'\n'"$outside"; then
		die "what did not finish cannot be compared"
	fi
	if diff --unchanged-line-format='' --old-line-format='inside:  %L' \
		--new-line-format='outside: %L' <(echo "$inside") <(echo "$outside"); then
		say "the same inside and outside: $(grep -c ' passed ' <<<"$inside") modules"
		return
	fi
	return 1
}

results_have_modules() { # FILE
	local script

	for script in "${scripts[@]}"; do
		sed -n "/^== results/h; //!H; /^== end ${script%.sh}\$/ { g; p }" "$1" |
			grep -q ': passed [0-9]* failed [0-9]* skipped [0-9]*$' ||
			die "$1: no results of $script"
	done
}

results() { # FILE
	sed -n '/^== results/,/^== end/ { /^==/!p }' "$1"
}

main "$@"
