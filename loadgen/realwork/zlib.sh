#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs inside a sandbox (and, for comparison, outside one): builds zlib from its Debian source
# package in /testbed and runs its own tests. The build's output goes to a file and is shown when
# something failed; the results come last, between "== results" and "== end NAME".
# Must hold: the environment it was started with has no influence.
set -u
[ "${REALWORK_CLEAN:-}" = 1 ] || exec env -i REALWORK_CLEAN=1 LANG=C.UTF-8 HOME=/root \
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh "$0" </dev/null
log=/tmp/realwork-zlib.log
umask 022

build() {
	cd /testbed/zlib-*/ && timeout -k 5 60 ./configure && timeout -k 5 120 make -j2 &&
		timeout -k 5 60 make test
}

results() { # prints what zlib said of each of its tests, then the counts
	sed -n 's/^[[:space:]]*\*\*\* zlib \(.*\)test \(OK\|FAILED\) \*\*\*$/\1 \2/p' "$log" |
		while read -r name result; do
			[ -n "$result" ] || { result=$name && name=static; }
			echo "$name $result"
		done | LC_ALL=C sort | awk -v status="$1" '
			$2 == "OK" { passed++ }
			$2 == "FAILED" { failed++; print "zlib/" $1 ": failed" }
			END {
				if (status != 0 && !failed) {
					print "zlib/build: failed"
					failed = 1
				}
				if (!passed && !failed)
					print "zlib: did not finish"
				printf "zlib: passed %d failed %d skipped 0\n", passed, failed
			}'
}

build >"$log" 2>&1
status=$?
[ "$status" -eq 0 ] || tail -n 40 "$log"
echo "== results"
results "$status"
echo "== end zlib"
exit "$status"
