#!/usr/bin/env bash
# run-test fails what would pass by its exit status alone, and passes what is good.
set -u
run_test=$(dirname "$0")/../run-test
tested=0
failed=0

# expect STATUS KIND OUTPUT [EXIT]: a program that prints OUTPUT and exits with EXIT
expect() {
	printf '%b' "$3" | ASAN_OPTIONS='' "$run_test" "--$2" -- \
		bash -c "cat; exit ${4:-0}" >/dev/null 2>&1
	local status=$?
	tested=$((tested + 1))
	if [ "$status" != "$1" ]; then
		printf 'expected %s, got %s for %s: %s\n' "$1" "$status" "$2" "$3"
		failed=1
	fi
}

synthesis='[====] Synthesis: Tested: 3 | Passing: 3 | Failing: 0 | Crashing: 0 \n'
expect 0 criterion "$synthesis"
expect 1 criterion "${synthesis//3/0}"
expect 1 criterion '1..0\n'
expect 1 criterion ''
expect 1 criterion "[SKIP] a::b: Test is disabled\n$synthesis"
expect 77 criterion "[SKIP] a::b: no XFS here\n$synthesis"
expect 1 criterion "==1==ERROR: LeakSanitizer: detected memory leaks\n$synthesis"
expect 1 criterion "a.c:3:5: runtime error: signed integer overflow\n$synthesis"
expect 4 criterion "$synthesis" 4

expect 0 program 'Tested: 12\n'
expect 0 program 'Ran 3 tests in 0.1s\n\nOK\n'
expect 77 program 'Ran 3 tests in 0.1s\n\nOK (skipped=1)\n'
expect 77 program 'skipped: no loop devices\n' 77
expect 1 program 'ERROR: AddressSanitizer: heap-use-after-free\n' 77
expect 1 program 'Tested: 0\n'
expect 1 program 'Ran 0 tests in 0.0s\n\nOK\n'
expect 1 program 'all is well\n'
expect 1 program ''
expect 1 program 'WARNING: ThreadSanitizer: data race\nTested: 1\n'
expect 3 program 'Tested: 1\n' 3

expect 0 fuzz 'Done 1000 runs in 2 second(s)\n'
expect 1 fuzz 'Done 0 runs in 2 second(s)\n'
expect 1 fuzz ''

# A report that goes to a file because its process has no standard error.
"$run_test" --program -- bash -c '
	file=${ASAN_OPTIONS##*log_path=}
	echo "ERROR: AddressSanitizer" >"$file.1"
	echo "Tested: 1"' >/dev/null 2>&1
if [ $? != 1 ]; then
	echo 'a sanitizer report in a file went unseen'
	failed=1
fi
tested=$((tested + 1))

printf 'Tested: %d\n' "$tested"
exit "$failed"
