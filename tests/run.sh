#!/usr/bin/env bash
# Sets up, builds, and runs all tests: run.sh [OPTIONS OF CTEST]
#
# One run of ctest covers three builds:
#   release  gcc, as shipped: every test
#   dev      clang with ASan and UBSan: unit, sim, race and fuzz tests, named asan/...
#   tsan     clang with ThreadSanitizer: the race tests, named tsan/...
set -eu
cd "$(dirname "$0")/.."
# All of it is to take 40 minutes at most, and the guests, which come last, have what is left of them:
# on a slow machine they leave tests out, by name.
export DSEC_LADDER_UNTIL=${DSEC_LADDER_UNTIL:-$(($(date +%s) + 36 * 60))}
./tests/setup.sh

jobs=$(nproc)
if [ -t 1 ]; then
	progress=--progress
else
	progress=
fi

# quietly LOG COMMAND...: output only on a terminal, or when it fails
quietly() {
	local log=$1
	shift
	if [ "$progress" ]; then
		"$@"
	elif ! "$@" >"$log" 2>&1; then
		cat "$log"
		printf 'run.sh: failed: %s\n' "$*"
		exit 1
	fi
}

# build PRESET [OPTIONS OF CMAKE]
build() {
	local preset=$1
	shift
	printf '== build %s\n' "$preset"
	quietly "build/$preset.log" cmake --preset "$preset" -DDSEC_WERROR=ON "$@"
	quietly "build/$preset.log" cmake --build --preset "$preset" -j "$jobs"
}

mkdir -p build
build release -DDSEC_TEST_ONLY=
build dev -DDSEC_TEST_PREFIX=asan/ '-DDSEC_TEST_ONLY=unit;sim;race;fuzz'
build tsan -DDSEC_TEST_PREFIX=tsan/ -DDSEC_TEST_ONLY=race
printf 'subdirs("release" "dev" "tsan")\n' >build/CTestTestfile.cmake

printf '== test\n'
# One more than CPUs: of those that run at once, one waits.
exec ctest --test-dir build -j "$((jobs + 1))" --output-on-failure --no-tests=error --no-label-summary \
	${progress:+"$progress"} "$@"
