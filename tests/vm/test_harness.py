#!/usr/bin/env python3
"""vm.py itself: what it returns, what a guest cannot do, and that QEMU ends whatever happens; and
guest_ladder.py: what a test leaves is told, fails it and is not there for the next."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import vm

HERE = Path(__file__).resolve().parent
VM = [sys.executable, "-B", HERE / "vm.py"]
RUN_S, GONE_S = 120, 10
SERIES = sys.argv[1]
SKIPPED, BROKEN = 77, 125
# One of each kind; in the guest only. Pins: a map of bpftool's, where a bpffs is the host's and where
# an engine mounts its own.
LITTER = """
set -e
mkdir -p /run/dsec/left-b/bpf /run/dsec/uids /run/netns /sys/fs/cgroup/dsec-left/below
setsid sleep 600 >/dev/null 2>&1 </dev/null &
(echo 0 >/sys/fs/cgroup/dsec-left/below/cgroup.procs; exec setsid sleep 601 >/dev/null 2>&1) &
mount -t bpf bpf /run/dsec/left-b/bpf
mkdir /sys/fs/bpf/dsec-left-a /run/dsec/left-b/bpf/dsec-left-b
for at in /sys/fs/bpf/dsec-left-a /run/dsec/left-b/bpf/dsec-left-b; do
	bpftool map create $at/map type array key 4 value 4 entries 1 name left
done
touch /run/dsec.sock /run/dsec/uids/1
mkdir /tmp/left-mount
mount -t tmpfs left /tmp/left-mount
ip netns add dsec-left
truncate -s 1M /tmp/left-loop
losetup -f /tmp/left-loop
"""
LEFT = ("process ", "cgroup /sys/fs/cgroup/dsec-left", "pin /sys/fs/bpf/dsec-left-a",
        "pin /run/dsec/left-b/bpf/dsec-left-b", "mount /run/dsec/left-b/bpf", "run /run/dsec.sock",
        "run /run/dsec/left-b", "mount /tmp/left-mount", "netns /run/netns/dsec-left",
        "loop /dev/loop")
# The next test sees none of it.
CLEAN = """
! pgrep -x sleep && ! test -e /sys/fs/cgroup/dsec-left && ! test -e /sys/fs/bpf/dsec-left-a &&
! test -e /run/dsec/left-b && ! test -e /run/dsec.sock && ! test -e /run/netns/dsec-left &&
! grep left /proc/mounts && test -z "$(losetup -a)" && test -e /run/dsec/uids/1
"""


def qemus(folder):
    """Processes of guests whose files are below the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if words.startswith(b"qemu-system") and bytes(folder) in words:
            found.append(int(path.parent.name))
    return found


def eventually(what, seconds):
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.05)
    return what()


class HarnessTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="dsec-vm-test.")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start(self, *words):
        return subprocess.Popen(
            [*VM, "--kernel", SERIES, *words], text=True, env=os.environ | {"TMPDIR": self.folder},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )

    def test_status_and_output_come_back_and_the_host_stays_as_it_is(self):
        script = (
            "echo out; echo err >&2; uname -r; cat /sys/fs/cgroup/cgroup.controllers;"
            f"touch {HERE}/mark && echo written; touch {self.folder}/mark && echo there; exit 7"
        )
        vm = self.start("--folder", self.folder, "--", "sh", "-c", script)
        output, _ = vm.communicate(timeout=RUN_S)
        self.assertEqual(vm.returncode, 7, output)
        lines = output.splitlines()
        self.assertEqual(lines[:2], ["out", "err"])
        self.assertTrue(lines[2].startswith(f"{SERIES}."), lines)
        self.assertLessEqual({"memory", "pids", "cpu", "io"}, set(lines[3].split()))
        self.assertFalse({"written", "there"} & set(lines), lines)
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assertEqual(qemus(self.folder), [])

    def test_what_a_test_leaves_fails_it_and_is_removed(self):
        cache = self.folder / "cache"
        cache.mkdir()
        for name in (".minimal.stamp", "minimal.erofs", "minimal.json", "root-minimal"):
            (cache / name).touch()
        waiting = [{"name": name, "command": ["sh", "-c", script], "environment": [],
                    "timeout_s": RUN_S, "settle_s": 1}
                   for name, script in (("clean", "exit 0"), ("litter", LITTER), ("next", CLEAN))]
        rows = []

        def answer(line):
            rows.append(json.loads(line))
            return json.dumps(waiting.pop(0)).encode() if waiting else b""

        guest = vm.Guest(["/usr/bin/python3", "-B", HERE / "guest_ladder.py", cache],
                         vm.prepare(SERIES), timeout_s=RUN_S, answer=answer, output="/dev/null",
                         folders=[HERE.parents[1], self.folder])
        self.assertEqual(guest.run(), 1, guest.console())
        told = {row["name"]: row for row in rows if row}
        self.assertEqual({name: row["status"] for name, row in told.items()},
                         {"clean": 0, "litter": 1, "next": 0}, told)
        left = told["litter"]["output"].partition("left behind:\n")[2].splitlines()
        for start in LEFT:
            self.assertTrue(any(line.startswith(start) for line in left), (start, told["litter"]))
        # What was there before is not held against it.
        self.assertEqual({line.split()[0] for line in left}, {line.split()[0] for line in LEFT})
        self.assertEqual(sum(line.startswith("process ") for line in left), 2, left)

    def test_a_guest_that_does_not_end_is_ended(self):
        vm = self.start("--timeout", "0", "--boot", "6", "--", "sleep", "600")
        output, _ = vm.communicate(timeout=RUN_S)
        self.assertEqual(vm.returncode, BROKEN, output)
        self.assertIn("no end in 6 s", output)
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assertEqual(qemus(self.folder), [])

    def test_a_killed_harness_takes_its_guest_along(self):
        vm = self.start("--", "sleep", "600")
        self.assertTrue(eventually(lambda: qemus(self.folder), RUN_S))
        vm.send_signal(signal.SIGKILL)
        vm.communicate(timeout=RUN_S)
        self.assertTrue(eventually(lambda: not qemus(self.folder), GONE_S))


if __name__ == "__main__":
    probe = subprocess.run([*VM, "--kernel", SERIES, "--prepare"], timeout=900)
    if probe.returncode != 0:
        sys.exit(probe.returncode)
    unittest.main(argv=sys.argv[:1])
