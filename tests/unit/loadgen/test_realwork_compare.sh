#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Claims about realwork.sh compare. Needs nothing but bash, no root.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tests=0
failed=0

result() { # FILE CPYTHON_LINE...
	{
		printf '%s\n' "noise" "== results" "zlib: passed 3 failed 0 skipped 0" "== end zlib"
		printf '%s\n' "== results" "${@:2}" "== end cpython"
	} >"$tmp/$1"
}

claim() { # NAME WANTED_STATUS WANTED_TEXT INSIDE OUTSIDE
	local status=0 output

	output=$("$here/../../../loadgen/realwork.sh" compare "$tmp/$4" "$tmp/$5" 2>&1) || status=$?
	tests=$((tests + 1))
	if [[ $status -eq $2 && $output == *"$3"* ]]; then
		echo "ok $tests $1"
	else
		echo "not ok $tests $1: status $status: $output"
		failed=1
	fi
}

result good "test_os/A: skipped 2" "test_os: passed 5 failed 0 skipped 2"
result failing "test_os/A.b: failed" "test_os: passed 6 failed 1 skipped 0"
result more "test_os: passed 5 failed 0 skipped 2" "test_pty: passed 7 failed 0 skipped 0"
result silent "test_os: did not finish" "test_os: passed 0 failed 0 skipped 0"
grep -v '^== end cpython' "$tmp/good" >"$tmp/cut"
sed '/^test_os/d' "$tmp/good" >"$tmp/hollow"

claim equal_results_are_equal 0 "2 modules" good good
claim other_counts_differ 1 "inside:  test_os: passed 6" failing good
claim a_failed_test_is_named 1 "inside:  test_os/A.b: failed" failing good
claim the_same_failure_on_both_sides_is_equal 0 "2 modules" failing failing
claim what_did_not_finish_is_never_equal 1 "did not finish" silent silent
claim a_result_cut_off_is_never_equal 1 "no whole results of cpython.sh" cut cut
claim a_missing_module_differs 1 "outside: test_pty: passed 7" good more
claim results_of_nothing_are_never_equal 1 "no results" hollow hollow
echo "Tested: $tests"
exit $failed
