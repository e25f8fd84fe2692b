#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs inside a sandbox (and, for comparison, outside one): CPython's own tests of processes,
# terminals, files, signals and sockets. Needs a network of its own with loopback. The results
# come last, between "== results" and "== end NAME". Most of the time passes in tests that sleep, so
# four modules run at once. They run as the image's ordinary user: a sandbox's root is not the
# host's (it cannot give a file to any uid there is, or set the host's name), and three tests of
# root's powers would differ by design.
# Must hold: the environment it was started with has no influence.
set -u
[ "${REALWORK_CLEAN:-}" = 1 ] || exec env -i REALWORK_CLEAN=1 LANG=C.UTF-8 HOME=/root \
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh "$0" </dev/null
here=$(cd "$(dirname "$0")" && pwd)
log=/tmp/realwork-cpython.log
report=/tmp/realwork-cpython.xml
modules="test_subprocess test_pty test_os test_posix test_signal test_socket test_tempfile"
umask 022
ulimit -S -n 1024

cd /tmp || exit 1

# Left out: this version's test_stress_modifying_handlers sends a hundred signals and fails when by
# chance its handler had none of them, inside and outside alike (one or two of a hundred come).
# CPython's later versions send until one has come.
tests_run() { # JOBS
	rm -f "$report"
	# shellcheck disable=SC2086 # a list of words
	HOME=/home/agent timeout -k 5 130 setpriv --reuid=agent --regid=agent --clear-groups \
		--inh-caps=-all python3 -m test -j"$1" --timeout 100 --junit-xml "$report" \
		--ignore test_stress_modifying_handlers $modules >"$log" 2>&1
	status=$?
}

# Some tests of signals race by design and fail now and then on a busy machine, anywhere: what
# fails twice counts, the second time with fewer beside it, inside and outside.
tests_run 4
if [ "$status" -ne 0 ]; then
	tail -n 30 "$log"
	echo "== once more"
	tests_run 3
fi
[ "$status" -eq 0 ] || tail -n 60 "$log"
echo "== results"
# shellcheck disable=SC2086 # a list of words
python3 "$here/cpython_results.py" "$report" $modules
results=$?
echo "== end cpython"
[ "$status" -eq 0 ] && [ "$results" -eq 0 ]
