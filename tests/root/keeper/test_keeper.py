#!/usr/bin/env python3
"""The keeper around an engine that is told what to do (fake_engine.c). $DSECD is that dsecd."""
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import unittest
from pathlib import Path

DSECD = os.environ["DSECD"]
LIMIT_S = 60
SMALL = ("--shards", "1", "--sandboxes-max", "64")  # several fit on every kernel


def cgroup_mount():
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if " - cgroup2 " in line and fields[3] == "/" and fields[5].startswith("rw"):
            return Path(fields[4])
    raise unittest.SkipTest("no cgroup2 mount")


CGROUPS = cgroup_mount()


class Lines:
    """Lines from a pipe; waiting for one is bounded."""

    def __init__(self, fd):
        self.fd, self.rest = fd, b""

    def next(self, limit_s=LIMIT_S):
        until = time.monotonic() + limit_s
        while b"\n" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"no line within {limit_s} s")
            got = os.read(self.fd, 4096)
            if not got:
                raise EOFError
            self.rest += got
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()


class Dsecd:
    """One keeper and its engines. Everything it could leave is removed by close()."""

    count = 0

    def __init__(self, *arguments, name=None, fds=()):
        Dsecd.count += 1
        self.name = name or f"kt{os.getpid()}-{Dsecd.count}"
        self.cgroup = CGROUPS / f"dsec-{self.name}"
        self.socket = f"/run/dsec/{self.name}.sock"
        command_read, self.commands = os.pipe()
        event_read, event_write = os.pipe()
        log_read, log_write = os.pipe()
        self.pipes = [command_read, self.commands, event_read, log_read]
        self.process = subprocess.Popen(
            [DSECD, "--instance", self.name, *arguments],
            pass_fds=(command_read, event_write, *fds),
            stderr=log_write,
            env={**os.environ, "FAKE_COMMANDS": str(command_read), "FAKE_EVENTS": str(event_write)},
        )
        os.close(event_write)
        os.close(log_write)
        self.events, self.log = Lines(event_read), Lines(log_read)

    def tell(self, line):
        os.write(self.commands, line.encode() + b"\n")

    def ask(self, line):
        self.tell(line)
        return self.events.next()

    def event(self, pattern, line=None):
        line = line or self.events.next()
        match = re.fullmatch(pattern, line)
        if not match:
            raise AssertionError(f"{line!r} does not match {pattern!r}")
        return match

    def started(self):
        return self.event(r"start (\d+) (\d+) (\d+) (\S+) (\S+) (\S+)")

    def logged(self, pattern):
        while True:
            match = re.search(pattern, self.log.next())
            if match:
                return match

    def wait(self, limit_s=LIMIT_S):
        return self.process.wait(limit_s)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for folder in sorted(self.cgroup.glob("**/cgroup.procs"), reverse=True):
            for pid in folder.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            wait_for(lambda at=folder: not at.read_text(), "a dead cgroup")
            folder.parent.rmdir()
        for fd in self.pipes:
            os.close(fd)


def wait_for(condition, what):
    until = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"no {what} within {LIMIT_S} s")
        time.sleep(0.002)


def gone(pid):
    """Neither alive nor a zombie that somebody must reap; our own pids are never reused so soon."""
    return not Path(f"/proc/{pid}").exists()


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


class KeeperTest(unittest.TestCase):
    def dsecd(self, *arguments, name=None, fds=()):
        d = Dsecd(*arguments, name=name, fds=fds)
        self.addCleanup(d.close)
        return d

    def assert_cleaned_up_after(self, d):
        """An engine that did not end by itself left something, and no other one followed."""
        self.assertTrue(os.path.exists(d.socket + ".swept"))

    def assert_nothing_left(self, d):
        if os.path.exists(d.socket + ".swept"):
            os.unlink(d.socket + ".swept")
        self.assertFalse(d.cgroup.exists())
        self.assertFalse(os.path.lexists(d.socket))
        self.assertFalse(Path("/run/dsec", d.name).exists())


class Restart(KeeperTest):
    def test_killed_engine_is_restarted_behind_the_same_socket(self):
        d = self.dsecd()
        first = int(d.started()[1])
        before = os.stat(d.socket).st_ino
        os.kill(first, signal.SIGKILL)
        second = int(d.started()[1])
        self.assertNotEqual(first, second)
        self.assertEqual(os.stat(d.socket).st_ino, before)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(d.socket)
        self.assertEqual(d.stop(), 0)
        self.assert_nothing_left(d)

    def test_clients_can_connect_while_no_engine_lives(self):
        d = self.dsecd()
        d.started()
        d.tell("exit 75")
        d.logged("another in 100 ms")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(d.socket)
        d.started()
        self.assertEqual(d.stop(), 0)

    def test_back_off_doubles_from_100_ms(self):
        d = self.dsecd()
        at = int(d.started()[2])
        for backoff_ms in (100, 200, 400, 800):
            d.tell("exit 75")
            self.assertEqual(int(d.logged(r"another in (\d+) ms")[1]), backoff_ms)
            then, at = at, int(d.started()[2])
            self.assertGreaterEqual(at - then, backoff_ms)
        self.assertEqual(d.stop(), 0)

    def test_stop_while_backing_off_ends_at_once(self):
        d = self.dsecd()
        for _ in range(4):
            d.started()
            d.tell("exit 75")
        d.logged("another in 800 ms")
        begin = time.monotonic()
        self.assertEqual(d.stop(), 0)
        self.assertLess(time.monotonic() - begin, 0.6)
        self.assert_cleaned_up_after(d)
        self.assert_nothing_left(d)

    def test_other_exit_statuses_end_the_keeper_with_them(self):
        for status in (0, 1, 3):
            d = self.dsecd()
            d.started()
            d.tell(f"exit {status}")
            self.assertEqual(d.wait(), status)
            self.assert_nothing_left(d)


class Stop(KeeperTest):
    def test_sigterm_and_sigint_reach_the_engine_and_sighup_does_nothing(self):
        for number, name in ((signal.SIGTERM, "TERM"), (signal.SIGINT, "INT")):
            d = self.dsecd()
            d.started()
            d.process.send_signal(signal.SIGHUP)
            self.assertEqual(d.ask("names"), "names 0 -")
            d.process.send_signal(number)
            d.event(f"stop {name}")
            self.assertEqual(d.wait(), 0)
            self.assert_nothing_left(d)

    def test_engine_that_does_not_stop_is_killed_after_the_timeout(self):
        d = self.dsecd("--stop-timeout", "1")
        d.started()
        d.event("hangs", d.ask("hang"))
        begin = time.monotonic()
        self.assertEqual(d.stop(), 1)
        self.assertGreaterEqual(time.monotonic() - begin, 1)
        d.event("stop TERM")
        d.logged("did not end within 1 s: killed")
        self.assert_cleaned_up_after(d)
        self.assert_nothing_left(d)

    def test_engine_asked_to_stop_before_it_listened_ends_clean_and_is_not_restarted(self):
        d = self.dsecd()
        d.started()
        d.event("deaf", d.ask("deafen"))
        self.assertEqual(d.stop(), 0)
        d.logged("died by SIGTERM: the keeper ends")
        self.assert_nothing_left(d)

    def test_engine_that_others_ask_to_stop_before_it_listened_is_restarted(self):
        d = self.dsecd()
        engine = int(d.started()[1])
        d.event("deaf", d.ask("deafen"))
        os.kill(engine, signal.SIGTERM)
        d.started()
        self.assertEqual(d.stop(), 0)

    def test_engine_of_a_killed_keeper_is_asked_to_stop(self):
        d = self.dsecd()
        engine = int(d.started()[1])
        d.process.kill()
        d.event("stop TERM")
        wait_for(lambda: gone(engine), "end of the engine")
        again = self.dsecd(name=d.name)
        again.started()
        self.assertEqual(again.stop(), 0)
        self.assert_nothing_left(again)

    def test_processes_left_are_named_and_the_root_stays_until_they_are_gone(self):
        d = self.dsecd()
        d.started()
        pid = int(d.event(r"child (\d+)", d.ask("cgroup"))[1])
        d.tell("exit 0")
        self.assertEqual(d.wait(), 1)
        d.logged(f"process {pid} .*fake_dsecd.* is left")
        self.assertTrue(d.cgroup.exists())
        self.assertFalse(os.path.lexists(d.socket))
        os.kill(pid, signal.SIGKILL)
        again = self.dsecd(name=d.name)
        again.started()
        self.assertEqual(again.stop(), 0)
        self.assert_nothing_left(again)

    def test_empty_cgroups_of_a_dead_engine_are_removed(self):
        d = self.dsecd()
        d.started()
        pid = int(d.event(r"child (\d+)", d.ask("cgroup"))[1])
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: state(pid) == "Z", "dead child")
        d.tell("exit 0")
        self.assertEqual(d.wait(), 0)
        self.assert_nothing_left(d)


class Orphans(KeeperTest):
    def test_exit_status_of_an_orphan_can_be_asked(self):
        d = self.dsecd()
        d.started()
        for status in (0, 7, 255):
            pid = int(d.event(r"orphan (\d+)", d.ask(f"orphan {status}"))[1])
            wait_for(lambda pid=pid: gone(pid), "reaped orphan")
            self.assertEqual(d.ask(f"ask {pid}"), f"ask {status} 1")
        self.assertEqual(d.stop(), 0)

    def test_child_of_a_dead_engine_becomes_the_keepers(self):
        d = self.dsecd()
        engine = int(d.started()[1])
        pid = int(d.event(r"child (\d+)", d.ask("child"))[1])
        os.kill(engine, signal.SIGKILL)
        d.started()
        self.assertEqual(d.ask(f"ask {pid}"), "ask ENOENT")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: gone(pid), "reaped orphan")
        self.assertEqual(d.ask(f"ask {pid}"), "ask -9 1")
        self.assertEqual(d.stop(), 0)

    def test_death_is_known_to_whoever_saw_it_by_a_pidfd(self):
        d = self.dsecd()
        engine = int(d.started()[1])
        pid = int(d.event(r"child (\d+)", d.ask("child"))[1])
        os.kill(engine, signal.SIGKILL)
        d.started()
        d.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: state(d.process.pid) == "T", "stopped keeper")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: state(pid) == "Z", "dead child")
        self.assertEqual(d.ask(f"ask_stopped {pid}"), "ask found")
        self.assertEqual(d.stop(), 0)

    def test_pid_that_never_was_ours_is_not_found(self):
        d = self.dsecd()
        d.started()
        self.assertEqual(d.ask("ask 1"), "ask ENOENT")
        self.assertEqual(d.stop(), 0)


class Parking(KeeperTest):
    def test_parked_descriptor_survives_its_engine(self):
        d = self.dsecd()
        engine = int(d.started()[1])
        self.assertEqual(d.ask("put exec/41.7/stdout"), "put ok")
        self.assertEqual(d.ask("put exec/41.7/stdout"), "put EEXIST")
        os.kill(engine, signal.SIGKILL)
        d.started()
        self.assertEqual(d.ask("names"), "names 1 exec/41.7/stdout")
        self.assertEqual(d.ask("get exec/41.7/stdout"), "get exec/41.7/stdout cloexec")
        self.assertEqual(d.ask("drop exec/41.7/stdout"), "drop ok")
        self.assertEqual(d.ask("get exec/41.7/stdout"), "get ENOENT")
        self.assertEqual(d.ask("drop exec/41.7/stdout"), "drop ENOENT")
        self.assertEqual(d.stop(), 0)

    def test_what_an_engine_parked_as_its_last_act_is_kept(self):
        d = self.dsecd()
        engine = int(d.started()[1])
        d.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: state(d.process.pid) == "T", "stopped keeper")
        d.tell("last_act 150")
        wait_for(lambda: state(engine) == "Z", "dead engine")
        d.process.send_signal(signal.SIGCONT)
        d.started()
        self.assertEqual(d.ask("names"), "names 150 late149")
        self.assertEqual(d.stop(), 0)

    def test_next_engine_holds_no_parked_descriptor(self):
        d = self.dsecd()
        first = int(d.started()[1])
        self.assertEqual(d.ask("names"), "names 0 -")  # by now it has opened all it will
        before = self.descriptors(first)
        for name in ("a", "b", "c"):
            self.assertEqual(d.ask(f"put {name}"), "put ok")
        os.kill(first, signal.SIGKILL)
        second = int(d.started()[1])
        self.assertEqual(d.ask("names"), "names 3 c")
        self.assertEqual(self.descriptors(second), before)
        self.assertEqual(d.stop(), 0)

    @staticmethod
    def descriptors(pid):
        return len(os.listdir(f"/proc/{pid}/fd"))

    def test_1024_descriptors_fit_and_one_more_is_refused(self):
        d = self.dsecd()
        d.started()
        self.assertEqual(d.ask("fill p"), "fill 1024 ENOSPC")
        self.assertEqual(d.ask("drop p0"), "drop ok")
        self.assertEqual(d.ask("put q"), "put ok")
        self.assertEqual(d.stop(), 0)

    def test_name_of_64_bytes_fits_and_of_65_does_not(self):
        d = self.dsecd()
        d.started()
        self.assertEqual(d.ask("put " + "n" * 64), "put ok")
        self.assertEqual(d.ask("put " + "n" * 65), "put EINVAL")
        self.assertEqual(d.ask("get " + "n" * 64), f"get {'n' * 64} cloexec")
        self.assertEqual(d.stop(), 0)

    def test_garbage_from_an_engine_is_refused_and_costs_no_descriptor(self):
        d = self.dsecd()
        d.started()
        # The keeper answers: it is through with the start, and holds nothing for it any more.
        self.assertEqual(d.ask("names"), "names 0 -")
        before = self.descriptors(d.process.pid)
        self.assertEqual(d.ask("garbage"), "garbage ENOSYS EBADF EINVAL")
        self.assertEqual(d.ask("names"), "names 0 -")
        self.assertEqual(self.descriptors(d.process.pid), before)
        self.assertEqual(d.stop(), 0)

    def test_engine_that_fetches_no_answers_does_not_block_the_keeper(self):
        d = self.dsecd()
        d.started()
        self.assertEqual(d.ask("flood"), "flood 20000")
        self.assertEqual(d.ask("put after"), "put ok")
        self.assertEqual(d.stop(), 0)


class Instances(KeeperTest):
    def test_private_engines_of_killed_keepers_are_removed_by_the_next_one(self):
        lifeline, end = os.pipe()
        for fd in (lifeline, end):
            self.addCleanup(os.close, fd)

        def private(number):
            d = self.dsecd(*SMALL, "--lifeline", str(lifeline), fds=(lifeline,),
                           name=f"private-{os.getpid()}-{number}")
            self.addCleanup(Path(d.socket + ".swept").unlink, missing_ok=True)
            return d, int(d.started()[1])

        def age(d):
            os.utime(f"/run/dsec/{d.name}/lock", (1, 1))

        (dead, dead_engine), (young, young_engine), (living, _) = map(private, range(3))
        for d, engine in ((dead, dead_engine), (young, young_engine)):
            d.process.kill()
            d.process.wait()
            try:
                os.kill(engine, signal.SIGKILL)
            except ProcessLookupError:
                pass  # its keeper's end was its own
            wait_for(lambda pid=engine: gone(pid), "end of an engine")
        age(dead)
        age(living)
        following, _ = private(3)
        self.assertTrue(os.path.exists(dead.socket + ".swept"))
        self.assert_nothing_left(dead)
        # Of one that began just now, or lives, nothing is touched.
        for d in (young, living):
            self.assertTrue(d.cgroup.exists())
            self.assertTrue(Path("/run/dsec", d.name, "lock").exists())
            self.assertFalse(os.path.exists(d.socket + ".swept"))
        age(young)
        last, _ = private(4)
        self.assert_nothing_left(young)
        for d in (living, following, last):
            self.assertEqual(d.stop(), 0)

    def test_two_instances_live_side_by_side(self):
        one, two = self.dsecd(*SMALL), self.dsecd(*SMALL)
        first, second = one.started(), two.started()
        self.assertNotEqual(first[3], second[3])
        self.assertEqual(first[4], one.name)
        self.assertTrue(one.cgroup.exists() and two.cgroup.exists())
        self.assertEqual(one.stop(), 0)
        self.assert_nothing_left(one)
        self.assertEqual(two.ask("names"), "names 0 -")
        self.assertEqual(two.stop(), 0)

    def test_second_dsecd_of_an_instance_is_refused_by_name(self):
        d = self.dsecd()
        d.started()
        second = self.dsecd(name=d.name)
        self.assertEqual(second.wait(), 2)
        second.logged(f"instance {d.name}: another dsecd runs it")
        self.assertEqual(d.ask("names"), "names 0 -")
        self.assertTrue(os.path.lexists(d.socket) and d.cgroup.exists())
        self.assertEqual(d.stop(), 0)

    def test_instance_is_taken_while_the_engine_of_a_killed_keeper_lives(self):
        d = self.dsecd()
        engine = int(d.started()[1])
        d.event("hangs", d.ask("hang"))
        self.assertEqual(d.ask("stop_keeper"), "killed")
        d.wait()
        second, remover = self.dsecd(name=d.name), (DSECD, "--uninstall", "--instance", d.name)
        self.assertEqual((second.wait(), subprocess.run(remover).returncode), (2, 2))
        os.kill(engine, signal.SIGKILL)
        wait_for(lambda: gone(engine), "end of the engine")
        self.assertEqual(subprocess.run(remover).returncode, 0)
        self.assertFalse(d.cgroup.exists() or os.path.lexists(d.socket))
        third = self.dsecd(name=d.name)
        third.started()
        self.assertEqual(third.stop(), 0)
        self.assert_nothing_left(third)

    def test_uid_range_is_kept_over_a_crash(self):
        d, other = self.dsecd(*SMALL), self.dsecd(*SMALL)
        started, other_uid = d.started(), other.started()[3]
        engine, uid = int(started[1]), started[3]
        d.process.kill()
        wait_for(lambda: gone(engine), "end of the engine")
        self.assertEqual(other.stop(), 0)
        again = self.dsecd(*SMALL, name=d.name)
        self.assertEqual(again.started()[3], uid)
        self.assertNotEqual(uid, other_uid)
        self.assertEqual(again.stop(), 0)

    def test_engine_starts_with_default_signals_and_an_own_name(self):
        d = self.dsecd()
        started = d.started()
        self.assertEqual((started[5], started[6]), ("open", "default"))
        self.assertEqual(d.stop(), 0)


class Socket(KeeperTest):
    def test_mode_is_0600_unless_told(self):
        for arguments, mode in ((), 0o600), (("--socket-mode", "666"), 0o666):
            d = self.dsecd(*arguments)
            d.started()
            self.assertEqual(os.stat(d.socket).st_mode & 0o777, mode)
            self.assertEqual(d.stop(), 0)

    def test_socket_that_somebody_listens_on_is_not_taken(self):
        path = f"/run/kt{os.getpid()}.sock"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            self.addCleanup(os.unlink, path)
            server.listen(1)
            d = self.dsecd("--socket", path)
            self.assertEqual(d.wait(), 2)
            d.logged("somebody listens on it")
            self.assertTrue(os.path.lexists(path))
            self.assert_nothing_left(d)

    def test_stale_socket_is_replaced(self):
        path = f"/run/kt{os.getpid()}.sock"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
        d = self.dsecd("--socket", path)
        d.started()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
        self.assertEqual(d.stop(), 0)
        self.assertFalse(os.path.lexists(path))

    def test_file_that_is_no_socket_is_left_alone(self):
        path = Path(f"/run/kt{os.getpid()}.file")
        path.write_text("mine")
        self.addCleanup(path.unlink)
        d = self.dsecd("--socket", str(path))
        self.assertEqual(d.wait(), 2)
        self.assertEqual(path.read_text(), "mine")

    def test_socket_of_a_successor_is_not_removed(self):
        d = self.dsecd()
        d.started()
        os.unlink(d.socket)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(d.socket)
            self.addCleanup(os.unlink, d.socket)
            self.assertEqual(d.stop(), 0)
            self.assertTrue(os.path.lexists(d.socket))


class Refusal(unittest.TestCase):
    def run_dsecd(self, *command):
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def test_kernel_before_6_12_is_refused_with_the_remedy(self):
        told = self.run_dsecd("setarch", "--uname-2.6", DSECD, "--instance", "kt-old")
        self.assertEqual(told.returncode, 2)
        self.assertRegex(told.stderr, r"Linux 2\.6\.\S+ is too old, 6\.12 is needed: use Debian 13,")
        self.assertIn("Debian 12 with the backports kernel", told.stderr)

    def test_other_users_than_root_are_refused(self):
        told = self.run_dsecd("setpriv", "--reuid=65534", DSECD, "--instance", "kt-user")
        self.assertEqual(told.returncode, 2)
        self.assertIn("must be started by root", told.stderr)

    def test_program_that_is_not_there_is_refused_by_its_path(self):
        for option in ("--launcher", "--importer"):
            for path, why in (("/nope", "No such file"), ("/etc", "Permission denied"),
                              ("/etc/passwd", "Permission denied")):
                told = self.run_dsecd(DSECD, "--instance", "kt-fit", option, path)
                self.assertEqual(told.returncode, 2, told.stderr)
                self.assertIn(f"{option} {path}: {why}", told.stderr)

    def test_option_that_does_not_fit_is_refused_and_a_default_is_reduced(self):
        limits = ["prlimit", "--nofile=1024:1024"]
        told = self.run_dsecd(
            *["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"], *limits,
            *[DSECD, "--instance", "kt-fit", "--execs-max", "2048", "--clients-max", "256"],
        )
        self.assertEqual(told.returncode, 2)
        self.assertRegex(told.stderr, r"--execs-max 2048 .* need \d+ descriptors, RLIMIT_NOFILE is 1024")


def run_privately():
    """Again, with a /run of our own: locks and uid ranges of engines at work here do not matter."""
    script = 'mount -t tmpfs dsec-test /run && exec "$@"'
    command = ["unshare", "-m", "--propagation", "private", "sh", "-ec", script, "sh"]
    os.environ["KEEPER_TEST_PRIVATE"] = "1"
    os.execvp(command[0], [*command, sys.executable, *sys.argv])


if __name__ == "__main__":
    if "KEEPER_TEST_PRIVATE" not in os.environ:
        run_privately()
    unittest.main(argv=[sys.argv[0], "-v"])
