#!/usr/bin/env python3
"""dsec against a real engine: one that runs, and ones that it starts for itself."""
import base64
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ["DSEC_BUILD"])
DSEC, DSECD = BUILD / "sdk/dsec", BUILD / "engine/dsecd"
READY_S, STOP_S, RUN_S = 120, 120, 240
PROGRAM = "/program"


def cgroup_mount():
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.split()[0] == "cgroup2" and fields.split()[3] == "/":
            return Path(fields.split()[4])
    raise unittest.SkipTest("no cgroup2 is mounted here")


def eventually(what, seconds=60):
    """Something that ends by itself: asked again until it holds, or too much time went by."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def traces(name):
    """What there is of instances whose names begin so: cgroups, files and processes."""
    found = [path for path in cgroup_mount().glob(f"dsec-{name}*")]
    found += [path for path in Path("/run").glob(f"dsec-{name}*")]
    found += [path for path in Path("/run/dsec").glob(f"{name}*")]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"--instance\0{name}".encode() in path.read_bytes():
                found.append(path)
    return found


class CliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="dsec-cli-test."))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        root = cls.folder / "root"
        for name in ("proc", "dev/pts", "dev/shm", "tmp", "root", "etc"):
            (root / name).mkdir(parents=True)
        cc = ["cc", "-static", "-O1", "-o", root / "program", HERE / "program.c"]
        subprocess.run(cc, check=True, timeout=RUN_S)
        cls.images = cls.folder / "images"
        cls.images.mkdir()
        image = ["mkfs.erofs", "--quiet", cls.images / "small.erofs", root]
        subprocess.run(image, check=True, timeout=RUN_S)

    def dsec(self, *words, address=None, **options):
        environment = os.environ | {"DSEC_DSECD": str(DSECD)}
        environment.pop("DSEC_ADDRESS", None)
        if address:
            environment["DSEC_ADDRESS"] = address
        return subprocess.run(
            [DSEC, *words], env=environment, capture_output=True, timeout=RUN_S, **options
        )


class PrivateTest(CliTest):
    """`dsec run` with an engine of its own."""

    words = ("--address", "private:", "run", "--images")

    def start(self, *command):
        return subprocess.Popen(
            [DSEC, *self.words, self.images, "small", "--", PROGRAM, *command],
            env=os.environ | {"DSEC_DSECD": str(DSECD)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def test_it_runs_the_program_and_leaves_nothing(self):
        child = self.start("show", "x y")
        out, _ = child.communicate(timeout=RUN_S)
        self.assertEqual((out, child.returncode), (b"x y|-|/root|0|0\n", 0))
        self.assertEqual(traces(f"private-{child.pid}-"), [])

    def test_it_leaves_nothing_when_it_is_killed(self):
        child = self.start("sleep")
        name = f"private-{child.pid}-"

        def runs():
            return any(path.read_text() for path in self.leaves(name))

        self.assertTrue(eventually(runs, READY_S), "the program runs")
        child.kill()
        child.communicate(timeout=RUN_S)
        self.assertTrue(eventually(lambda: not traces(name)), traces(name))

    @staticmethod
    def leaves(name):
        return [p / "cgroup.procs" for p in cgroup_mount().glob(f"dsec-{name}*/*/b*/e*")]

    def test_an_unknown_image_is_the_callers_fault(self):
        ran = self.dsec(*self.words, self.images, "nonesuch", "--", PROGRAM)
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"create absent", ran.stderr)
        self.assertIn(b"[caller]", ran.stderr)


class EngineFixture(CliTest):
    """An engine that runs."""

    sandboxes_max = 64

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.instance = f"clitest-{os.getpid()}"
        cls.socket = cls.folder / "socket"
        cls.address = f"unix:{cls.socket}"
        reader, writer = os.pipe()
        with open(cls.folder / "log", "wb") as log:
            cls.engine = subprocess.Popen(
                [DSECD, "--instance", cls.instance, "--socket", cls.socket]
                + ["--images", cls.images, "--state", cls.folder / "state", "--ready-fd", str(writer)]
                + ["--shards", "2", "--sandboxes-max", str(cls.sandboxes_max)],
                pass_fds=[writer], stdout=log, stderr=log,
            )
        cls.addClassCleanup(cls.engine_stop)
        os.close(writer)
        with os.fdopen(reader) as ready:
            if ready.readline() != "ready\n":
                raise AssertionError(f"dsecd is not ready:\n{(cls.folder / 'log').read_text()}")

    @classmethod
    def engine_stop(cls):
        cls.engine.send_signal(signal.SIGTERM)
        if cls.engine.wait(STOP_S) != 0:
            raise AssertionError(f"dsecd's end:\n{(cls.folder / 'log').read_text()}")

    def setUp(self):
        self.addCleanup(self.remove_all)

    def remove_all(self):
        ids = self.good("ps", "-q").split()
        if ids:
            self.good("rm", *ids)

    def ask(self, *words, **options):
        return self.dsec(*words, address=options.pop("address", self.address), **options)

    def good(self, *words, **options):
        ran = self.ask(*words, **options)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout.decode()

    def create(self, *words):
        return self.good("create", "small", "-q", *words).strip()


class EngineTest(EngineFixture):
    def check(self):
        return self.ask("check", "--json", "--instance", self.instance)

    def test_a_sandbox_lives_from_create_to_rm(self):
        sandbox = self.create("--name", "first", "--label", "task=1", "--ttl", "2h")
        shown = self.good("exec", sandbox, "-e", "A=b", "-w", "/tmp", "-u", "7:8", "--", PROGRAM,
                          "show", "1")
        self.assertEqual(shown, "1|b|/tmp|7|8\n")
        row = json.loads(self.good("ps", "--json", "--label", "task=1"))
        self.assertEqual(row["id"], sandbox)
        self.assertEqual(row["labels"], {"name": "first", "task": "1"})
        self.assertEqual(row["execs_total"], 1)
        self.assertLessEqual(row["ttl_ms"], 7200 * 1000)
        self.assertEqual(json.loads(self.good("stats", "--json", "name:first"))["processes"], 1)
        self.good("rm", sandbox[-6:])
        self.assertEqual(self.good("ps", "-q"), "")
        self.good("rm", sandbox)

    def inspected(self, sandbox):
        return json.loads(self.good("inspect", "--json", sandbox))

    def test_labels_and_times_change_and_nothing_else(self):
        sandbox = self.create("--label", "a=1", "--label", "b=2", "--idle-ttl", "5m")
        self.good("label", sandbox, "b=two", "c=3", "a-")
        self.good("change", sandbox, "--ttl", "90s")
        seen = self.inspected(sandbox)
        self.assertEqual(seen["labels"], {"b": "two", "c": "3"})
        self.assertEqual((seen["ttl_s"], seen["idle_ttl_s"]), (90, 300))
        self.assertLessEqual(seen["ttl_ms"], 90000)
        row = json.loads(self.good("ps", "--json"))
        self.assertEqual(row["labels"], seen["labels"])
        self.assertLessEqual(row["ttl_ms"], 90000)
        for words in (("change", sandbox), ("label", sandbox), ("label", sandbox, "x")):
            ran = self.ask(*words)
            self.assertEqual((ran.returncode, ran.stdout), (125, b""), words)

    def test_what_was_fetched_lists_and_taints_whose_own_it_is(self):
        own = self.create("--label", "task.repository=git.example/a/b", "--label", "t=1")
        other = self.create("--label", "t=1")
        path = ("--path", "/mod/git.example/a/b/@v/list")
        self.assertEqual(self.good("fetched", *path, "--label", "t=1", "-q"), own + "\n")
        self.assertEqual(json.loads(self.good("fetched", *path, other, "--json"))["own"], [])
        self.assertEqual(json.loads(self.good("fetched", *path, own, "--json"))["own"], [own])
        self.assertEqual(self.inspected(own)["integrity"], "tainted[proxy-own-repository]")
        for words in (("fetched", own), ("fetched", *path), ("fetched", own, "--path", "")):
            self.assertEqual(self.ask(*words).returncode, 125, words)
        self.assertEqual(self.ask("fetched", "--path", "x" * 2049, own).returncode, 125)

    def test_inspect_shows_what_is_and_wait_why_it_ended(self):
        sandbox = self.create("--pids", "77", "--ttl", "2s")
        seen = self.inspected(sandbox)
        self.assertEqual((seen["state"], seen["pids_max"]), ("running", 77))
        self.assertEqual(seen["on_timeout"], "destroy")
        lines = self.good("inspect", sandbox).splitlines()
        self.assertIn("processes    1 of 77", lines)
        ran = self.ask("wait", sandbox, "--timeout", "100ms")
        self.assertEqual(ran.returncode, 124)
        self.assertEqual(self.good("wait", sandbox, "--timeout", "30s"), "ttl\n")
        seen = self.inspected(sandbox)
        self.assertEqual((seen["state"], seen["cause"]), ("ended", "ttl"))

    def test_a_limit_is_enforced_or_refused_by_name(self):
        unenforced = json.loads(self.good("version", "--json"))["engine"]["unenforced"]
        ran = self.ask("create", "small", "--cpus", "0.5")
        if not unenforced & 4:
            self.assertEqual((ran.returncode, ran.stderr), (0, b""))
            return
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"create.cpu", ran.stderr)
        self.assertIn(b"allow degraded", ran.stderr)
        ran = self.ask("create", "small", "--cpus", "0.5", "--allow-degraded")
        self.assertEqual(ran.returncode, 0)
        self.assertIn(b"not enforced on this host: cpu", ran.stderr)

    def serve(self, sandbox, port):
        server = subprocess.Popen([DSEC, "-H", self.address, "exec", sandbox, "--", PROGRAM,
                                   "serve", str(port)], stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait, RUN_S)
        self.addCleanup(server.kill)

    @staticmethod
    def echo(address, first, then):
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host.strip("[]"), int(port)), RUN_S) as connection:
            connection.sendall(first + then)
            connection.shutdown(socket.SHUT_WR)
            said = b""
            while piece := connection.recv(4096):
                said += piece
            return said

    def test_a_port_is_led_to_by_address_and_token_and_by_listening(self):
        sandbox = self.create("--network", "private")
        self.serve(sandbox, 80)
        address, token = self.good("port", sandbox, "80", "--wait", "20s").split()
        self.assertEqual(self.echo(address, token.encode() + b"\n", b"hello"), b"hello")
        told = json.loads(self.good("port", sandbox, "80", "--wait", "20s", "--json"))
        self.assertEqual((told["address"], told["token"], told["family"]), (address, token, 6))
        for listen in ("127.0.0.1:0", "[::1]:0", "0"):
            bridge = subprocess.Popen(
                [DSEC, "-H", self.address, "port", sandbox, "80", "--listen", listen],
                stderr=subprocess.PIPE, text=True)
            with bridge:
                at = bridge.stderr.readline().split()[-1]
                for text in (b"one", b"two" * 1000):
                    self.assertEqual(self.echo(at, b"", text), text)
                bridge.kill()
        self.good("port", sandbox, "80", "--revoke")
        self.assertNotIn(token, self.good("port", sandbox, "80"))

    def test_a_port_that_cannot_be_led_to_says_why(self):
        plain, private = self.create("--network", "none"), self.create("--network", "private")
        for words, status, said in (
            ((plain, "80"), 125, b"--network private"),
            ((private, "80", "--wait", "50ms"), 125, b"nothing listens"),
            ((private, "0"), 125, b"is not a port"),
            ((private, "80", "--listen", "nowhere:1"), 125, b"is wanted"),
            ((private,), 125, b"a sandbox and a port"),
        ):
            ran = self.ask("port", *words)
            self.assertEqual(ran.returncode, status, (words, ran.stderr))
            self.assertIn(said, ran.stderr)

    def tree(self, folder):
        """What lies below: names, modes, and what files hold or links name."""
        found = {}
        for path in sorted(Path(os.fsdecode(folder)).rglob("*")):
            what = os.readlink(path) if path.is_symlink() else oct(path.stat().st_mode)
            body = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[os.fsencode(path.relative_to(os.fsdecode(folder)))] = (what, body)
        return found

    def scratch(self):
        folder = Path(tempfile.mkdtemp(prefix="files.", dir=self.folder))
        (folder / "out").mkdir()
        return folder

    def test_files_go_in_and_come_out(self):
        sandbox, here = self.create(), self.scratch()
        data = os.urandom(3 << 20)
        (here / "a").write_bytes(data)
        (here / "a").chmod(0o750)
        self.good("cp", here / "a", f"{sandbox}:/tmp/b")
        self.good("cp", here / "a", f"{sandbox}:/tmp/")
        self.assertEqual(self.ask("cat", f"{sandbox}:/tmp/b").stdout, data)
        self.assertEqual(self.good("ls", "-q", f"{sandbox}:/tmp"), "a\nb\n")
        row = json.loads(self.good("file", "stat", "--json", f"{sandbox}:/tmp/a"))
        self.assertEqual((row["type"], row["mode"], row["bytes"]), ("file", 0o750, 3 << 20))
        self.good("cp", f"{sandbox}:/tmp/b", here / "out")
        self.good("cp", f"{sandbox}:/tmp/b", here / "out/c")
        self.assertEqual((here / "out/b").read_bytes(), data)
        self.assertEqual((here / "out/c").stat().st_mode & 0o777, 0o750)
        for words in ((f"{sandbox}:/none", here / "out/d"), (here / "none", f"{sandbox}:/tmp/"),
                      (f"{sandbox}:/dev/zero", here / "out/d"), (here / "a", here / "out/d"),
                      (here / "a", f"{sandbox}:/none/d")):
            ran = self.ask("cp", *words)
            self.assertEqual((ran.returncode, ran.stdout), (125, b""), words)
        self.assertEqual(sorted(os.listdir(here / "out")), ["b", "c"])

    def test_too_few_descriptors_are_told_as_that(self):
        for most in range(5, 9):
            ran = self.ask("ps", preexec_fn=lambda most=most: resource.setrlimit(
                resource.RLIMIT_NOFILE, (most, most)))
            if ran.returncode:
                self.assertEqual(ran.returncode, 125)
                self.assertRegex(ran.stderr, b"ulimit -n|Too many open files")

    def test_what_is_no_file_here_is_written_to_and_never_replaced(self):
        sandbox, here = self.create(), self.scratch()
        (here / "a").write_bytes(b"new")
        self.good("cp", here / "a", f"{sandbox}:/tmp/a")
        full, null, fifo, link, file = (here / name for name in
                                        ("full", "null", "fifo", "link", "file"))
        os.mknod(full, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        os.mknod(null, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        os.mkfifo(fifo)
        link.symlink_to("file")
        (here / "nowhere").symlink_to("none")
        file.write_bytes(b"old")
        self.good("cp", f"{sandbox}:/tmp/a", null)
        ran = self.ask("cp", f"{sandbox}:/tmp/a", full)
        self.assertEqual((ran.returncode, ran.stderr),
                         (125, b"dsec: " + os.fsencode(full) + b": No space left on device\n"))
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.good("cp", f"{sandbox}:/tmp/a", fifo)
        self.assertEqual(os.read(reader, 10), b"new")
        self.good("cp", f"{sandbox}:/tmp/a", link)
        self.assertEqual(file.read_bytes(), b"new")
        ran = self.ask("cp", f"{sandbox}:/tmp/a", here / "nowhere")
        self.assertEqual(ran.returncode, 125)
        ran = self.ask("cp", f"{sandbox}:/tmp", file)
        self.assertIn(b"file: Not a directory", ran.stderr)
        kinds = {path.name: stat.S_IFMT(path.lstat().st_mode) for path in here.iterdir()}
        self.assertEqual(kinds, {"a": stat.S_IFREG, "file": stat.S_IFREG, "out": stat.S_IFDIR,
                                 "full": stat.S_IFCHR, "null": stat.S_IFCHR,
                                 "fifo": stat.S_IFIFO, "link": stat.S_IFLNK,
                                 "nowhere": stat.S_IFLNK})

    def test_folders_go_in_and_come_out_with_links_and_any_names(self):
        sandbox, here = self.create(), self.scratch()
        folder = here / "in"
        (folder / "sub/empty").mkdir(parents=True)
        names = [b"plain", b"new\nline", b"\x1b[31mred\x07", b"inv\xffalid", b"--option",
                 "\u00e9".encode(), b"n" * 255]
        for name in names:
            Path(os.fsdecode(bytes(folder / "sub") + b"/" + name)).write_bytes(name)
        (folder / "sub/link").symlink_to("../../../etc/passwd")
        (folder / "dangling").symlink_to("/nowhere/at/all")
        (folder / "sub/run").write_text("x")
        (folder / "sub/run").chmod(0o755)
        self.good("cp", folder, f"{sandbox}:/tmp")
        shown = self.ask("ls", f"{sandbox}:/tmp/in/sub").stdout
        self.assertEqual(len(shown.splitlines()), 1 + len(names) + 3)
        self.assertIn(b"\\x1b[31mred\\x07", shown)
        self.assertNotIn(b"\x1b[31m", shown)
        rows = [json.loads(line) for line in
                self.good("ls", "--json", f"{sandbox}:/tmp/in/sub").splitlines()]
        told = {base64.b64decode(row["name_base64"]) if row["name"] is None
                else row["name"].encode() for row in rows}
        self.assertLessEqual(set(names), told)
        self.good("cp", f"{sandbox}:/tmp/in", here / "out")
        self.assertEqual(self.tree(here / "out/in"), self.tree(folder))
        archive = self.ask("cp", f"{sandbox}:/tmp/in", "-").stdout
        self.good("file", "mkdir", "-p", f"{sandbox}:/tmp/again/x")
        self.good("cp", "-", f"{sandbox}:/tmp/again/x", input=archive)
        self.good("cp", f"{sandbox}:/tmp/again/x", here / "back")
        self.assertEqual(self.tree(here / "back"), self.tree(folder))

    def test_nothing_outside_the_target_is_written(self):
        sandbox, here = self.create(), self.scratch()
        (here / "in/d").mkdir(parents=True)
        (here / "in/d/evil").write_text("evil")
        (here / "in/su").write_text("x")
        (here / "in/su").chmod(0o4755)
        (here / "outside").mkdir()
        (here / "out/d").symlink_to(here / "outside")
        self.good("cp", here / "in/.", f"{sandbox}:/tmp/t")
        ran = self.ask("cp", f"{sandbox}:/tmp/t/.", here / "out")
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"d/evil: left out, a link lies on its way", ran.stderr)
        self.assertEqual(os.listdir(here / "outside"), [])
        self.assertEqual((here / "out/su").stat().st_mode & 0o7777, 0o755)

    def test_no_part_of_a_file_stays_on_a_full_disk_or_when_it_is_killed(self):
        sandbox, here, full = self.create(), self.folder / "large", self.folder / "full"
        here.mkdir()
        full.mkdir()
        (here / "big").write_bytes(bytes(range(256)) * 2048)
        self.good("cp", here, f"{sandbox}:/tmp/")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", full], check=True, timeout=RUN_S)
        self.addCleanup(subprocess.run, ["umount", full], check=True, timeout=RUN_S)
        for source, said in ((f"{sandbox}:/tmp/large", b"dsec: big: No space left on device\n"),
                             (f"{sandbox}:/tmp/large/big", b"full/big: No space left on device\n")):
            ran = self.ask("cp", source, f"{full}/")
            self.assertEqual(ran.returncode, 125)
            self.assertTrue(ran.stderr.endswith(said), ran.stderr)
            self.assertEqual([path for path in full.rglob("*") if path.is_file()], [])
        (here / "big").write_bytes(bytes(40 << 20))
        self.good("cp", here / "big", f"{sandbox}:/tmp/forty")
        for pause_s in (0.004, 0.016, 0.04):  # killed at any moment nothing of it stays
            child = subprocess.Popen([DSEC, "-H", self.address, "cp", f"{sandbox}:/tmp/forty", self.folder / "killed"],
                                     stderr=subprocess.DEVNULL)
            time.sleep(pause_s)
            child.kill()
            child.wait(RUN_S)
            self.assertLessEqual({path.stat().st_size for path in self.folder.glob("killed*")}, {40 << 20})
        self.good("cp", f"{sandbox}:/tmp/large", f"{self.folder}/whole")
        self.assertEqual((self.folder / "whole/big").read_bytes(), bytes(range(256)) * 2048)

    def test_file_verbs_say_what_went_wrong(self):
        sandbox = self.create()
        self.good("file", "mkdir", f"{sandbox}:/tmp/a")
        self.good("file", "mkdir", "--parents", f"{sandbox}:/tmp/a/b/c")
        self.good("file", "mv", f"{sandbox}:/tmp/a/b", f"{sandbox}:/tmp/d")
        self.good("file", "mv", f"{sandbox}:/tmp/d", "/tmp/e")
        self.assertEqual(self.good("ls", "-q", f"{sandbox}:/tmp/e"), "c\n")
        for words, said in (
            (("rm", f"{sandbox}:/tmp/e"), b"Directory not empty"),
            (("rm", f"{sandbox}:/tmp/none"), b"No such file"),
            (("mkdir", f"{sandbox}:/tmp/a"), b"File exists"),
            (("mkdir", "-r", f"{sandbox}:/tmp/x"), b"--recursive belongs to file rm"),
            (("stat", "/tmp/a"), b"is not ID:PATH"),
            (("move", f"{sandbox}:/tmp/a"), b"stat, mkdir, rm, mv and watch"),
        ):
            ran = self.ask("file", *words)
            self.assertEqual((ran.returncode, ran.stdout), (125, b""), words)
            self.assertIn(said, ran.stderr)
        self.good("file", "rm", "-r", f"{sandbox}:/tmp/e")
        self.assertEqual(self.good("ls", "-q", f"{sandbox}:/tmp"), "a\n")

    def test_exit_statuses_say_how_the_program_ended(self):
        sandbox = self.create()
        for command, status, said in (
            ((PROGRAM, "exit", "77"), 77, b""),
            ((PROGRAM, "abort"), 134, b""),
            (("/nonesuch",), 127, b"argv0"),
            (("/etc",), 126, b"argv0"),
            ((PROGRAM, "sleep"), 124, b"timeout after "),
        ):
            ran = self.ask("exec", "--timeout", "200ms", sandbox, "--", *command)
            self.assertEqual(ran.returncode, status, (command, ran.stderr))
            self.assertIn(said, ran.stderr)
        ran = self.ask("exec", "0" * 26, "--", PROGRAM)
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"[caller]", ran.stderr)

    def test_bytes_come_back_exactly_by_both_transports(self):
        data = os.urandom(768 * 1024)
        sandbox = self.create()
        for transport in ("unix:", "stream+unix:"):
            ran = self.ask("exec", "-i", "--output-max", "2M", sandbox, "--", PROGRAM, "copy",
                           input=data, address=f"{transport}{self.socket}")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertEqual(ran.stdout, data)
            self.assertEqual(ran.stderr, b"")

    def test_streams_are_of_any_length_and_exact_by_both_transports(self):
        data = os.urandom(5 << 20)
        sandbox = self.create()
        for transport in ("unix:", "stream+unix:"):
            ran = self.ask("exec", "-i", sandbox, "--", PROGRAM, "copy",
                           input=data, address=f"{transport}{self.socket}")
            self.assertEqual((ran.returncode, ran.stderr), (0, b""))
            self.assertTrue(ran.stdout == data)

    def test_output_comes_as_it_is_written_and_input_when_it_is_there(self):
        for words in (("exec", "-i", self.create()), ("run", "-i", "small")):
            child = subprocess.Popen([DSEC, "-H", self.address, *words, "--", PROGRAM, "copy"],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for line in (b"one\n", b"two\n"):
                child.stdin.write(line)
                child.stdin.flush()
                self.assertEqual(child.stdout.readline(), line)
            out, _ = child.communicate(timeout=RUN_S)
            self.assertEqual((out, child.returncode), (b"", 0))

    def test_a_reader_that_goes_ends_the_program_as_a_pipe_does(self):
        child = subprocess.Popen([DSEC, "-H", self.address, "exec", self.create(), "--", PROGRAM,
                                  "forever"], stdout=subprocess.PIPE)
        self.assertEqual(child.stdout.read(4), b"on\no")
        child.stdout.close()
        self.assertEqual(child.wait(RUN_S), 128 + signal.SIGPIPE)

    def test_a_detached_program_is_listed_followed_and_kept(self):
        sandbox = self.create()
        number = self.good("exec", "-d", sandbox, "-e", "A=b", "-w", "/tmp", "--", PROGRAM, "slow",
                           "4")
        self.assertEqual(number, "1\n")
        row = json.loads(self.good("ps", "--execs", sandbox, "--json"))
        self.assertEqual((row["exec"], row["reason"], row["argv"]),
                         (1, "running", [PROGRAM, "slow", "4"]))
        self.assertEqual((row["env"][0], row["cwd"], row["truncated"]), ("A=b", "/tmp", False))
        self.assertTrue(eventually(lambda: b"begun" in self.ask("logs", sandbox, "1").stdout))
        ran = self.ask("attach", sandbox, "1", "--from", "2")
        self.assertEqual((ran.stdout, ran.returncode), (b"gun\nended\n", 7))
        ran = self.ask("logs", sandbox, "1")
        self.assertEqual((ran.stdout, ran.returncode), (b"begun\nended\n", 0))
        self.assertIn("exit 7", self.good("ps", "--execs", sandbox))
        ran = self.ask("attach", sandbox, "2")
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"no such exec", ran.stderr)

    def test_time_outs_are_124_and_say_which(self):
        sandbox = self.create()
        for words, program, said, out in (
            (("--timeout", "200ms"), "sleep", b"timeout after ", b""),
            (("--idle-timeout", "700ms"), "slow", b"no output for ", b"begun\n"),
            (("--timeout", "800ms", "--kill-after", "9s"), "tidy", b": 0 processes killed", b"tidied\n"),
        ):
            ran = self.ask("exec", *words, sandbox, "--", PROGRAM, program)
            self.assertEqual((ran.returncode, ran.stdout), (124, out), words)
            self.assertIn(said, ran.stderr)

    def test_the_status_file_has_the_output_that_was_streamed(self):
        path = self.folder / "status"
        ran = self.ask("exec", "--status-file", path, self.create(), "--", PROGRAM, "show", "x")
        told = json.loads(path.read_text())
        self.assertEqual(told["stdout"]["text"].encode(), ran.stdout)

    def test_megabytes_pass_through_pipes_that_do_not_block(self):
        sandbox, most = self.create(), 4 << 20
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        child = subprocess.Popen(
            [DSEC, "-H", self.address, "exec", "--output-max", "4M", sandbox, "--", PROGRAM,
             "letters", str(most)],
            stdout=writer,
        )
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            self.assertEqual(len(pipe.read()), most)
        self.assertEqual(child.wait(RUN_S), 0)

    def test_a_user_or_folder_that_is_not_there_is_127_and_the_guests_fault(self):
        sandbox = self.create()
        for words, step in ((("-u", "nosuch"), "user"), (("-w", "/nosuch"), "cwd")):
            ran = self.ask("exec", "--json", *words, sandbox, "--", PROGRAM, "exit", "0")
            told = json.loads(ran.stdout)
            self.assertEqual((ran.returncode, told["code"], told["reason"]),
                             (127, 127, "not-started"))
            self.assertEqual((told["blame"], told["errno"]), ("guest", "ENOENT"))
            self.assertIn(step, told["step"])

    def test_what_another_instance_left_is_no_residue_of_this_one(self):
        other = f"clitest-other-{os.getpid()}"
        group = cgroup_mount() / f"dsec-{other}"
        folder = Path("/run/dsec") / other / "bpf"
        folder.mkdir(parents=True)
        self.addCleanup(folder.parent.rmdir)
        self.addCleanup(folder.rmdir)
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
        self.addCleanup(subprocess.run, ["umount", folder], check=True)
        group.mkdir()
        self.addCleanup(group.rmdir)
        ran = self.check()
        self.assertEqual(ran.returncode, 0, ran.stdout)
        nowhere = f"unix:{self.folder}/nobody"
        ran = self.ask("check", "--json", "--instance", other, address=nowhere)
        told = json.loads(ran.stdout)
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assertEqual((told["instance"], told["engine"]), (other, None))
        self.assertEqual((told["left"]["mounts"], told["left"]["cgroups"]), (1, 1))

    def test_check_accounts_for_live_sandboxes_and_nothing_else(self):
        self.create("--count", "3", "--network", "none")
        ran = self.check()
        told = json.loads(ran.stdout)
        self.assertEqual(ran.returncode, 0, told)
        self.assertEqual(told["engine"]["sandboxes"], 3)
        self.assertEqual((told["machine"]["sandboxes"], told["machine"]["processes"]), (3, 3))
        # Six of each one's own, and the network that all without one share.
        self.assertEqual(told["machine"]["namespaces"], 3 * 6 + 1)
        self.remove_all()
        told = json.loads(self.check().stdout)
        self.assertEqual((told["machine"]["sandboxes"], told["clean"]), (0, True))

    def test_check_finds_a_process_that_no_sandbox_accounts_for(self):
        stray = subprocess.Popen(["sleep", "600"])
        self.addCleanup(stray.wait)
        self.addCleanup(stray.kill)
        folder = cgroup_mount() / f"dsec-{self.instance}" / "stray"
        folder.mkdir()
        self.addCleanup(folder.rmdir)
        self.addCleanup(eventually, lambda: not (folder / "cgroup.procs").read_text())
        self.addCleanup(stray.kill)
        (folder / "cgroup.procs").write_text(str(stray.pid))
        ran = self.check()
        told = json.loads(ran.stdout)
        self.assertEqual((ran.returncode, told["left"]["processes"]), (1, 1), told)
        self.assertIn(f"process {stray.pid} in ", told["left"]["first"])

    def test_an_engine_that_dies_is_an_unknown_end_and_the_platforms_fault(self):
        sandbox = self.create()
        child = subprocess.Popen(
            [DSEC, "-H", self.address, "exec", sandbox, "--", PROGRAM, "sleep"],
            stderr=subprocess.PIPE,
        )

        def runs():
            return json.loads(self.good("ps", "--json"))["execs_running"] == 1

        self.assertTrue(eventually(runs))
        children = Path(f"/proc/{self.engine.pid}/task/{self.engine.pid}/children").read_text()
        os.kill(int(children.split()[0]), signal.SIGKILL)
        _, said = child.communicate(timeout=RUN_S)
        self.assertEqual(child.returncode, 125)
        self.assertIn(b"exec unknown", said)
        self.assertIn(b"[platform]", said)
        # Whoever comes as it dies waits for the next one.
        children = Path(f"/proc/{self.engine.pid}/task/{self.engine.pid}/children").read_text()
        os.kill(int(children.split()[0]), signal.SIGKILL)
        ran = self.ask("run", "small", "--", PROGRAM, "show", "x")
        self.assertEqual((ran.returncode, ran.stderr), (0, b"to stderr\n"))
        self.assertEqual(json.loads(self.check().stdout)["clean"], True)


class FullTest(EngineFixture):
    """An engine that has room for one sandbox per shard."""

    sandboxes_max = 2

    def test_what_is_refused_is_asked_again_within_its_time(self):
        made = [self.dsec("create", "small", "-q", address=self.address) for _ in range(3)]
        full = [one for one in made if one.returncode]
        self.assertTrue(full, "there is room for two at the most")
        for one in full:
            self.assertEqual((one.returncode, one.stdout), (125, b""))
            self.assertIn(b"create refused", one.stderr)
        ids = [one.stdout.decode().strip() for one in made if not one.returncode]
        waiting = subprocess.Popen(
            [DSEC, "create", "small", "-q", "--timeout", "50s"], stdout=subprocess.PIPE,
            env=os.environ | {"DSEC_ADDRESS": self.address})
        self.addCleanup(waiting.stdout.close)
        time.sleep(0.3)
        self.assertIsNone(waiting.poll(), "it waits for room")
        self.assertEqual(self.dsec("rm", *ids, address=self.address).returncode, 0)
        self.assertEqual(waiting.wait(RUN_S), 0)
        again = [self.dsec("create", "small", "-q", address=self.address) for _ in range(2)]
        self.assertIn(125, [one.returncode for one in again])
        short = self.dsec("create", "small", "-q", "--timeout", "700ms", address=self.address)
        self.assertEqual(short.returncode, 125)
        self.assertIn(b"create refused", short.stderr)


if __name__ == "__main__":
    unittest.main()
