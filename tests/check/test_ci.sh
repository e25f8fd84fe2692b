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

# What only names tell apart is looked for in a world with no other DSec: processes, cgroups, BPF
# pins, /run and network namespaces of its own. One of each kind is left, and one was there before.
others='mkdir -p /run/dsec/was /run/dsec/uids /sys/fs/bpf/dsec-was /sys/fs/cgroup/dsec-was
ip netns add dsec-was; touch /run/dsec/was.sock'
plant='set -e
mkdir /sys/fs/bpf/dsec-left /sys/fs/cgroup/dsec-left /sys/fs/cgroup/dsec-left/below
mkdir -p /run/dsec/left/bpf /run/dsec/locked "$TMPDIR/left-mount/below"
touch /run/dsec.sock /run/dsec/left.sock /run/dsec/locked/lock /run/dsec/uids/3
mount -t bpf bpf /run/dsec/left/bpf
mkdir /run/dsec/left/bpf/dsec-left
ip netns add dsec-left
truncate -s 1M "$TMPDIR/left-disk"
losetup -f "$TMPDIR/left-disk"
mount -t tmpfs left "$TMPDIR/left-mount"
mkdir "$TMPDIR/left-mount/below"
mount -t tmpfs below "$TMPDIR/left-mount/below"
(echo 0 >/sys/fs/cgroup/dsec-left/below/cgroup.procs; exec setsid sleep 600 >/dev/null 2>&1) &
'
world=$(mktemp -u /sys/fs/cgroup/check-ci.XXXXXX)
[ -e /sys/fs/cgroup/cgroup.procs ] || world=${world/cgroup/cgroup/unified}

# world_run SCRIPT: the run of CI in such a world, after and before what SCRIPT sees there
world_run() {
	mkdir "$world" || return
	unshare --mount --pid --net --ipc --fork --kill-child --mount-proc bash -c '
		mount --bind "$1" /sys/fs/cgroup && mount -t tmpfs run /run && mount -t tmpfs mnt /mnt &&
			mount -t bpf bpf /sys/fs/bpf && eval "$2" && TMPDIR=$3 "$4" >"$5" 2>&1
		echo $? >"$6"
		find /run /sys/fs/cgroup /sys/fs/bpf -name "*dsec*" -o -path "/run/dsec/*" -o -path "/run/netns/*" |
			sort >"$7"' \
		world "$world" "$others" "$work/tmp" "$work/project/.ci/run" "$work/output" "$work/status" \
		"$work/world"
	status=$(cat "$work/status")
	find "$world" -depth -type d -exec rmdir {} +
}

if [ "$(id -u)" = 0 ]; then
	project "$plant $summary"
	world_run
	claim 'each kind that is left fails' [ "$status" = 1 ]
	for left in 'processes.*sleep 600 ' 'cgroups.*/dsec-left' 'pins.*/sys/fs/bpf/dsec-left' \
		'pins.*/run/dsec/left/bpf/dsec-left' 'mounts.*/left-mount' 'mounts.*/left-mount/below' \
		'loops.*/left-disk' 'netns.*dsec-left' 'runtime.*/run/dsec.sock' 'runtime.*/run/dsec/left' \
		'runtime.*/run/dsec/left.sock' 'runtime.*/run/dsec/locked' 'files.*/left-disk'; do
		claim "it is told: $left" says "^${left/.\*/$'\t'.*}$"
	done
	claim 'what was there before is not told' eval '! says was'
	printf '%s\n' /run/dsec /run/dsec/uids /run/dsec/uids/3 /run/dsec/was /run/dsec/was.sock \
		/run/netns/dsec-was /sys/fs/bpf/dsec-was /sys/fs/cgroup/dsec-was | sort >"$work/wanted"
	claim 'all of it is removed, and what was there before stays' cmp "$work/world" "$work/wanted"
	claim 'the loop device is free' eval '! losetup --list --noheadings --output BACK-FILE | grep "$work/tmp"'
	claim 'the clone is removed with all mounts' is_clean
else
	echo 'not tried without root: each kind that is left'
fi

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
