#!/usr/bin/env python3
"""`dsec exec -it` and `dsec run -it` as a person has them: on a real terminal."""
import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
import tty
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from test_cli_engine import DSEC, PROGRAM, RUN_S, EngineFixture, eventually  # noqa: E402

ROWS, COLUMNS = 31, 99


class Person:
    """A terminal and dsec on it, as the leader of a session."""

    def __init__(self, address, *words, environment=None):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            with contextlib.suppress(BaseException):
                self.size(ROWS, COLUMNS, 0)
                os.execve(DSEC, [DSEC, *words], {
                    "DSEC_ADDRESS": address, "TERM": "vt100", "PATH": "/bin", **(environment or {})
                })
            os._exit(99)
        self.status = None

    def size(self, rows, columns, fd=None):
        packed = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.fd if fd is None else fd, termios.TIOCSWINSZ, packed)

    def type(self, text):
        os.write(self.fd, text)

    def sees(self, text, seconds=RUN_S):
        """Reads until `text` was written; what stands before it is forgotten."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"no {text!r} in {self.seen!r}")
            try:
                self.seen += os.read(self.fd, 4096)
            except OSError as error:
                raise AssertionError(f"no {text!r} in {self.seen!r}") from error
        self.seen = self.seen.split(text, 1)[1]

    def mode(self):
        return termios.tcgetattr(self.fd)

    def ended(self, seconds=RUN_S):
        end = time.monotonic() + seconds
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                raise AssertionError(f"it goes on: {self.seen!r}")
            elif select.select([self.fd], [], [], 0.02)[0]:
                with contextlib.suppress(OSError):
                    self.seen += os.read(self.fd, 4096)
        return self.status

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


class TerminalTest(EngineFixture):
    def person(self, *words, **options):
        person = Person(self.address, *words, **options)
        self.addCleanup(person.close)
        return person

    def on_terminal(self, *command):
        person = self.person("exec", "-it", self.create(), "--", PROGRAM, *command)
        self.before = person.mode()
        return person

    def is_raw(self, person):
        return not person.mode()[tty.LFLAG] & (termios.ICANON | termios.ISIG | termios.ECHO)

    def test_the_program_has_size_and_name_of_the_users(self):
        person = self.on_terminal("terminal")
        person.sees(b"vt100 31x99\r\n")
        self.assertTrue(eventually(lambda: self.is_raw(person)))
        person.type(b"exit 7\r")
        self.assertEqual(person.ended(), 7)
        self.assertEqual(person.mode(), self.before)

    def test_a_new_size_goes_on_to_the_program(self):
        person = self.on_terminal("terminal")
        person.sees(b"31x99\r\n")
        person.size(40, 140)
        person.sees(b"40x140\r\n")
        person.type(b"exit 0\r")
        self.assertEqual(person.ended(), 0)

    def test_keys_are_the_programs(self):
        person = self.on_terminal("terminal")
        person.sees(b"31x99\r\n")
        person.type(b"\x03")
        person.sees(b"signal 2\r\n")
        person.type(b"\x1c")
        person.sees(b"signal 3\r\n")
        person.type(b"said\r")
        person.sees(b"said\r\nsaid\r\n")
        person.type(b"\x04")
        person.sees(b"end\r\n")
        self.assertEqual(person.ended(), 5)

    def test_the_terminal_is_as_before_whatever_ends_it(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            with self.subTest(number=number):
                person = self.on_terminal("terminal")
                person.sees(b"31x99\r\n")
                self.assertTrue(eventually(lambda p=person: self.is_raw(p)))
                os.kill(person.pid, number)
                self.assertEqual(person.ended(), 128 + number)
                self.assertEqual(person.mode(), self.before)

    def test_the_terminal_is_as_before_while_it_is_stopped(self):
        person = self.on_terminal("terminal")
        person.sees(b"31x99\r\n")
        self.assertTrue(eventually(lambda: self.is_raw(person)))
        os.kill(person.pid, signal.SIGTSTP)
        self.assertTrue(eventually(lambda: person.mode() == self.before))
        os.kill(person.pid, signal.SIGCONT)
        self.assertTrue(eventually(lambda: self.is_raw(person)))
        person.type(b"exit 3\r")
        self.assertEqual(person.ended(), 3)

    def test_a_program_that_cannot_start_says_why(self):
        person = self.person("exec", "-it", self.create(), "--", "/nonesuch")
        before = person.mode()
        self.assertEqual(person.ended(), 127)
        self.assertIn(b"argv0", person.seen)
        self.assertEqual(person.mode(), before)

    def test_the_end_of_its_sandbox_ends_it(self):
        sandbox = self.create()
        person = self.person("exec", "-it", sandbox, "--", PROGRAM, "terminal")
        before = person.mode()
        person.sees(b"31x99\r\n")
        self.good("rm", sandbox)
        self.assertEqual(person.ended(), 137)
        self.assertEqual(person.mode(), before)

    def test_run_makes_a_sandbox_for_it(self):
        person = self.person("run", "-it", "small", "--", PROGRAM, "terminal")
        person.sees(b"31x99\r\n")
        person.type(b"exit 4\r")
        self.assertEqual(person.ended(), 4)
        self.assertTrue(eventually(lambda: not self.good("ps", "-q")))

    def test_what_is_piped_is_typed_and_its_end_as_well(self):
        ran = self.ask("exec", "-it", self.create(), "--", PROGRAM, "terminal", input=b"one\ntwo\n")
        self.assertEqual(ran.returncode, 5)
        self.assertEqual(ran.stdout.count(b"one\r\n"), 2)
        self.assertEqual(ran.stdout.count(b"two\r\n"), 2)
        self.assertIn(b"end\r\n", ran.stdout)

    def test_json_and_a_terminal_exclude_each_other(self):
        ran = self.ask("exec", "-t", "--json", self.create(), "--", PROGRAM)
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"exclude each other", ran.stdout + ran.stderr)

    def test_kill_signals_main_or_all(self):
        sandbox = self.create()
        person = self.person("exec", "-it", sandbox, "--", PROGRAM, "terminal")
        person.sees(b"31x99\r\n")
        self.good("kill", sandbox, "1", "-s", "INT")
        person.sees(b"signal 2\r\n")
        self.good("kill", sandbox, "1", "--terminal")
        self.assertEqual(person.ended(), 128 + signal.SIGHUP)
        person = self.person("exec", "-t", sandbox, "--", PROGRAM, "terminal")
        person.sees(b"31x99\r")
        self.good("kill", sandbox, "2", "-s", "SIGKILL", "--all")
        self.assertEqual(person.ended(), 137)
        for words, said in (
            (("kill", sandbox, "2"), b"conflict"),
            (("kill", sandbox, "9"), b"absent"),
            (("kill", sandbox, "2", "-s", "NONE"), b"no signal"),
            (("kill", sandbox), b"kill wants"),
        ):
            ran = self.ask(*words)
            self.assertEqual(ran.returncode, 125, words)
            self.assertIn(said, ran.stderr, words)

    def test_limits_are_the_programs_or_refused_by_name(self):
        sandbox = self.create()
        said = self.good("exec", "--ulimit", "nofile=33:44", sandbox, "--", PROGRAM, "limits")
        self.assertEqual(said, "nofile 33:44\n")
        ran = self.ask("exec", "--ulimit", "nofile=1:1T", sandbox, "--", PROGRAM, "limits")
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"limit.nofile", ran.stderr)
        ran = self.ask("exec", "--ulimit", "nofiles=1", sandbox, "--", PROGRAM, "limits")
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"nofiles=1", ran.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
