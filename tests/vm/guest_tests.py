#!/usr/bin/env python3
"""What only a guest can show: dsecd where every controller, AppArmor and swap are really on.

    guest_tests.py BUILD IMAGE

BUILD is the build folder, IMAGE an EROFS file with busybox and the load generator's programs. Rates
are TCG's: they say that load is carried, not how fast. Called by guest_ladder.py.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

BUILD, IMAGE = Path(sys.argv[1]), Path(sys.argv[2])
FOLDER = Path("/tmp/guest-tests")
IMAGES, SOCKET = FOLDER / "images", FOLDER / "socket"
CGROUP = Path("/sys/fs/cgroup")
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
INSTANCE = "guest"
RUN_S, STOP_S = 60, 30
LOAD_S = 2
MIB = 1 << 20
MEMORY, PIDS = 1, 2  # bits of "unenforced"


def engine_start(name, socket, *options):
    """A dsecd that is ready, or None where it ended; its log is FOLDER/NAME.log."""
    reader, writer = os.pipe()
    with open(FOLDER / f"{name}.log", "wb") as log:
        engine = subprocess.Popen(
            [BUILD / "engine/dsecd", "--instance", name, "--socket", socket]
            + ["--images", IMAGES, "--ready-fd", str(writer), *options],
            pass_fds=[writer], stdout=log, stderr=log,
        )
    os.close(writer)
    with os.fdopen(reader) as ready:
        if ready.readline() == "ready\n":
            return engine
    engine.wait(STOP_S)
    return None


def engine_stop(engine):
    engine.send_signal(signal.SIGTERM)
    return engine.wait(STOP_S)


def log_of(name):
    return (FOLDER / f"{name}.log").read_text()


class HostTest(unittest.TestCase):
    def test_everything_required_is_there(self):
        ran = subprocess.run(
            [BUILD / "engine/dsecd", "--check", "--json", "--images", IMAGES],
            capture_output=True, text=True, timeout=RUN_S,
        )
        rows = {row["name"]: row for row in json.loads(ran.stdout)["probes"]}
        wrong = [row for row in rows.values() if row["required"] and row["state"] != "ok"]
        self.assertEqual(wrong, [])
        self.assertEqual(ran.returncode, 0)
        # What only a guest can show here.
        for name in ("controllers", "apparmor", "bpf-lsm", "bpf-fentry", "swap"):
            self.assertEqual(rows[name]["state"], "ok", rows[name])


class SwapTest(unittest.TestCase):
    """What goes beyond a group's memory goes to swap, up to its limit there, and then somebody
    dies. Room enough that a slow disk does not make reclaim give up."""

    def setUp(self):
        self.group = CGROUP / "dsec-guest-swap"
        (CGROUP / "cgroup.subtree_control").write_text("+memory")
        self.group.mkdir()
        self.addCleanup(self.group.rmdir)
        (self.group / "memory.max").write_text(str(64 * MIB))
        (self.group / "memory.swap.max").write_text(str(64 * MIB))

    def hog(self, mib):
        """A MiB at a time, and slowly where the limit is near: what is written out faster than the
        disk takes it counts as memory that nothing can be done about, and somebody dies of it."""
        program = ("import sys, time\nheld = []\nfor n in range(int(sys.argv[1])):\n"
                   # Not zeroes: pages of those need neither memory nor swap.
                   "    held.append(b'x' * (1 << 20))\n    time.sleep(0.02 if n > 40 else 0)\n")
        script = 'echo $$ >"$1/cgroup.procs" && exec python3 -c "$2" "$3"'
        words = ["sh", "-c", script, "sh", self.group, program, str(mib)]
        return subprocess.run(words, capture_output=True, timeout=RUN_S).returncode

    def number(self, file):
        return int((self.group / file).read_text())

    def test_swap_is_used_and_limited(self):
        self.assertEqual(self.hog(72), 0)
        used = self.number("memory.swap.peak")
        self.assertGreater(used, MIB)
        self.assertEqual(self.hog(200), -signal.SIGKILL)
        self.assertLessEqual(self.number("memory.swap.peak"), 64 * MIB)
        self.assertLessEqual(self.number("memory.peak"), 64 * MIB)
        self.assertNotIn("oom_kill 0\n", (self.group / "memory.events").read_text())


def core_handler(folder):
    """Has the kernel pipe cores to a program, which only an own machine may; what it writes to."""
    folder.mkdir()
    handler, ran = folder / "handler", folder / "ran"
    handler.write_text(f"#!/bin/sh\necho $1 >>{ran}\n")
    handler.chmod(0o755)
    CORE_PATTERN.write_text(f"|{handler} %p")
    return ran


class EngineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = engine_start(INSTANCE, SOCKET, "--sandboxes-max", "64")
        if not cls.engine:
            raise AssertionError(f"dsecd is not ready:\n{log_of(INSTANCE)}")

    @classmethod
    def tearDownClass(cls):
        status = engine_stop(cls.engine)
        left = list(CGROUP.glob(f"dsec-{INSTANCE}*"))
        if status != 0 or left:
            raise AssertionError(f"dsecd ended with {status}, left {left}:\n{log_of(INSTANCE)}")

    def dsec(self, *words, status=0):
        ran = subprocess.run(
            [BUILD / "sdk/dsec", *words], capture_output=True, text=True, timeout=RUN_S,
            env=os.environ | {"DSEC_ADDRESS": f"unix:{SOCKET}"},
        )
        if status is not None:
            self.assertEqual(ran.returncode, status, f"{words}: {ran.stdout}{ran.stderr}")
        return ran.stdout

    def rows(self, *words, status=0):
        return [json.loads(line) for line in self.dsec(*words, status=status).splitlines()]

    def made(self, *options):
        """A sandbox and what dsec said of it."""
        row = self.rows("create", "--json", *options, "image")[0]
        self.addCleanup(self.dsec, "rm", row["id"])
        return row

    def group(self, file):
        """Of the cgroup of the one sandbox that lives: the file's text."""
        groups = [path.parent for path in CGROUP.glob(f"dsec-{INSTANCE}/*/b*/cgroup.procs")
                  if path.read_text()]
        self.assertEqual(len(groups), 1)
        return (groups[0] / file).read_text()

    def test_a_sandbox_is_made_runs_and_goes(self):
        sandbox = self.rows("create", "--json", "image")[0]["id"]
        self.assertEqual(self.dsec("exec", sandbox, "--", "sh", "-c", "echo $((6 * 7))"), "42\n")
        self.dsec("exec", sandbox, "--", "sh", "-c", "exit 9", status=9)
        self.assertEqual([row["id"] for row in self.rows("ps", "--json")], [sandbox])
        self.dsec("rm", sandbox)
        self.assertEqual(self.rows("ps", "--json"), [])

    def test_limits_are_enforced_and_said_to_be(self):
        row = self.made("-m", "64M", "--pids", "20")
        self.assertEqual((row["memory_bytes"], row["pids_max"]), (64 * MIB, 20))
        self.assertEqual(row["unenforced"] & (MEMORY | PIDS), 0)
        self.assertEqual(self.group("pids.max"), "20\n")
        self.assertEqual(self.group("memory.max"), f"{64 * MIB}\n")
        self.assertEqual(self.group("memory.swap.max"), "0\n")

    def test_the_next_sandbox_of_a_slot_has_its_own_limits(self):
        for options, pids, memory, swap in (
            (("-m", "64M", "--pids", "20"), "20\n", f"{64 * MIB}\n", "0\n"),
            (("--pids", "30"), "30\n", "max\n", "max\n"),
            (("-m", "96M", "--pids", "30"), "30\n", f"{96 * MIB}\n", "0\n"),
        ):
            sandbox = self.rows("create", "--json", *options, "image")[0]["id"]
            self.assertEqual(self.group("pids.max"), pids)
            self.assertEqual(self.group("memory.max"), memory)
            self.assertEqual(self.group("memory.swap.max"), swap)
            self.dsec("rm", sandbox)

    def shares(self, *options):
        """A sandbox, and what the kernel holds it to of CPUs and of the disk."""
        row = self.rows("create", "--json", *options, "image")[0]
        self.assertEqual(row["unenforced"], 0, row)
        told = [self.group(file).strip() for file in ("cpu.max", "cpu.weight", "cpu.idle")]
        told += re.findall(r"rbps=\d+ wbps=\d+", self.group("io.max"))
        return row["id"], told + re.findall(r"default \d+", self.group("io.weight"))

    def test_shares_of_cpus_and_disks_are_the_kernels_and_no_others(self):
        one, told = self.shares("--cpus", "0.1", "--cpu-weight", "50", "--io", "1M",
                                "--io-weight", "40")
        self.assertEqual(told, ["10000 100000", "50", "0", f"rbps={MIB} wbps={MIB}", "default 40"])
        row = self.rows("exec", "--json", "--timeout", "2s", one, "--", "sh", "-c",
                        "while :; do :; done", status=124)[0]
        self.assertGreater(row["cpu_ms"], 0)
        self.assertLess(row["cpu_ms"], row["wall_ms"] / 2, row)
        self.dsec("rm", one)
        # The next ones of its slot.
        one, told = self.shares("--sched-idle")
        self.assertEqual((told[0], told[2:]), ("max 100000", ["1", "default 100"]))
        self.dsec("rm", one)
        one, told = self.shares()
        self.assertEqual(told, ["max 100000", "100", "0", "default 100"])
        self.dsec("rm", one)

    def test_processes_stop_at_their_limit(self):
        sandbox = self.made("--pids", "20")["id"]
        loop = "n=0; while [ $n -lt 60 ]; do sleep 60 & n=$((n + 1)); echo $n; done"
        row = self.rows("exec", "--json", sandbox, "--", "sh", "-c", loop, status=2)[0]
        # PID 1 and the shell are two of the twenty.
        self.assertEqual(row["stdout"]["text"].split()[-1], "18", row)
        self.assertIn("can't fork", row["stderr"]["text"])
        self.assertEqual(self.group("pids.current"), "19\n")

    def test_memory_stops_at_its_limit_and_takes_no_swap(self):
        sandbox = self.made("-m", "64M")["id"]
        hog = ("dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1")
        row = self.rows("exec", "--json", sandbox, "--", *hog, status=137)[0]
        self.assertEqual((row["status"], row["signal"]), ("ok", 9), row)
        self.assertIn("oom_kill ", self.group("memory.events"))
        self.assertNotIn("oom_kill 0\n", self.group("memory.events"))
        self.assertEqual(self.group("memory.swap.peak"), "0\n")
        # It was this program alone, and what it had is free again.
        self.assertEqual(self.dsec("exec", sandbox, "--", "echo", "alive"), "alive\n")

    def test_no_crash_starts_the_hosts_core_handler(self):
        self.addCleanup(CORE_PATTERN.write_text, CORE_PATTERN.read_text())
        ran = core_handler(FOLDER / "cores")
        crash = "ulimit -c 0 2>/dev/null; kill -SEGV $$"
        sandbox = self.made()["id"]
        for script in ("kill -SEGV $$", crash, "(kill -ABRT $$); kill -TRAP $$"):
            self.dsec("exec", sandbox, "--", "sh", "-c", script, status=None)
        time.sleep(1)
        self.assertFalse(ran.exists())
        # Outside it does, even for who wants no core.
        subprocess.run(["sh", "-c", crash], timeout=RUN_S)
        end = time.monotonic() + RUN_S
        while not ran.exists() and time.monotonic() < end:
            time.sleep(0.1)
        self.assertTrue(ran.exists())

    def test_what_fits_the_memory_limit_runs(self):
        sandbox = self.made("-m", "64M")["id"]
        self.dsec("exec", sandbox, "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=40M", "count=1")

    def load(self, scenario):
        report = FOLDER / f"{scenario}.json"
        ran = subprocess.run(
            [BUILD / "loadgen/dsec-loadgen", "--scenario", scenario, "--seconds", str(LOAD_S)]
            + ["--address", SOCKET, "--instance", INSTANCE, "--image", "image"]
            + ["--in-flight", "8", "--probe-every", "20", "--json", report],
            capture_output=True, text=True, timeout=RUN_S,
        )
        self.assertEqual(ran.returncode, 0, f"{ran.stdout}{ran.stderr}")
        row = json.loads(report.read_text())
        self.assertEqual((row["live"], row["residue"], row["failed"]), (0, 0, 0), row)
        self.assertEqual(row["asked"], row["done"] + row["refused"])
        print(f"{scenario}: {row['rate_per_s']:.0f}/s under TCG, p50 {row['p50_us']:.0f} us, "
              f"{row['reused']} of {row['done']} on reused roots", flush=True)
        return row

    def test_untouched_roots_are_reused_under_load(self):
        row = self.load("ready")
        self.assertGreater(row["reused"], row["done"] / 2, row)

    def test_programs_run_under_load_isolated(self):
        self.load("exec")

    def test_a_root_that_was_only_read_is_reused(self):
        before = self.reused()
        for _ in range(6):
            self.dsec("run", "image", "--", "sh", "-c", "ls / /etc; cat /etc/passwd")
        self.assertGreaterEqual(self.reused() - before, 4)

    def reused(self):
        check = json.loads(self.dsec("check", "--json", "--instance", INSTANCE))
        return check["engine"]["reused_total"]


class InstancesTest(unittest.TestCase):
    def test_a_small_one_fits_beside_a_large_one(self):
        engines = [
            engine_start(name, FOLDER / name, "--shards", "1", "--sandboxes-max", most)
            for name, most in (("large", "2000"), ("small", "64"))
        ]
        try:
            for name, engine in zip(("large", "small"), engines):
                self.assertIsNotNone(engine, log_of(name))
                ran = subprocess.run(
                    [BUILD / "sdk/dsec", "run", "image", "--", "true"], timeout=RUN_S,
                    env=os.environ | {"DSEC_ADDRESS": f"unix:{FOLDER / name}"},
                )
                self.assertEqual(ran.returncode, 0, log_of(name))
        finally:
            statuses = [engine_stop(engine) for engine in engines if engine]
        self.assertEqual(statuses, [0, 0])


if __name__ == "__main__":
    IMAGES.mkdir(parents=True)
    shutil.copy(IMAGE, IMAGES / "image.erofs")
    unittest.main(argv=[sys.argv[0], "-v"])
