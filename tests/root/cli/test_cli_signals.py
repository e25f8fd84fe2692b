#!/usr/bin/env python3
"""What becomes of a signal that dsec gets while it follows a program."""
import json
import signal
import subprocess
import time
import unittest
from pathlib import Path

from test_cli_engine import DSEC, PROGRAM, RUN_S, EngineFixture, eventually


class SignalsTest(EngineFixture):
    def follow(self, *words, **options):
        child = subprocess.Popen([DSEC, "-H", self.address, *words], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, **options)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def test_the_first_signal_goes_on_to_the_program(self):
        for words in (("exec", self.create()), ("run", "small")):
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                child = self.follow(*words, "--", PROGRAM, "signals")
                self.assertEqual(child.stdout.readline(), b"on\n")
                child.send_signal(number)
                self.assertEqual(child.stdout.readline(), b"%02d\n" % number)
                if number == signal.SIGTERM:  # what the program ends of
                    self.assertEqual(child.wait(RUN_S), 3)
                    continue
                child.send_signal(signal.SIGTERM)
                self.assertEqual(child.wait(RUN_S), 128 + signal.SIGTERM)
                self.assertIn(b"interrupted", child.stderr.read())
        child = self.follow("exec", self.create(), "--", PROGRAM, "sleep")
        self.assertTrue(eventually(self.hears(child), RUN_S))
        self.assertEqual(child.wait(RUN_S), 128 + signal.SIGINT)

    @staticmethod
    def hears(child):
        """Sends it a signal once it takes signals in turn: before, it would end of it."""
        def sent():
            status = Path(f"/proc/{child.pid}/status").read_text()
            blocked = int(status.partition("SigBlk:\t")[2].split()[0], 16)
            if blocked & 1 << signal.SIGINT - 1:
                child.send_signal(signal.SIGINT)
            return bool(blocked)
        return sent

    def test_signals_reach_the_program_whatever_becomes_of_its_output(self):
        sandbox = self.create()
        # Nobody reads, and the pipe is full.
        child = self.follow("exec", sandbox, "--", PROGRAM, "forever")
        self.assertEqual(child.stdout.read(3), b"on\n")
        time.sleep(0.2)
        child.send_signal(signal.SIGTERM)
        self.assertTrue(eventually(lambda: json.loads(
            self.good("stats", "--json", sandbox))["processes"] == 1, RUN_S))
        child.stdout.read()
        self.assertEqual(child.wait(RUN_S), 128 + signal.SIGTERM)
        # What is ignored stays ignored, as for whoever was started by nohup.
        child = self.follow("exec", sandbox, "--", PROGRAM, "slow", "2",
                            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.assertEqual(child.stdout.readline(), b"begun\n")
        child.send_signal(signal.SIGHUP)
        self.assertEqual((child.stdout.read(), child.wait(RUN_S)), (b"ended\n", 7))


if __name__ == "__main__":
    unittest.main()
