#!/usr/bin/env python3
"""Addresses: ssh:HOST by a program in ssh's place, and those that are refused by name."""
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from test_cli_engine import BUILD, DSEC, PROGRAM, RUN_S, EngineFixture, eventually  # noqa: E402

# What ssh does with its words: options end at "--", then the host; the far side's shell has the rest.
SSH = """#!/bin/sh
printf '%s\\n' "$@" >"$SSH_NOTED"
echo $$ >>"$SSH_PIDS"
while [ "$1" != -- ]; do shift; done
case $2 in
nowhere) echo "ssh: connect to host nowhere port 22: No route to host" >&2; exit 255;;
silent) exec sleep 600;;
esac
shift 2
exec sh -c "exec $*"
"""


class SshTest(EngineFixture):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir(exist_ok=True)
        (self.bin / "ssh").write_text(SSH)
        (self.bin / "ssh").chmod(0o755)
        self.noted, self.pids = self.folder / "noted", self.folder / "pids"
        self.pids.write_text("")
        self.environment = {
            "PATH": f"{self.bin}:{BUILD / 'sdk'}:{os.environ['PATH']}",
            "SSH_NOTED": str(self.noted), "SSH_PIDS": str(self.pids),
        }

    def far(self, *words, host=None, **options):
        return subprocess.run([DSEC, "-H", f"ssh:{host or f'me@far.example:{self.socket}'}", *words],
                              env=self.environment, capture_output=True, timeout=RUN_S, **options)

    def left(self):
        """Processes in ssh's place that are still there."""
        return [pid for pid in self.pids.read_text().split() if Path(f"/proc/{pid}").exists()]

    def test_everything_works_over_ssh_and_no_ssh_is_left(self):
        data = os.urandom(3 << 20)
        ran = self.far("run", "-i", "small", "--", PROGRAM, "copy", input=data)
        self.assertEqual((ran.returncode, ran.stderr, ran.stdout == data), (0, b"", True))
        self.assertEqual(self.noted.read_text().split(),
                         ["-T", "-a", "-x", "-o", "BatchMode=yes", "--", "me@far.example", "dsec",
                          "proxy", str(self.socket)])
        sandbox = self.far("create", "small", "-q").stdout.decode().strip()
        (self.folder / "file").write_bytes(data)
        self.assertEqual(self.far("cp", self.folder / "file", f"{sandbox}:/tmp/").returncode, 0)
        self.assertTrue(self.far("cat", f"{sandbox}:/tmp/file").stdout == data)
        self.assertEqual(self.far("exec", sandbox, "--", PROGRAM, "exit", "9").returncode, 9)
        self.assertEqual(self.far("rm", sandbox).returncode, 0)
        self.assertEqual(self.good("ps", "-q"), "")
        self.assertEqual(self.left(), [])

    def test_a_cut_line_is_made_anew_and_the_program_goes_on(self):
        sandbox = self.create()
        child = subprocess.Popen(
            [DSEC, "-H", f"ssh:far.example:{self.socket}", "exec", sandbox, "--", PROGRAM, "slow",
             "2"], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(child.stdout.read(6), b"begun\n")
        for pid in self.left():
            os.kill(int(pid), signal.SIGKILL)
        out, said = child.communicate(timeout=RUN_S)
        self.assertEqual((out, child.returncode, said), (b"ended\n", 7, b""))
        self.assertGreaterEqual(len(self.pids.read_text().split()), 2)
        self.assertTrue(eventually(lambda: not self.left()), self.left())

    def test_what_ssh_says_is_why_it_failed(self):
        for host, said in (
            ("nowhere", b"No route to host"),
            ("far.example:/nonesuch/socket", b"no engine at /nonesuch/socket"),
        ):
            ran = self.far("ps", host=host)
            self.assertEqual(ran.returncode, 125, ran)
            self.assertIn(said, ran.stderr)
            self.assertTrue(eventually(lambda: not self.left()), self.left())
        ran = self.far("--timeout", "300ms", "ps", host="silent")
        self.assertEqual(ran.returncode, 125)
        self.assertTrue(eventually(lambda: not self.left()), self.left())
        self.environment["PATH"] = "/nonesuch"
        self.assertIn(b"ssh does not start", self.far("ps").stderr)

    def test_hosts_and_paths_that_mean_something_to_a_shell_or_to_ssh_are_refused(self):
        for address in ("ssh:", "ssh:-oProxyCommand=x", "ssh:me@-x", "ssh:a b", "ssh:a:relative",
                        "ssh:a:/x;id", "ssh:a:/$(id)", "ssh:a:/x y", "ssh:[::1", "ssh:a:",
                        "ssh:a:/x\ny", "ssh:[-x]:/y"):
            ran = self.dsec("-H", address, "ps")
            self.assertEqual(ran.returncode, 125, address)
            self.assertIn(b"ssh:[USER@]HOST[:/PATH]", ran.stderr, address)
        ran = self.dsec("-H", "tls:far.example:443", "ps")
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"tls: is not there yet", ran.stderr)

    def test_what_is_about_this_machine_is_refused_for_another(self):
        sandbox = self.create("--network", "private")
        for words, said in ((("check",), b"where the engine is"),
                            (("port", sandbox, "80", "--listen", "0"), b"ssh -L does")):
            ran = self.far(*words)
            self.assertEqual((ran.returncode, ran.stdout), (125, b""))
            self.assertIn(said, ran.stderr)
        self.assertEqual(len(self.far("port", sandbox, "80").stdout.split()), 2)


if __name__ == "__main__":
    unittest.main()
