#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Claims about image.sh, made on the minimal image. Needs root (it mounts the image, in a mount
# namespace of its own).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
image_sh=$here/../../../loadgen/image.sh
if [[ ${1:-} != --in-namespace ]]; then
	if [[ $(id -u) -ne 0 ]]; then
		echo "needs root"
		exit 77
	fi
	tmp=$(mktemp -d)
	trap 'rm -rf --one-file-system "$tmp"' EXIT
	unshare --mount --propagation private "$0" --in-namespace "$tmp"
	exit
fi
tmp=$2
tests=0
failed=0

claim() { # NAME COMMAND...
	tests=$((tests + 1))
	if "${@:2}"; then
		echo "ok $tests $1"
	else
		echo "not ok $tests $1"
		failed=1
	fi
}

nodes() { # DIR
	find "$1" \( -type b -o -type c \) -printf '%P %m\n' | LC_ALL=C sort
}

# shellcheck disable=SC2317 # claim calls it
same() { # WANTED GOT
	[[ $1 == "$2" ]] || {
		printf 'wanted:\n%s\ngot:\n%s\n' "$1" "$2"
		return 1
	}
}

digest_said() { # DIR
	sed 's/.*"sha256": "\([0-9a-f]*\)".*/\1/' "$1/minimal.json"
}

digest_real() { # DIR
	sha256sum "$1/minimal.erofs" | cut -d ' ' -f 1
}

listing() { # DIR; all but sizes of directories, which file systems count differently
	(cd "$1" && find . -printf '%p %y %m %U %G %Ts %l\n' | LC_ALL=C sort)
}

"$image_sh" --minimal "$tmp/first" >/dev/null
before=$(stat -c %i "$tmp/first/minimal.erofs")
"$image_sh" --minimal "$tmp/first" >/dev/null
claim a_second_run_does_nothing same "$before" "$(stat -c %i "$tmp/first/minimal.erofs")"
cp -a "$tmp/first/downloads" "$tmp/kept" 2>/dev/null || true
mkdir "$tmp/second"
[[ ! -d $tmp/kept ]] || mv "$tmp/kept" "$tmp/second/downloads"
"$image_sh" --minimal "$tmp/second" >/dev/null
claim the_same_inputs_give_the_same_bytes cmp "$tmp/first/minimal.erofs" "$tmp/second/minimal.erofs"
claim the_manifest_names_the_digest same "$(digest_real "$tmp/first")" "$(digest_said "$tmp/first")"

mkdir "$tmp/mounted"
# Straight from the file, as the engine mounts it.
mount -t erofs -o ro "$tmp/first/minimal.erofs" "$tmp/mounted"
claim the_root_and_the_image_are_the_same same "$(listing "$tmp/first/root-minimal")" \
	"$(listing "$tmp/mounted")"
claim only_the_fixed_device_nodes_exist same \
	"$(printf 'dev/%s 666\n' full null random tty urandom zero)" "$(nodes "$tmp/mounted")"
claim ptmx_is_the_sandboxs_own same pts/ptmx "$(readlink "$tmp/mounted/dev/ptmx")"
claim hosts_is_the_images_own same $'127.0.0.1 localhost\n::1 localhost ip6-localhost' \
	"$(<"$tmp/mounted/etc/hosts")"
claim tiny_exit_runs chroot "$tmp/mounted" /usr/libexec/dsec/tiny-exit
claim nothing_else_is_left same '.image.lock .minimal.stamp minimal.erofs minimal.json root-minimal' \
	"$(find "$tmp/first" -mindepth 1 -maxdepth 1 ! -name downloads -printf '%f\n' |
		LC_ALL=C sort | xargs)"
echo "Tested: $tests"
exit $failed
