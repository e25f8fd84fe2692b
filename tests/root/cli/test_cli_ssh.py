#!/usr/bin/env python3
"""ssh: by the real ssh and an sshd of the test's own, on the loopback, with keys made here."""
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from test_cli_engine import BUILD, DSEC, PROGRAM, RUN_S, EngineFixture, eventually  # noqa: E402

SSHD, READY_S, TRIES = Path("/usr/sbin/sshd"), 20, 5
SEPARATION = Path("/run/sshd")  # where sshd's processes without rights live; its package's script makes it
SSHD_CONFIG = """
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
SetEnv PATH={sdk}:/usr/bin:/bin
"""
SSH_CONFIG = """
Host far.example
HostName 127.0.0.1
HostKeyAlias far.example
Port {port}
User {user}
IdentityFile {folder}/user
IdentitiesOnly yes
UserKnownHostsFile {folder}/known
GlobalKnownHostsFile none
StrictHostKeyChecking yes
"""
# The library starts "ssh": the real one, which is told where the test's sshd and keys are.
WRAPPER = """#!/bin/sh
exec {ssh} -F {folder}/config "$@"
"""


def children(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def locked(user):
    """sshd without PAM lets nobody in whose password begins so."""
    for line in Path("/etc/shadow").read_text().splitlines():
        name, password = line.split(":")[:2]
        if name == user:
            return password.startswith("!")
    return False


class SshdTest(EngineFixture):
    @classmethod
    def setUpClass(cls):
        cls.ssh = shutil.which("ssh")
        cls.user = pwd.getpwuid(os.getuid()).pw_name
        for missing, reason in (
            (not cls.ssh, "no ssh: install openssh-client"),
            (not SSHD.exists(), "no sshd: install openssh-server"),
            (locked(cls.user), f"the account {cls.user} is locked, sshd lets it not in"),
        ):
            if missing:
                raise unittest.SkipTest(reason)
        super().setUpClass()
        if not SEPARATION.exists():
            SEPARATION.mkdir(mode=0o755)
            cls.addClassCleanup(SEPARATION.rmdir)
        for name in ("host", "user", "other"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", cls.folder / name],
                           check=True, timeout=RUN_S, stdin=subprocess.DEVNULL)
        (cls.folder / "sshd_config").write_text(
            SSHD_CONFIG.format(folder=cls.folder, sdk=BUILD / "sdk"))
        (cls.folder / "bin").mkdir()
        (cls.folder / "bin/ssh").write_text(WRAPPER.format(ssh=cls.ssh, folder=cls.folder))
        (cls.folder / "bin/ssh").chmod(0o755)
        cls.sshd_start()
        cls.environment = {"PATH": f"{cls.folder / 'bin'}:/usr/bin:/bin"}

    @classmethod
    def sshd_start(cls):
        """On a port that was free a moment ago: another one when it was taken since."""
        log = cls.folder / "sshd.log"
        for _ in range(TRIES):
            with socket.create_server(("127.0.0.1", 0)) as taken:
                cls.port = taken.getsockname()[1]
            cls.sshd = subprocess.Popen(
                [SSHD, "-D", "-E", log, "-f", cls.folder / "sshd_config", "-p", str(cls.port)])
            if eventually(cls.sshd_ready, READY_S):
                cls.addClassCleanup(cls.sshd_stop)
                return
            cls.sshd.kill()
            cls.sshd.wait(RUN_S)
        raise AssertionError(f"sshd does not start:\n{log.read_text()}")

    @classmethod
    def sshd_ready(cls):
        if cls.sshd.poll() is not None:
            return False
        try:
            with socket.create_connection(("127.0.0.1", cls.port), 1) as there:
                there.settimeout(READY_S)
                return there.recv(4) == b"SSH-"
        except OSError:
            return False

    @classmethod
    def sshd_stop(cls):
        for pid in children(cls.sshd.pid):
            os.kill(pid, signal.SIGKILL)
        cls.sshd.terminate()
        cls.sshd.wait(RUN_S)

    def setUp(self):
        super().setUp()
        key = (self.folder / "host.pub").read_text()
        self.known_write(key)
        self.config_write("user")

    def known_write(self, key):
        (self.folder / "known").write_text(f"far.example {key}")

    def config_write(self, key):
        text = SSH_CONFIG.format(folder=self.folder, port=self.port, user=self.user)
        (self.folder / "config").write_text(text.replace("/user\n", f"/{key}\n"))

    def words(self, *words):
        return [DSEC, "-H", f"ssh:far.example:{self.socket}", *words]

    def far(self, *words, **options):
        return subprocess.run(self.words(*words), env=self.environment, capture_output=True,
                              timeout=RUN_S, **options)

    def test_everything_works_and_no_connection_is_left(self):
        data = os.urandom(3 << 20)
        ran = self.far("run", "-i", "small", "--", PROGRAM, "copy", input=data)
        self.assertEqual((ran.returncode, ran.stderr, ran.stdout == data), (0, b"", True),
                         (self.folder / "sshd.log").read_text())
        sandbox = self.far("create", "small", "-q").stdout.decode().strip()
        (self.folder / "file").write_bytes(data)
        self.assertEqual(self.far("cp", self.folder / "file", f"{sandbox}:/tmp/").returncode, 0)
        self.assertTrue(self.far("cat", f"{sandbox}:/tmp/file").stdout == data)
        self.assertEqual(self.far("exec", sandbox, "--", PROGRAM, "exit", "9").returncode, 9)
        self.assertEqual(self.far("rm", sandbox).returncode, 0)
        self.assertEqual(self.good("ps", "-q"), "")
        self.assertTrue(eventually(lambda: not children(self.sshd.pid)))

    def test_a_connection_that_sshd_loses_is_made_anew_and_the_program_goes_on(self):
        sandbox = self.create()
        child = subprocess.Popen(self.words("exec", sandbox, "--", PROGRAM, "slow", "2"),
                                 env=self.environment, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.read(6), b"begun\n")
        for pid in children(self.sshd.pid):
            os.kill(pid, signal.SIGKILL)
        out, said = child.communicate(timeout=RUN_S)
        self.assertEqual((out, child.returncode, said), (b"ended\n", 7, b""))
        log = (self.folder / "sshd.log").read_text()
        self.assertTrue(eventually(lambda: not children(self.sshd.pid)), log)

    def test_keys_that_are_not_known_are_refused_and_nobody_is_asked(self):
        began = time.monotonic()
        self.config_write("other")
        ran = self.far("ps", stdin=subprocess.DEVNULL)
        self.assertEqual(ran.returncode, 125, ran)
        self.assertIn(b"Permission denied", ran.stderr)
        self.config_write("user")
        self.known_write((self.folder / "other.pub").read_text())
        ran = self.far("ps", stdin=subprocess.DEVNULL)
        self.assertEqual(ran.returncode, 125, ran)
        self.assertIn(b"Host key verification failed", ran.stderr)
        self.assertLess(time.monotonic() - began, RUN_S)
        self.assertTrue(eventually(lambda: not children(self.sshd.pid)))


if __name__ == "__main__":
    unittest.main()
