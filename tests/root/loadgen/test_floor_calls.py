#!/usr/bin/env python3
"""The floor makes the launcher's system calls: one sandbox's worth of each, compared as multisets.

Both run under strace: a launcher worker of a real engine while load runs, and dsec-floor. Compared
is what stands between two requests of the worker, and one turn of the floor's loop, children
included up to their program. What may differ stands in ALLOWED with the reason, and nothing else.
"""
import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from engine import RUN_S, Engine  # noqa: E402

# call: (in the launcher, in the floor, why); None: as often as it happens.
CHANNEL = "the worker's channel to its shard, which the floor does not have"
ENGINES = "what the engine does itself, and the floor in its place"
WAITS = "the wait for the child: as often as it finds it not there yet"
ALLOWED = {
    "ready": {
        "recvmsg": (1, 0, CHANNEL),
        "sendmsg": (1, 0, CHANNEL),
        "futex": (None, None, WAITS),
        "kill": (0, 1, ENGINES),
        "waitid": (0, 1, ENGINES + ": PID 1 is reaped"),
        "openat": (0, 1, ENGINES + ": the proof that the root is untouched"),
        "statx": (0, 1, ENGINES + ": the same"),
        "fstatfs": (0, 1, ENGINES + ": the same"),
        "close": (0, 1, ENGINES + ": the same"),
    },
}
ALLOWED["exec"] = {
    **ALLOWED["ready"],
    "recvmsg": (2, 0, CHANNEL),
    "sendmsg": (2, 0, CHANNEL),
    "pipe2": (0, 2, ENGINES + ": stdout and stderr"),
    "read": (0, 2, ENGINES + ": the same, read to their ends"),
    "close": (0, 3, ENGINES + ": the same, and the proof"),
    "waitid": (0, 2, ENGINES + ": the program and PID 1 are reaped"),
}
ALLOWED["ready-fresh"] = ALLOWED["ready"]

LINE = re.compile(r"^(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)$")
STRACE = ["strace", "-f", "-qq", "-s", "64", "-e", "signal=none"]


def calls(path):
    """(pid, name, arguments and result) of every finished call, in the order of their ends."""
    for line in path.read_text(errors="replace").splitlines():
        match = LINE.match(line)
        if match and not line.endswith("<unfinished ...>"):
            yield int(match[1]), match[2] or match[3], match[4]
        elif match and match[3] in ("execve", "execveat", "exit_group"):
            yield int(match[1]), match[3], match[4]


def turns(path, worker, is_end):
    """The calls of each turn: of the worker, and of its children until their program runs."""
    turn, running = [], set()
    for pid, name, rest in calls(path):
        if pid != worker and pid in running:
            continue
        turn.append((pid, name, rest))
        if pid != worker and name in ("execve", "execveat"):
            running.add(pid)
        if pid == worker and is_end(name, rest):
            yield turn
            turn = []


def counted(turn):
    """strace tells an execve twice when it was interrupted by its own end: once is what it is."""
    counts, started = collections.Counter(), set()
    for pid, name, _ in turn:
        if name in ("execve", "execveat"):
            if pid in started:
                continue
            started.add(pid)
        counts[name] += 1
    return counts


class FloorCalls(Engine):
    # Few slots, so that soon each of them has been built before.
    options = ("--shards", "1", "--launchers", "1", "--sandboxes-max", "8")

    @classmethod
    def setUpClass(cls):
        if not shutil.which("strace"):
            raise unittest.SkipTest("no strace: apt-get install strace")
        super().setUpClass()

    def launcher_turns(self, *options):
        (worker,) = self.launchers()
        trace = self.folder / "launcher.trace"
        strace = subprocess.Popen([*STRACE, "-o", trace, "-p", str(worker)])
        self.addCleanup(strace.wait)
        self.addCleanup(strace.kill)
        self.wait_for(lambda: self.is_traced(worker))
        quick = ("--seconds", "1", "--warmup", "0", "--in-flight", "1", "--probe-every", "1000000")
        subprocess.run(self.loadgen(*quick, *options), check=True, timeout=RUN_S)
        strace.send_signal(signal.SIGINT)
        strace.wait(RUN_S)
        return list(turns(trace, worker, lambda name, rest: name == "sendmsg"))

    def wait_for(self, condition):
        for _ in range(6000):
            if condition():
                return
            time.sleep(0.01)
        self.fail("it did not happen within a minute")

    @staticmethod
    def is_traced(pid):
        status = Path(f"/proc/{pid}/status").read_text()
        return "TracerPid:\t0\n" not in status

    def launcher_counts(self, scenario, *options):
        """Of one of the last lifecycles: a spawn, and where asked the exec after it."""
        found = self.launcher_turns("--scenario", scenario, *options)
        names = [{name for _, name, _ in turn} for turn in found]
        spawns = [at for at, seen in enumerate(names) if "execveat" in seen]
        self.assertGreater(len(spawns), 8)
        at = spawns[-3]
        counts = counted(found[at])
        if scenario == "exec":
            self.assertIn("execve", names[at + 1])
            counts += counted(found[at + 1])
        return counts

    def floor_counts(self, scenario):
        trace = self.folder / "floor.trace"
        subprocess.run(
            [*STRACE, "-o", trace, self.build / "loadgen/dsec-floor", "--workers", "1"]
            + ["--count", "9", "--scenario", scenario]
            + ["--image", self.folder / "images/tiny.erofs"]
            + ["--init", self.build / "backends/container/init"],
            check=True,
            timeout=RUN_S,
        )
        # The worker is the one that kills PID 1s; a turn ends with the proof that follows.
        worker = next(pid for pid, name, _ in calls(trace) if name == "kill")
        ended = []

        def is_end(name, _rest):
            ended.append(name)
            return ended[-2:] == ["fstatfs", "close"] and "statx" in ended[-4:]

        found = list(turns(trace, worker, is_end))
        self.assertGreaterEqual(len(found), 9)
        return counted(found[5])

    def assert_same(self, scenario, launcher, floor):
        wrong = []
        allowed = ALLOWED[scenario]
        for name in sorted(set(launcher) | set(floor) | set(allowed)):
            more, less, _ = allowed.get(name, (0, 0, ""))
            if more is None:
                continue
            # What is common must be equal once each side's own calls are taken off.
            if launcher[name] - more != floor[name] - less or launcher[name] < more:
                wrong.append(f"{name}: launcher {launcher[name]}, floor {floor[name]}")
        self.assertEqual(wrong, [], f"{scenario}: see ALLOWED in {__file__}")
        self.assertGreater(sum((launcher & floor).values()), 40)

    def test_ready_makes_the_launchers_calls(self):
        self.assert_same("ready", self.launcher_counts("ready"), self.floor_counts("ready"))

    def test_exec_makes_the_launchers_calls(self):
        self.assert_same("exec", self.launcher_counts("exec"), self.floor_counts("exec"))

    def test_fresh_roots_make_the_launchers_calls(self):
        launcher = self.launcher_counts("ready", "--fresh-root")
        self.assert_same("ready-fresh", launcher, self.floor_counts("ready-fresh"))


if __name__ == "__main__":
    if os.environ.get("DSEC_BUILD") is None:
        sys.exit("DSEC_BUILD: the folder of the build")
    unittest.main()
