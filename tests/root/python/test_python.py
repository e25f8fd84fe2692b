#!/usr/bin/env python3
"""dsec (blocking) against a real engine."""
import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

from fixture import PythonTest, SLOWNESS, eventually

import dsec
from dsec._library import Library


class BlockingTest(PythonTest):
    def setUp(self):
        self.client = dsec.connect(self.address)
        self.addCleanup(self.client.close)
        self.sandbox = self.client.create("small", labels={"test": self.id()})
        self.addCleanup(self.sandbox.destroy)

    def sh(self, text, **options):
        return self.sandbox.exec(["sh", "-c", text], **options)

    # ---- programs ----

    def test_output_is_the_bytes_that_were_written(self):
        result = self.sandbox.exec(["python3", "-c", (
            "import sys; sys.stdout.buffer.write(b'a\\0\\xff\\xc3(\\r\\n'); "
            "sys.stderr.buffer.write(bytes(range(256))); sys.exit(3)")])
        self.assertEqual(result.stdout, b"a\0\xff\xc3(\r\n")
        self.assertEqual(result.stderr, bytes(range(256)))
        self.assertEqual((result.reason, result.code, result.signal, result.ok, result.truncated),
                         ("exit", 3, None, False, False))
        self.assertGreater(result.wall, 0)

    def test_how_a_program_ended_is_a_result(self):
        three = "sleep 60 & setsid sleep 60 & echo kept; wait"
        for text, reason, code, number, killed, options in (
                ("exit 0", "exit", 0, None, 0, {}), ("exit 127", "exit", 127, None, 0, {}),
                ("kill -9 $$", "signal", None, 9, 0, {}),
                (three, "timeout", None, 9, 3, {"timeout": 0.5 * SLOWNESS}),
                (three, "idle-timeout", None, 9, 3, {"idle_timeout": 0.5 * SLOWNESS})):
            result = self.sh(text, **options)
            self.assertEqual((result.reason, result.code, result.signal), (reason, code, number))
            self.assertEqual(result.processes_killed, killed, text)
            self.assertEqual(result.stdout, b"kept\n" if "kept" in text else b"")
        absent = self.sandbox.exec(["no-such-program"])
        self.assertEqual((absent.reason, absent.code, absent.status.step, absent.status.blame),
                         ("not-started", 127, "argv0", "guest"))
        folder = self.sandbox.exec(["true"], cwd="/none")
        self.assertEqual((folder.reason, folder.status.step), ("not-started", "cwd"))

    def test_options_reach_the_program(self):
        result = self.sh("echo $A $B; pwd; id -u; ulimit -n; cat; echo err >&2", cwd="/tmp",
                         env={"A": "1", "B": "\u00e4"}, user="0", rlimits={"nofile": (64, 128)},
                         input=b"typed\0", merge_stderr=True)
        self.assertEqual(result.stdout, "1 \u00e4\n/tmp\n0\n64\ntyped\0err\n".encode())
        self.assertEqual(result.stderr, b"")

    def test_head_and_tail_are_kept_and_the_rest_counted(self):
        result = self.sh("head -c 3000000 /dev/zero; echo end", head_bytes=10, tail_bytes=6)
        kept = result.output(1)
        self.assertEqual((kept.head, kept.tail, kept.total_bytes, kept.truncated),
                         (bytes(10), b"\0\0end\n", 3000004, True))
        self.assertTrue(result.truncated)

    def test_a_program_that_writes_too_much_is_ended_for_that(self):
        result = self.sh("yes", output_limit_bytes=100_000, head_bytes=4, tail_bytes=4)
        self.assertEqual((result.reason, result.output(1).head), ("output-limit", b"y\ny\n"))

    def test_large_input_passes_through_and_may_be_refused(self):
        data = os.urandom(700_000)
        self.assertEqual(self.sandbox.exec(["cat"], input=data, head_bytes=1 << 20).stdout, data)
        self.assertEqual(self.sh("exit 4", input=data).code, 4)

    def test_streams_input_signals_and_the_end(self):
        with self.sandbox.start(["sh", "-c", "echo err >&2; cat; exit 5"], stdin=True) as process:
            process.write(b"first ")
            process.write(b"second")
            process.close_stdin()
            chunks = list(process)
            self.assertEqual(b"".join(c for c in chunks if c.stream == 1), b"first second")
            self.assertEqual(b"".join(c for c in chunks if c.stream == 2), b"err\n")
            result = process.wait()
            self.assertEqual((result.code, result.stdout), (5, b"first second"))
            self.assertIs(process.wait(), result)
            with self.assertRaises((BrokenPipeError, LookupError, dsec.DsecError)):
                process.write(b"more")
        with self.sandbox.start(["sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep .1; done"
                                 ]) as process:
            self.assertEqual(next(iter(process.stdout)), b"up\n")
            process.signal(signal.SIGTERM)
            self.assertEqual(process.wait().code, 9)

    def test_what_is_left_running_is_killed(self):
        with self.sandbox.start(["sh", "-c", "sleep 7777 & exec sleep 7777"]) as process:
            number = process.exec
        row, = [row for row in self.sandbox.execs() if row.exec == number]
        self.assertEqual(row.reason, "killed")
        self.assertEqual(self.sandbox.inspect().execs_running, 0)

    def test_a_stream_is_held_back_and_memory_bounded(self):
        """50 MB: what the program may write ahead is what was read and its windows."""
        with self.sandbox.start(["sh", "-c", "head -c 50000000 /dev/zero; echo done >&2"]) as process:
            first = next(iter(process.stdout))
            time.sleep(0.3)
            row, = [row for row in self.sandbox.execs() if row.exec == process.exec]
            self.assertLess(row.stdout_bytes, 1 << 20)
            count = len(first) + sum(len(chunk) for chunk in process.stdout)
            self.assertEqual(process.stderr.read(), b"done\n")
        self.assertEqual(count, 50_000_000)

    def test_two_threads_read_the_two_streams_of_one_program(self):
        text = "for i in 0 1 2 3 4 5 6 7; do head -c 300000 /dev/zero; head -c 9 /dev/zero >&2; done"
        with self.sandbox.start(["sh", "-c", text]) as process:
            read = {}
            threads = [threading.Thread(target=lambda s=s: read.update({s: len(s.read())}))
                       for s in (process.stdout, process.stderr)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(read, {process.stdout: 2_400_000, process.stderr: 72})

    def test_a_terminal_has_a_size_and_types(self):
        with self.sandbox.start(["sh", "-c", "stty size; read x; stty size; echo got $x"], tty=True,
                                stdin=True, rows=7, columns=70) as process:
            self.assertEqual(next(iter(process)), b"7 70\r\n")
            process.resize(8, 80)
            process.write(b"abc\n")
            self.assertIn(b"8 80\r\ngot abc\r\n", process.stdout.read())

    def test_attach_goes_on_from_an_offset_and_kills_nothing(self):
        number = self.sandbox.start_detached(["sh", "-c", "echo 0123456789; sleep 3333"])
        self.assertTrue(eventually(lambda: self.sandbox.execs()[0].stdout_bytes == 11))
        with self.sandbox.attach(number, stdout=4) as process:
            self.assertEqual(next(iter(process.stdout)), b"456789\n")
        with self.sandbox.attach(number) as process:
            process.signal(signal.SIGKILL)
            result = process.wait()
        self.assertEqual((result.reason, result.signal), ("signal", 9))
        with self.assertRaises(dsec.DsecAbsentError):
            self.sandbox.attach(99).wait()
        with self.assertRaises(dsec.DsecAbsentError):
            self.sandbox.attach(99).stdout.read()

    # ---- errors ----

    def test_every_error_is_typed_and_doubles_as_a_built_in(self):
        cases = [
            (lambda: self.client.create("no-such-image"), dsec.DsecAbsentError, LookupError, "caller"),
            (lambda: self.client.create("small", network="internet"), dsec.DsecInvalidError,
             ValueError, "caller"),
            (lambda: self.client.create("small", pids_max=-1), dsec.DsecInvalidError, ValueError,
             "caller"),
            (lambda: self.sandbox.exec("true"), dsec.DsecInvalidError, ValueError, "caller"),
            (lambda: self.sandbox.exec([]), dsec.DsecInvalidError, ValueError, "caller"),
            (lambda: self.sandbox.exec(["true"], timeout=-1), dsec.DsecInvalidError, ValueError,
             "caller"),
            (lambda: self.sandbox.exec(["true"], cwd="/a\0b"), dsec.DsecInvalidError, ValueError,
             "caller"),
            (lambda: self.client.destroy(), dsec.DsecInvalidError, ValueError, "caller"),
            (lambda: self.client.sandbox("zz"), dsec.DsecInvalidError, ValueError, "caller"),
            (lambda: self.client.sandbox("0" * 25 + "1").exec(["true"]), dsec.DsecAbsentError,
             LookupError, "caller"),
            (lambda: self.sandbox.read("/none"), dsec.DsecFailedError, FileNotFoundError, "caller"),
            (lambda: self.sandbox.read("/tmp"), dsec.DsecFailedError, IsADirectoryError, "caller"),
            (lambda: self.sandbox.mkdir("/tmp"), dsec.DsecFailedError, FileExistsError, "caller"),
            (lambda: self.sandbox.write("/proc/version", b""), dsec.DsecFailedError, OSError, None),
            (lambda: self.sandbox.exec(["sleep", "9"], request_timeout=0.3),
             dsec.DsecDeadlineError, TimeoutError, None),
            (lambda: self.client.create("small", network="none").port(80), dsec.DsecUnsupportedError, NotImplementedError, None),
            (lambda: self.sandbox.signal(77, signal.SIGTERM), dsec.DsecAbsentError, LookupError, None),
            (lambda: dsec.connect("unix:/no/such/socket"), dsec.DsecLostError, FileNotFoundError,
             "platform"),
            (lambda: dsec.connect("nonsense:"), dsec.DsecInvalidError, ValueError, "caller"),
        ]
        for at, (ask, kind, built_in, blame) in enumerate(cases):
            with self.subTest(case=at):
                with self.assertRaises(kind) as raised:
                    ask()
                error = raised.exception
                self.assertIsInstance(error, built_in)
                self.assertIsInstance(error, dsec.DsecError)
                self.assertTrue(str(error))
                if blame:
                    self.assertEqual(error.blame, blame)
                self.assertEqual(isinstance(error, dsec.DsecPlatformError), error.blame == "platform")
                again = pickle.loads(pickle.dumps(error))
                self.assertEqual((type(again), str(again), again.code), (type(error), str(error),
                                                                         error.code))

    def test_each_code_has_a_class_and_each_errno_its_built_in(self):
        built_in = {"invalid": ValueError, "denied": PermissionError, "absent": LookupError,
                    "unsupported": NotImplementedError, "deadline": TimeoutError,
                    "lost": ConnectionError, "failed": OSError}
        for code in dsec.Code:
            for blame in dsec.Blame:
                for number, kind in ((0, Exception), (errno.ENOENT, FileNotFoundError),
                                     (errno.EPIPE, BrokenPipeError), (errno.ENOSPC, OSError)):
                    error = dsec.values.Status(code, blame, number, "a.b", "why", 0.5).exception("x")
                    self.assertIsInstance(error, built_in.get(code, dsec.DsecError))
                    if code == "failed":
                        self.assertIsInstance(error, kind)
                        self.assertEqual(error.errno, number or None)
                    self.assertEqual(isinstance(error, dsec.DsecPlatformError),
                                     blame == "platform")
                    self.assertEqual((error.code, error.blame, error.error, error.step,
                                      error.retry_after), (code, blame, number, "a.b", 0.5))
                    self.assertEqual(repr(pickle.loads(pickle.dumps(error))), repr(error))

    def test_what_an_older_library_lacks_is_unsupported(self):
        older = Library.__new__(Library)
        with self.assertRaises(dsec.DsecUnsupportedError):
            older.dsec_exec(None)
        with self.assertRaises(AttributeError):
            older.nonsense

    def test_following_ends_by_cancel_and_the_program_runs_on(self):
        with self.sandbox.start(["sleep", "3333"]) as process:
            process.cancel()
            with self.assertRaises(dsec.DsecCancelledError):
                process.wait()
        self.assertEqual(self.sandbox.inspect().execs_running, 1)
        self.sandbox.signal(process.exec, signal.SIGKILL, everyone=True)
        self.assertTrue(eventually(lambda: self.sandbox.inspect().execs_running == 0))

    def test_one_that_is_asked_for_again_runs_once(self):
        again = dsec.request_id()
        results = [self.sh("echo x >> /tmp/once; cat /tmp/once", request_id=again)
                   for _ in range(3)]
        self.assertEqual([result.stdout for result in results], [b"x\n"] * 3)
        self.assertEqual({result.exec for result in results}, {results[0].exec})
        with self.assertRaises(dsec.DsecConflictError):
            self.sh("another", request_id=again)

    def test_a_refusal_says_when_to_ask_again(self):
        made = self.client.create_many(200, "small")
        try:
            refused = [one for one in made if isinstance(one, dsec.DsecError)]
            self.assertEqual(len(made), 200)
            self.assertGreaterEqual(len(refused), 140)
            self.assertEqual({type(one) for one in refused}, {type(refused[0])})
            self.assertIsInstance(refused[0], dsec.DsecRefusedError)
            self.assertGreater(refused[0].retry_after, 0)
        finally:
            self.client.destroy([one.id for one in made if isinstance(one, dsec.Sandbox)])

    def test_asked_once_a_refusal_is_raised_and_else_it_is_asked_until_there_is_room(self):
        made = self.client.create_many(200, "small")
        held = [one for one in made if isinstance(one, dsec.Sandbox)]
        try:
            with self.assertRaises(dsec.DsecRefusedError):  # not in an hour
                self.client.create("small", request_timeout=3600, once=True)
            # All of them: a create is its id's shard's, and which that is nobody chooses.
            room = threading.Timer(0.2, self.client.destroy, [[one.id for one in held]])
            room.start()
            with self.client.create("small", request_timeout=60 * SLOWNESS, once=False) as late:
                self.assertEqual(late.exec(["true"]).code, 0)
            room.join()
            again = dsec.request_id()
            ran = [self.sandbox.exec(["sh", "-c", "echo >>/tmp/r; wc -l </tmp/r"], once=True,
                                     request_id=again).stdout.strip() for _ in range(2)]
            self.assertEqual(ran, [b"1", b"1"])
        finally:
            self.client.destroy([one.id for one in held])

    def test_a_forked_child_is_told_so_and_may_connect_anew(self):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                try:
                    self.client.list()
                    said = "nothing"
                except dsec.DsecForkedError as error:
                    said = f"{isinstance(error, RuntimeError)} {error.blame}"
                with dsec.connect(self.address) as anew:
                    said += f" {len(anew.list(labels={'test': self.id()}))}"
                os.write(writer, said.encode())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader) as said:
            self.assertEqual(said.read(), "True caller 1")
        self.assertEqual(len(self.client.list(labels={"test": self.id()})), 1)

    # ---- sandboxes ----

    def test_settings_rows_and_labels_are_told(self):
        with self.client.create("small", labels={"a": "1", "b": "\u00e4"}, ttl=500, idle_ttl=400,
                                hostname="there", env={"X": "y"}, pids_max=50,
                                on_disconnect="destroy", network="private") as sandbox:
            self.assertEqual((sandbox.settings.ttl, sandbox.settings.network,
                              sandbox.settings.destroy_on_disconnect), (500, "private", True))
            row, = self.client.list(labels={"a": "1"})
            self.assertEqual((row.id, row.image, row.labels, row.state),
                             (sandbox.id, "small", {"a": "1", "b": "\u00e4"}, "running"))
            sandbox.change(ttl=100, labels={"a": None, "c": "3"})
            seen = sandbox.inspect()
            self.assertEqual((seen.labels, seen.hostname, seen.cause),
                             ({"b": "\u00e4", "c": "3"}, "there", "none"))
            self.assertLessEqual(seen.ttl, 100)
            self.assertEqual(sandbox.exec(["sh", "-c", "hostname; echo $X"]).stdout, b"there\ny\n")
            sandbox.change(labels={"task.repository": "git.example/a/b"})
            self.assertEqual(self.client.fetched("/git.example/a/c/@v/list", [sandbox.id]), [])
            self.assertEqual(self.client.fetched("/git.example/a/b/@v/list", [sandbox.id]),
                             [sandbox.id])
            sandbox.change(labels={"task.repository": None})
            usage = sandbox.stats()
            self.assertGreater(usage.processes, 0)
            self.assertEqual((usage.execs_running, usage.execs_total), (0, 1))
            self.assertEqual([usage.id for usage in self.client.stats([sandbox.id])], [sandbox.id])
            self.assertGreater(self.client.check()["sandboxes"], 0)
            self.assertIn("container", self.client.capabilities().features)
        gone = self.client.sandbox(sandbox.id).inspect()
        self.assertEqual((gone.state, gone.cause), ("ended", "destroyed"))
        sandbox.destroy()  # once more is fine

    def test_a_port_of_a_sandbox_is_reached_with_its_token(self):
        import socket
        with self.client.create("small", network="private") as sandbox:
            serve = ("import _socket, os\ns = _socket.socket()\ns.bind(('127.0.0.1', 80))\n"
                     "s.listen()\nwhile True:\n  fd = s._accept()[0]\n"
                     "  os.write(fd, os.read(fd, 5))\n  os.close(fd)")
            with sandbox.start(["python3", "-c", serve]):
                way = sandbox.port(80, wait=20)
                host, port = way.address.rsplit(":", 1)
                with socket.create_connection((host, int(port)), timeout=20) as connection:
                    connection.sendall(way.token.encode() + b"\nhello")
                    self.assertEqual(connection.recv(5, socket.MSG_WAITALL), b"hello")

    def test_ctrl_c_ends_what_was_waited_for_and_leaves_nothing(self):
        program = ("import sys, dsec\n"
                   "client = dsec.connect(sys.argv[1])\n"
                   "sandbox = client.sandbox(sys.argv[2])\n"
                   "try:\n  sandbox.exec(['sleep', '8888'])\n"
                   "except KeyboardInterrupt:\n  print('interrupted')\n")
        child = subprocess.Popen([sys.executable, "-B", "-c", program, self.address, self.sandbox.id],
                                 stdout=subprocess.PIPE, env=os.environ | {
                                     "PYTHONPATH": os.pathsep.join(sys.path[:2])})
        self.assertTrue(eventually(lambda: self.sandbox.inspect().execs_running == 1))
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.communicate(timeout=60)[0], b"interrupted\n")
        self.assertEqual(self.sandbox.inspect().execs_running, 0)

    def test_a_closed_client_says_so_and_frees_what_it_held(self):
        client = dsec.connect(self.address)
        before = len(os.listdir("/proc/self/fd"))
        process = client.sandbox(self.sandbox.id).start(["sh", "-c", "echo x; sleep 5"])
        client.close()
        client.close()
        with self.assertRaises(ConnectionError):
            client.list()
        with self.assertRaises(ConnectionError):
            process.wait()
        self.assertLess(len(os.listdir("/proc/self/fd")), before)

    def test_a_client_outlives_the_engines_restart(self):
        self.assertEqual(self.sh("echo one").stdout, b"one\n")
        os.kill(self.child(), signal.SIGKILL)
        with self.assertRaises(dsec.DsecError) as raised:
            while True:
                self.sh("true")
        self.assertIn(raised.exception.code, ("absent", "unknown"))
        with self.client.create("small") as sandbox:
            self.assertEqual(sandbox.exec(["echo", "two"]).stdout, b"two\n")

    # ---- policies and phases ----

    def test_a_phase_brings_its_policy_and_an_exec_for_another_is_a_conflict(self):
        loaded = self.client.policy_load(
            "name: py-judge\nfiles: {readonly: [/srv/tests]}\n", name="py-judge")
        self.addCleanup(self.client.policy_remove, "py-judge")
        self.assertEqual((loaded.info.rules, loaded.rules[0].text),
                         (1, "files.readonly /srv/tests"))
        self.assertIn("mount", loaded.rules[0].levels)
        self.sh("mkdir -p /srv/tests; echo good >/srv/tests/t")
        self.assertEqual(self.sh("true", phase=1).phase_version, 1)
        with self.sandbox.start(["sleep", "1000"]) as process:
            moved = self.sandbox.phase("judge", version=1, policy="py-judge", kill_old=True)
            self.assertEqual(process.wait().reason, "phase-over")
        self.assertEqual((moved.name, moved.version, moved.policy, moved.killed),
                         ("judge", 2, "py-judge", 1))
        self.assertEqual(self.sh("echo bad 2>/dev/null >/srv/tests/t; cat /srv/tests/t").stdout,
                         b"good\n")
        with self.assertRaises(dsec.DsecConflictError):
            self.sh("true", phase=1)
        with self.assertRaises(dsec.DsecConflictError) as raised:
            self.sandbox.phase("again", version=1)
        self.assertEqual((raised.exception.result.name, raised.exception.result.version),
                         ("judge", 2))
        with self.assertRaises(dsec.DsecDeniedError):
            self.sandbox.phase("back", policy="default")
        seen = self.sandbox.inspect()
        self.assertEqual((seen.phase, seen.phase_version, seen.policy, seen.tainted),
                         ("judge", 2, "py-judge", frozenset()))
        rows = {row.id: row for row in self.client.list()}
        self.assertEqual(rows[self.sandbox.id].phase, "judge")

    def test_policies_are_checked_shown_listed_and_compared(self):
        with self.assertRaises(dsec.DsecInvalidError) as raised:
            self.client.policy_check("name: x\nfiles: {protct: [/a]}\n")
        self.assertIn("did you mean protect?", str(raised.exception.__notes__))
        checked = self.client.policy_check("name: x\nextends: verify\nphases: {a: verify}\n")
        self.assertEqual(checked.phases["a"], "verify")
        shown = self.client.policy_show("verify")
        self.assertIn(b"extends: swe-agent", shown.document)
        self.assertTrue(shown.info.ready_made)
        names = [row.name for row in self.client.policy_list()]
        self.assertIn("swe-agent", names)
        self.assertNotIn("x", names)
        narrower, wider = self.client.policy_diff("verify", "swe-agent")
        self.assertIn("files.verify /opt/tests", narrower)
        with self.assertRaises(dsec.DsecDeniedError):
            self.client.policy_remove("verify")
        with self.assertRaises(dsec.DsecAbsentError):
            self.client.policy_show("nobody")
        with self.assertRaises(dsec.DsecAbsentError):
            self.client.create("small", policy="nobody")

    def test_no_thread_is_started(self):
        self.sh("true")
        self.assertEqual(len(list(Path("/proc/self/task").iterdir())), 1)


if __name__ == "__main__":
    unittest.main()
