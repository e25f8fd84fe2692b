#!/usr/bin/env bash
# .ci/run in a project of its own, whose tests/run.sh passes, fails, hangs, or leaves things behind.
set -u
ci=$(cd "$(dirname "$0")/../.." && pwd)/.ci/run
work=$(mktemp -d "${TMPDIR:-/tmp}/dsec-check-ci.XXXXXX")
trap 'rm -rf "$work"' EXIT
tested=0
failed=0

# claim TEXT COMMAND...
claim() {
	local text=$1
	shift
	tested=$((tested + 1))
	if ! "$@"; then
		printf 'not so: %s\n' "$text"
		sed 's/^/\t/' "$work/output"
		failed=1
	fi
}

# project SCRIPT: make SCRIPT the tests of a project, committed
project() {
	rm -rf "$work/project"
	mkdir -p "$work/project/tests" "$work/project/.ci" "$work/tmp"
	cp "$ci" "$work/project/.ci/run"
	printf '#!/bin/sh\n%s\n' "$1" >"$work/project/tests/run.sh"
	chmod +x "$work/project/tests/run.sh"
	git -C "$work/project" init --quiet
	git -C "$work/project" add .
	git -C "$work/project" -c user.name=check -c user.email=check@host.example \
		commit --quiet --message sample
}

run() {
	TMPDIR="$work/tmp" "$work/project/.ci/run" >"$work/output" 2>&1
	status=$?
}

is_clean() { [ -z "$(ls -A "$work/tmp")" ]; }
is_alive() { readlink "/proc/$(cat "$work/pid")/exe" >/dev/null; }
is_dead() { ! is_alive; }
says() { grep -q "$1" "$work/output"; }
ends_with() { [ "$(tail -n 1 "$work/output")" = "$1" ]; }

summary="printf '100%% tests passed, 0 tests failed out of 3\n\nTotal Test time (real) =   1 sec\n'"

project "$summary"
run
claim 'good tests pass' [ "$status" = 0 ]
claim 'the summary comes last' ends_with 'Total Test time (real) =   1 sec'
claim 'the clone is removed' is_clean

project "git rev-parse HEAD; [ -z \"\$(git status --porcelain)\" ] || exit 9; $summary"
echo dirt >"$work/project/dirt"
echo 'exit 1' >>"$work/project/tests/run.sh"
run
claim 'what is not committed is not tested' [ "$status" = 0 ]
claim 'HEAD is tested' says "$(git -C "$work/project" rev-parse HEAD)"

project "$summary; exit 8"
run
claim 'failed tests fail' [ "$status" = 8 ]

project 'echo nothing'
run
claim 'a run without a summary fails' [ "$status" = 1 ]

project "touch \"\$TMPDIR/left\"; setsid sleep 600 >/dev/null 2>&1 & echo \$! >'$work/pid'; $summary"
run
claim 'leaving things behind fails' [ "$status" = 1 ]
claim 'a process left behind is told' says '^processes.*sleep 600'
claim 'a process left behind is ended' is_dead
claim 'a file left behind is told' says '^files.*/left$'
claim 'a file left behind is removed' is_clean

project "sleep 600 & echo \$! >'$work/pid'; wait"
rm -f "$work/pid"
TMPDIR="$work/tmp" "$work/project/.ci/run" >"$work/output" 2>&1 &
runner=$!
until [ -s "$work/pid" ]; do
	kill -0 "$runner" || break
	sleep 0.05
done
claim 'a hanging test runs' is_alive
kill -TERM "$runner"
wait "$runner"
claim 'an interrupted run fails' [ $? = 130 ]
claim 'an interrupted run ends its processes' is_dead
claim 'an interrupted run is cleaned up' is_clean

printf 'Tested: %d\n' "$tested"
exit "$failed"
