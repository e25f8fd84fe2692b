#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build.sh OUT_DIR: builds the freestanding programs of this directory into OUT_DIR, each a few
# hundred bytes, or in C a few thousand. CC names the compiler (cc by default). The same sources
# give the same bytes.
set -eu

if [ $# -ne 1 ]; then
	echo "usage: build.sh OUT_DIR" >&2
	exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
for source in "$here"/tiny-*.S "$here"/tiny-*.c; do
	name=$(basename "$source")
	name=${name%.*}
	${CC:-cc} -O2 -D_GNU_SOURCE -ffreestanding -fno-builtin -fno-stack-protector -fno-pie \
		-fno-asynchronous-unwind-tables -no-pie -static -nostdlib -nostartfiles -s \
		-Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,max-page-size=4096 \
		-o "$1/$name.new" "$source"
	mv "$1/$name.new" "$1/$name"
done
