#!/usr/bin/env python3
"""What people see of what happens: `dsec events`, `wait`, `logs` and `top`."""
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from test_cli_engine import DSEC, PROGRAM, RUN_S, EngineFixture, eventually  # noqa: E402


class EventsTest(EngineFixture):
    def start(self, *words):
        child = subprocess.Popen([DSEC, "-H", self.address, *words], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def events(self, *words):
        return [json.loads(line) for line in self.good("events", "--json", *words).splitlines()]

    def test_the_past_is_listed_by_sandbox_label_kind_and_number(self):
        first = self.create("--label", "task=7")
        other = self.create()
        self.ask("exec", first, "--", PROGRAM, "show", "x")
        self.good("rm", first)
        told = self.events(first)
        self.assertEqual([e["event"] for e in told],
                         ["creating", "running", "exec-started", "exec-ended", "destroying",
                          "ended"])
        self.assertEqual({e["sandbox"] for e in told}, {first})
        self.assertEqual((told[0]["image"], told[0]["labels"]), ("small", {"task": "7"}))
        self.assertEqual((told[3]["reason"], told[3]["code"], told[3]["exec"]), ("exit", 0, 1))
        self.assertEqual(told[5]["cause"], "destroyed")
        self.assertEqual(self.events("--label", "task=7"), told)
        self.assertEqual(self.events("--kind", "exec", first), told[2:4])
        self.assertEqual(self.events("--sandbox", first), told)
        self.assertEqual(self.events("--kind", "ended", "--kind", "running", first),
                         [told[1], told[5]])
        place = f"{told[4]['epoch']}.{told[4]['seq']}"
        self.assertEqual(self.events("--from", place, first), told[4:])
        lines = self.good("events", "--label", "task=7").splitlines()
        self.assertRegex(lines[0], "^TIME +SEQ +ID +EVENT +WHAT$")
        self.assertRegex(lines[1], rf"^20.*Z \d+ +{first} creating +small task=7$")
        self.assertRegex(lines[4], r"exec-ended +exec 1 exit 0 task=7$")
        place = lines[0].index("WHAT")
        self.assertEqual([line[place - 1:place + 1].isspace() for line in lines], [False] * len(lines))
        self.assertIn(other, {e["sandbox"] for e in self.events()})
        # Of another engine: it says so, and begins with its first.
        told = self.events("--from", "1.1", other)
        self.assertEqual((told[0]["event"], told[0]["reset"]), ("gap", True))
        self.assertEqual(told[1]["event"], "creating")

    def test_who_reads_no_further_is_no_failure(self):
        for _ in range(3):
            self.good("rm", self.create())
        read, write = os.pipe()
        os.close(read)
        ran = subprocess.run([DSEC, "-H", self.address, "events"], stdout=write,
                             stderr=subprocess.PIPE, timeout=240)
        os.close(write)
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        with open("/dev/full", "w") as full:
            ran = subprocess.run([DSEC, "-H", self.address, "events"], stdout=full,
                                 stderr=subprocess.PIPE, timeout=240)
        self.assertEqual((ran.returncode, ran.stderr),
                         (125, b"dsec: stdout: No space left on device\n"))

    def test_what_makes_no_sense_is_refused_by_name(self):
        for words, said in (
            (("--kind", "sleeping"), b"no kind 'sleeping'"),
            (("--from", "x"), b"'x' is no number of an event"),
            (("--from", "0"), b"'0' is no number of an event"),
            (("--from", "999999999"), b"no event has that number yet"),
        ):
            ran = self.ask("events", *words)
            self.assertEqual(ran.returncode, 125, words)
            self.assertIn(said, ran.stderr)
        for words in (("wait",), ("wait", "--for", "exec:0", "aaaa"), ("logs",)):
            self.assertEqual(self.ask(*words).returncode, 125, words)

    def test_what_happens_is_followed_until_the_time_is_over(self):
        child = self.start("events", "-f", "--json", "--timeout", "60s", "--kind", "sandbox")
        seen = []
        sandbox = self.create()

        # Whoever comes too late for `creating` sees the next one.
        while "ended" not in [e["event"] for e in seen]:
            if not seen:
                self.good("rm", sandbox)
                sandbox = self.create()
            seen.append(json.loads(child.stdout.readline()))
            if seen[-1]["event"] == "running":
                self.good("rm", seen[-1]["sandbox"])
        self.assertEqual(self.ask("events", "-f", "--timeout", "100ms").returncode, 124)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(RUN_S), -signal.SIGINT)

    def test_wait_is_for_several_for_a_program_and_for_one_that_ended(self):
        first, second = self.create(), self.create("--ttl", "1s")
        self.assertEqual(self.good("wait", "--for", "running", first), "running\n")
        waiting = self.start("wait", "--for", "exec:1", first)
        both = self.start("wait", first, second)
        self.assertEqual(self.ask("exec", first, "--", PROGRAM, "slow", "1").returncode, 7)
        self.assertEqual(waiting.communicate(timeout=RUN_S)[0], "exit 7\n")
        self.assertEqual(self.good("wait", "--for", "exec:1", first), "exit 7\n")
        told = json.loads(self.good("wait", "--json", "--for", "exec:1", first))
        self.assertEqual((told["exec"], told["reason"], told["code"]), (1, "exit", 7))
        self.assertEqual(self.good("wait", second), "ttl\n")
        self.good("rm", first)
        out, _ = both.communicate(timeout=RUN_S)
        self.assertEqual(set(out.splitlines()), {f"{first} destroyed", f"{second} ttl"})
        self.assertEqual(both.returncode, 0)
        ran = self.ask("wait", "--for", "running", first)
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"ended: destroyed", ran.stderr)

    def test_logs_are_of_the_latest_program_of_its_tail_and_to_its_end(self):
        sandbox = self.create()
        ran = self.ask("logs", sandbox)
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"no program runs there", ran.stderr)
        self.ask("exec", sandbox, "--", PROGRAM, "show", "first")
        self.good("exec", "-d", sandbox, "--", PROGRAM, "slow", "2")
        self.assertTrue(eventually(lambda: self.ask("logs", sandbox).stdout == b"begun\n"))
        ran = self.ask("logs", "-f", sandbox)
        self.assertEqual((ran.stdout, ran.returncode), (b"begun\nended\n", 7))
        self.assertEqual(self.ask("logs", "--tail", "4", sandbox, "2").stdout, b"ded\n")
        self.assertTrue(self.ask("logs", sandbox, "1").stdout.startswith(b"first|"))
        ran = self.ask("logs", "--tail", "4", "--from", "1", sandbox)
        self.assertEqual(ran.returncode, 125)

    def test_top_and_stats_show_who_is_busy(self):
        idle, busy = self.create(), self.create("--label", "task=9")
        self.good("exec", "-d", busy, "--", PROGRAM, "forever")
        self.assertTrue(eventually(lambda: json.loads(
            self.good("stats", "--json", busy))["execs_running"] == 1))
        self.ask("exec", idle, "--", PROGRAM, "show", "x")
        told = json.loads(self.good("stats", "--json", idle))
        self.assertEqual((told["execs_running"], told["execs_total"]), (0, 1))
        self.assertIn("io_read_bytes", told)
        self.assertEqual((told["network_received_bytes"], told["network_sent_bytes"]), (0, 0))
        rows = [json.loads(line)
                for line in self.good("top", "--json", "--every", "200ms").splitlines()]
        self.assertEqual([row["id"] for row in rows], [busy, idle])
        self.assertGreater(rows[0]["cpu_permille"], rows[1]["cpu_permille"])
        self.assertEqual((rows[0]["execs_running"], rows[0]["image"]), (1, "small"))
        lines = self.good("top", "--every", "100ms", "--label", "task=9").splitlines()
        self.assertRegex(lines[0], r"^1 sandboxes, 1 programs, \d+\.\d% CPU$")
        self.assertRegex(lines[1], "^ID +STATE +CPU +MEMORY +PEAK +EXECS +PROCESSES +AGE +IMAGE$")
        self.assertRegex(lines[2], rf"^{busy} running +\d")
        self.assertEqual(len(lines), 3)
        lines = self.good("top", "--every", "100ms", "--sort", "age").splitlines()
        self.assertTrue(lines[2].startswith(idle), lines)

    def test_top_fills_a_screen_until_it_is_interrupted(self):
        self.create()
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 4, 120, 0, 0))
        for _ in range(3):
            self.create()
        child = subprocess.Popen([DSEC, "-H", self.address, "top", "--every", "100ms"],
                                 stdout=slave, stderr=slave)
        os.close(slave)
        seen = b""
        while seen.count(b"\x1b[H") < 3:
            seen += os.read(master, 65536)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(RUN_S), -signal.SIGINT)
        # A screen of four lines: two of heading, one of the four sandboxes.
        self.assertEqual(seen.split(b"\x1b[H")[2].count(b"\n"), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
