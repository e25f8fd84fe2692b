#!/usr/bin/env python3
"""vm.py itself: what it returns, what a guest cannot do, and that QEMU ends whatever happens."""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
VM = [sys.executable, "-B", HERE / "vm.py"]
RUN_S, GONE_S = 120, 10
SERIES = sys.argv[1]
SKIPPED, BROKEN = 77, 125


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
