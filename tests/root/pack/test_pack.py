#!/usr/bin/env python3
"""dsec image pack against a real engine: what is in a layer, what never is, who may, and every way
to end early."""
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "image"))
from importer import BUILD, mounts_of_our_own  # noqa: E402
from test_image_engine import DSEC, RUN_S, Engine, busybox, eventually  # noqa: E402

TOOLS = ("sh cat ls rm mkdir ln mv cp sleep touch dd true false echo test mkfifo chmod head "
         "printf setfattr hostname base64 tr wc").split()
SECRET = "the-secret-that-was-deleted"
# In front of dsec-store: `early` begins, `late` is made, and both come to nothing by themselves.
STORE = """#!/bin/sh
case "$5" in
*early) sleep 600;;
*late) {program} "$@"; sleep 600;;
esac
exec {program} "$@"
"""


def base_make(folder, images):
    """An image of the store, by its own program: a directory is a layer over nothing."""
    root, scratch = folder / "root", folder / "scratch"
    for name in ("bin", "etc", "root", "tmp", "var/log", "w/old"):
        (root / name).mkdir(parents=True)
    (root / "bin/busybox").write_bytes(busybox())
    (root / "bin/busybox").chmod(0o755)
    for tool in TOOLS:
        (root / "bin" / tool).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/of-the-base").write_text("base")
    (root / "w/changed").write_text("of the base")
    (root / "w/old/of-the-base").write_text("base")
    (root / "tmp").chmod(0o1777)
    scratch.mkdir()
    images.mkdir()
    with contextlib.ExitStack() as stack:
        fds = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (scratch, images, root)]
        stack.callback(lambda: [os.close(fd) for fd in fds])
        script = 'exec "$0" pack 1000000000 0 1 base ids:0 wipe:none 3<&{} 4<&{} 5<&{}'.format(*fds)
        subprocess.run(["bash", "-c", script, BUILD / "engine/dsec-store"], check=True,
                       pass_fds=fds, timeout=RUN_S, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)
    os.rename(scratch / "image.erofs", images / "base.erofs")


class PackTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        mounts_of_our_own()
        cls.folder = Path(tempfile.mkdtemp(prefix="dsec-pack."))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.images = cls.folder / "images"
        base_make(cls.folder, cls.images)
        cls.store = cls.folder / "store"
        cls.store.write_text(STORE.format(program=BUILD / "engine/dsec-store"))
        cls.store.chmod(0o755)
        cls.green = cls.folder / "green.sock"
        cls.blue = cls.folder / "blue.sock"
        cls.engine = Engine(cls.folder, "pack", cls.images, "--store-program", cls.store,
                            "--tenant", "name=default,builder",
                            "--tenant", f"name=green,socket={cls.green}",
                            "--tenant", f"name=blue,builder,socket={cls.blue}")
        cls.addClassCleanup(cls.engine.stop)

    def dsec(self, *words, at=None, **options):
        return subprocess.run([DSEC, "-H", f"unix:{at or self.engine.socket}", *map(str, words)],
                              capture_output=True, timeout=RUN_S, check=False,
                              stdin=subprocess.DEVNULL, **options)

    def good(self, *words, at=None):
        ran = self.dsec(*words, at=at)
        self.assertEqual(ran.returncode, 0, (words, ran.stdout, ran.stderr))
        return ran.stdout.decode()

    def bad(self, *words, says, at=None):
        ran = self.dsec(*words, at=at)
        self.assertEqual(ran.returncode, 125, (words, ran.stdout, ran.stderr))
        for text in says:
            self.assertIn(text, ran.stderr.decode())
        return ran.stderr.decode()

    def sandbox(self, image="base", at=None):
        made = self.good("create", image, "-q", at=at).strip()
        self.addCleanup(self.dsec, "rm", made, at=at)
        return made

    def sh(self, sandbox, script, at=None):
        return self.good("exec", sandbox, "--", "sh", "-ec", script, at=at)

    def pack(self, sandbox, name, *words, at=None):
        lines = self.good("--json", "image", "pack", sandbox, "--name", name, *words, at=at)
        self.addCleanup(self.dsec, "image", "rm", name, at=at)
        report, row = map(json.loads, lines.splitlines())
        self.assertEqual(row["name"], name)
        return report

    def names(self, at=None):
        lines = self.good("--json", "image", "ls", at=at).splitlines()
        return {json.loads(line)["name"] for line in lines}

    def blobs(self):
        return {path.name for path in (self.images / "blobs/sha256").iterdir()}

    def holds(self, blobs, text):
        return [name for name in blobs
                if text.encode() in (self.images / "blobs/sha256" / name).read_bytes()]

    def check_nothing_is_left(self):
        self.assertTrue(eventually(lambda: not self.engine.groups()), self.engine.groups())
        scratch = self.images / ".import"
        self.assertTrue(eventually(lambda: not [*scratch.glob("*/*")]), [*scratch.glob("*/*")])

    # ---- what is in it ----

    def test_an_image_has_what_its_sandbox_had_and_nothing_that_was_deleted(self):
        before = self.blobs()
        one = self.sandbox()
        self.sh(one, f"""
            echo new > /w/new; echo changed > /w/changed; rm /etc/of-the-base
            mkdir /w/d; echo twice > /w/d/a; ln /w/d/a /w/d/b; ln -s ../new /w/d/link
            rm -r /w/old; mkdir /w/old; echo opaque > /w/old/new
            chmod 4755 /w/d/a; mkfifo /w/d/fifo; mkdir /w/.wh..wh..opq; echo x > /w/.wh.passwd
            echo {SECRET} > /w/gone; rm /w/gone; echo {SECRET} > /w/d/a2; echo clean > /w/d/a2
            dd if=/dev/zero of=/w/sparse bs=1 count=1 seek=50000000 2> /dev/null""")
        report = self.pack(one, "packed")
        self.assertEqual(report["dropped"]["whiteout_names"], 2)
        self.assertEqual(report["whiteouts"], 1)
        self.assertLess(report["bytes"], 100000)  # the hole is none
        shown = self.good("run", "packed", "--", "sh", "-ec", """
            cat /w/new /w/changed /w/d/a /w/d/b /w/d/link /w/d/a2
            test "$(ls /w/old)" = new && test ! -e /etc/of-the-base && test ! -e /w/gone && test -p /w/d/fifo
            test -u /w/d/a && test /w/d/a -ef /w/d/b && ls -A /w && ls -l /w/sparse""")
        self.assertEqual(shown.splitlines()[:6],
                         ["new", "changed", "twice", "twice", "new", "clean"])
        self.assertNotIn(".wh.", shown)
        self.assertIn("50000001", shown)
        self.assertEqual(self.holds(self.blobs() - before, SECRET), [])
        self.assertEqual(self.pack(one, "again")["layer"], report["layer"])  # the same bytes
        self.assertEqual(self.sh(one, "cat /w/new"), "new\n")  # it goes on

    def test_residue_is_wiped_unless_asked_otherwise(self):
        one = self.sandbox()
        self.sh(one, f"""
            echo {SECRET} > /root/.bash_history; mkdir -p /root/.cache/pip /w/.git/logs /w/__pycache__
            echo {SECRET} > /root/.cache/pip/x; echo {SECRET} > /w/.git/logs/HEAD
            echo {SECRET} > /w/.git/ORIG_HEAD; echo {SECRET} > /w/__pycache__/a.pyc
            echo {SECRET} > /root/.netrc; echo {SECRET} > /tmp/x; echo {SECRET} > /var/log/l
            printf '\\177ELF\\002\\001\\001\\0\\0\\0\\0\\0\\0\\0\\0\\0\\004\\0' > /w/core
            head -c 100 /dev/zero >> /w/core; echo {SECRET} >> /w/core
            echo kept > /w/core.py; echo kept > /w/.git/HEAD""")
        before = self.blobs()
        report = self.pack(one, "wiped", "--scan", SECRET)
        self.assertEqual(report["wiped"], {"history": 1, "caches": 1, "logs": 1, "git": 2,
                                           "credentials": 1, "bytecode": 1, "cores": 1,
                                           "temporary": 1})
        self.assertEqual(self.holds(self.blobs() - before, SECRET), [])
        self.assertEqual(self.good("run", "wiped", "--", "cat", "/w/core.py", "/w/.git/HEAD"),
                         "kept\nkept\n")
        report = self.pack(one, "some", "--wipe", "git,/w/core*")
        self.assertEqual(report["wiped"], {"git": 2, "globs": 2})
        self.assertIn(SECRET, self.good("run", "some", "--", "cat", "/root/.netrc"))
        self.bad("image", "pack", one, "--name", "x", "--wipe", "gut", says=["pack.rules", "gut"])
        self.assertEqual(self.pack(one, "kept", "--wipe", "none")["wiped"], {})

    def test_a_canary_in_any_form_refuses_it_by_path_and_is_never_told(self):
        one = self.sandbox()
        hidden = base64.b64encode(b"ab" + SECRET.encode() + b"cd").decode()
        self.sh(one, f"mkdir /w/deep; echo {hidden} > /w/deep/file")
        said = self.bad("image", "pack", one, "--name", "leaks", "--scan", "another canary",
                        "--scan", SECRET, says=["pack.canary", "/w/deep/file", "canary 2", "byte"])
        self.assertNotIn(SECRET, said)
        self.assertNotIn(SECRET, self.engine.log.read_text())
        (self.folder / "canaries").write_text(f"first canary\n\n{SECRET}\n")
        self.bad("image", "pack", one, "--name", "leaks", "--scan-file",
                 self.folder / "canaries", says=["canary 2"])
        self.bad("image", "pack", one, "--name", "leaks", "--scan", "short", says=["pack.rules"])
        self.assertNotIn("leaks", self.names())
        self.assertEqual(self.sh(one, "echo goes on"), "goes on\n")
        self.check_nothing_is_left()

    def test_what_lies_below_is_searched_and_flattened_away(self):
        first = self.sandbox()
        self.sh(first, f"echo {SECRET} > /root/.netrc; echo {SECRET} > /w/leak; echo y > /w/kept")
        self.pack(first, "leaky", "--wipe", "none")
        one = self.good("create", "leaky", "-q").strip()
        self.addCleanup(self.dsec, "rm", one)
        self.sh(one, "rm /w/leak; echo z > /w/over")
        said = self.bad("image", "pack", one, "--name", "leaks", "--scan", SECRET,
                        says=["pack.canary", "/root/.netrc", ", layer "])
        self.assertNotIn(SECRET, said)
        self.assertEqual(self.pack(one, "over")["below"], {"credentials": 1})
        self.assertEqual(self.pack(one, "alone", "--layer", "--scan", SECRET)["below"], {})
        self.bad("image", "pack", one, "--name", "x", "--layer", "--flatten", says=["--flatten"])
        self.bad("image", "pack", one, "--name", "x", "--flatten", "--wipe", "none", "--scan",
                 SECRET, says=["pack.canary", "/root/.netrc"])
        before = self.blobs()
        report = self.pack(one, "flat", "--flatten", "--scan", SECRET)
        self.assertEqual((report["wiped"], report["below"]), ({"credentials": 1}, {}))
        self.assertEqual(self.holds(self.blobs() - before, SECRET), [])
        record = json.loads(self.good("--json", "image", "inspect", "flat"))
        self.assertEqual(record["layers"], 1)
        self.assertEqual(
            self.good("run", "flat", "--", "cat", "/w/kept", "/w/over"), "y\nz\n")
        for gone in ("/root/.netrc", "/w/leak"):
            self.assertEqual(self.dsec("run", "flat", "--", "test", "-e", gone).returncode, 1)
        self.check_nothing_is_left()

    def test_a_layer_alone_lies_over_other_images(self):
        one = self.sandbox()
        self.sh(one, "echo of the layer > /w/changed")
        self.pack(one, "alone", "--layer")
        record = json.loads(self.good("--json", "image", "inspect", "alone"))
        self.assertEqual((record["source"], record["layers"]), ("sandbox", 1))

    def test_with_kill_all_that_runs_ends_first(self):
        one = self.sandbox()
        child = self.engine.start("exec", one, "--", "sh", "-c",
                                  "echo begun; while :; do echo x >> /w/grows; sleep 0.01; done")
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), b"begun\n")
        self.sh(one, "sleep 600 > /dev/null 2>&1 &")  # of an exec that has ended
        self.pack(one, "emptied", "--kill")
        said = child.communicate(timeout=RUN_S)[1]
        self.assertEqual(child.returncode, 137, said)
        left = self.sh(one, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; wc -c < /w/grows")
        self.assertNotIn("sleep 600", left)
        packed = self.good("run", "emptied", "--", "sh", "-c", "wc -c < /w/grows")
        self.assertEqual(left.split()[-1], packed.strip())
        self.bad("image", "gc", "--kill", says=["--kill"])
        self.check_nothing_is_left()

    # ---- who may ----

    def test_only_builders_pack_and_only_their_own(self):
        theirs, ours = self.sandbox(at=self.green), self.sandbox(at=self.blue)
        self.sh(ours, "echo of blue > /w/blue", at=self.blue)
        self.bad("image", "pack", theirs, "--name", "green/x", at=self.green,
                 says=["denied", "pack.builder"])
        self.bad("image", "pack", theirs, "--name", "blue/x", at=self.blue, says=["no such sandbox"])
        self.bad("image", "pack", ours, "--name", "x", at=self.blue, says=["denied"])
        self.pack(ours, "blue/x", at=self.blue)
        self.assertIn("blue/x", self.names(at=self.blue))
        self.assertNotIn("blue/x", self.names(at=self.green))

    # ---- builds ----

    def test_a_build_is_a_program_in_a_sandbox_and_a_clean_image(self):
        (self.folder / "copied").write_text("copied in")
        there = self.good("ps", "-q")
        said = self.good("image", "build", "built", "--image", "base", "--cp-in",
                         f"{self.folder / 'copied'}:/w/copied", "--env", "OF=build", "--",
                         "sh", "-ec", "echo $OF; cat /w/copied > /w/made; echo x > /tmp/left")
        self.addCleanup(self.dsec, "image", "rm", "built")
        self.assertTrue(said.startswith("build\n"), said)
        self.assertEqual(self.good("run", "built", "--", "sh", "-c", "cat /w/made; ls -A /tmp"),
                         "copied in")
        self.assertEqual(self.good("ps", "-q"), there)

    def test_a_build_that_fails_has_its_status_and_leaves_nothing(self):
        there = self.good("ps", "-q")
        ran = self.dsec("image", "build", "broken", "--image", "base", "--", "sh", "-c", "exit 7")
        self.assertEqual(ran.returncode, 7, ran.stderr)
        ran = self.dsec("image", "build", "broken", "--image", "base", "--scan", SECRET, "--",
                        "sh", "-c", f"echo {SECRET} > /w/x")
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"/w/x", ran.stderr)
        self.bad("image", "build", "broken", "--", "true", says=["--image BASE"])
        self.bad("image", "build", "broken", "--image", "base", says=["PROGRAM"])
        self.assertNotIn("broken", self.names())
        self.assertEqual(self.good("ps", "-q"), there)
        self.check_nothing_is_left()

    # ---- forks ----

    def fork(self, sandbox, count, at=None):
        made = self.good("fork", sandbox, count, "-q", at=at).split()
        for one in made:
            self.addCleanup(self.dsec, "rm", one, at=at)
        self.assertEqual(len(set(made)), count)
        return made

    def test_forks_begin_where_their_source_is_and_are_nobody_else(self):
        one = self.good("create", "base", "-q", "--env", "OF=source", "--ttl", "1h", "--label",
                        "task=9").strip()
        self.addCleanup(self.dsec, "rm", one)
        self.sh(one, "echo written > /w/new; rm /etc/of-the-base; echo of tmp > /tmp/t"
                     "; sleep 600 > /dev/null 2>&1 &")
        made = self.fork(one, 3)
        seen = set()
        for at, copy in enumerate(made):
            said = self.sh(copy, f"cat /w/new /tmp/t; echo $OF; test ! -e /etc/of-the-base"
                                 f"; echo {at} > /w/new; hostname").splitlines()
            self.assertEqual(said[:3], ["written", "of tmp", "source"])
            seen.add(said[3])
            shown = json.loads(self.good("--json", "inspect", copy))
            self.assertEqual(shown["labels"], {"task": "9"})
            self.assertEqual((shown["image"], shown["fork_of"]), ("base", one))
        listed = {row["id"]: (row["image"], row["fork_of"]) for row in
                  map(json.loads, self.good("ps", "--json").splitlines())}
        self.assertEqual([listed[copy] for copy in made], [("base", one)] * 3)
        self.assertEqual(listed[one], ("base", None))
        self.assertIn(f"base, fork of {one}", self.good("ps"))
        self.assertEqual(len(seen), 3)  # of host names
        for at, copy in enumerate(made):
            self.assertEqual(self.sh(copy, "cat /w/new"), f"{at}\n")
        self.assertEqual(self.sh(one, "cat /w/new"), "written\n")
        again, = self.fork(made[1], 1)  # a fork of a fork
        shown = json.loads(self.good("--json", "inspect", again))
        self.assertEqual((shown["image"], shown["fork_of"]), ("base", made[1]))
        self.assertEqual(self.sh(again, "cat /w/new /tmp/t"), "1\nof tmp\n")
        self.assertEqual(self.names() & {"early", "x"}, set())
        self.assertTrue(eventually(lambda: not [*(self.images / ".fork").iterdir()]))
        self.assertEqual([name for name in self.names() if "fork" in name], [])
        self.check_nothing_is_left()

    def test_a_fork_that_fails_leaves_the_source_and_nothing_else(self):
        one = self.sandbox()
        self.bad("fork", "00000000000000000000000001", says=["no such sandbox"])
        theirs = self.sandbox(at=self.green)
        self.bad("fork", theirs, at=self.blue, says=["no such sandbox"])
        child = self.begun(one)
        self.bad("fork", one, says=["refused", "held still"])
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=RUN_S)
        ran = self.dsec("fork", one, "5000", "-q")  # as many as there is room for, as a create
        self.assertIn(b"_max", ran.stderr)
        self.good("rm", *ran.stdout.decode().split())
        self.check_nothing_came_of_it(one)
        self.fork(theirs, 1, at=self.green)  # who may not pack may fork

    # ---- early ends ----

    def begun(self, one, *words, engine=None, name="early"):
        """A pack on its way: `early`, while its sandbox stands still, or `late`, when it is read."""
        engine = engine or self.engine
        child = engine.start("image", "pack", one, "--name", name, *words)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        self.assertTrue(eventually(lambda: b"sleep" in b"".join(self.shown(engine))), "it runs")
        return child

    def shown(self, engine):
        """What anybody sees of the processes of jobs."""
        seen = []
        for group in engine.groups():
            with contextlib.suppress(OSError):  # they end meanwhile
                for pid in (group / "cgroup.procs").read_text().split():
                    seen += [Path("/proc", pid, what).read_bytes()
                             for what in ("cmdline", "environ")]
        return seen

    def check_nothing_came_of_it(self, one):
        self.check_nothing_is_left()
        self.assertEqual({"early", "late"} & self.names(), set())
        self.assertEqual(self.sh(one, "echo goes on"), "goes on\n")

    def test_nothing_begins_while_a_sandbox_stands_still(self):
        one = self.sandbox()
        child = self.begun(one)
        self.bad("exec", one, "--", "true", says=["refused", "held still"])
        self.bad("image", "pack", one, "--name", "x", says=["refused", "held still"])
        self.bad("cat", f"{one}:/etc/passwd", says=["refused", "held still"])
        child.send_signal(signal.SIGINT)
        self.assertIn(b"cancelled", child.communicate(timeout=RUN_S)[1])
        self.check_nothing_came_of_it(one)

    def test_a_canary_is_no_argument_of_a_process(self):
        one = self.sandbox()
        child = self.begun(one, "--scan", SECRET, "--wipe", "/of/the/rules")
        seen = self.shown(self.engine)
        self.assertTrue(any(b"early" in text for text in seen), seen)
        self.assertFalse(any(SECRET.encode() in text or b"/of/the" in text for text in seen), seen)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=RUN_S)
        self.check_nothing_came_of_it(one)

    def test_a_job_that_is_killed_costs_itself_alone(self):
        one = self.sandbox()
        for name in ("early", "late"):
            with self.subTest(name):
                child = self.begun(one, name=name)
                for group in self.engine.groups():
                    for pid in (group / "cgroup.procs").read_text().split():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(int(pid), signal.SIGKILL)
                self.assertIn(b"program was killed", child.communicate(timeout=RUN_S)[1])
                self.check_nothing_came_of_it(one)

    def test_an_engine_that_is_killed_midway_leaves_nothing_to_the_next(self):
        for name in ("early", "late"):
            with self.subTest(name):
                engine = Engine(self.folder, f"killed-{name}", self.images, "--store-program",
                                self.store)
                self.addCleanup(engine.stop)
                one = engine.dsec("create", "base", "-q").stdout.decode().strip()
                child = self.begun(one, engine=engine, name=name)
                os.kill(engine.child(), signal.SIGKILL)
                child.kill()  # it would wait for the next engine
                child.communicate(timeout=RUN_S)
                self.assertTrue(eventually(lambda: engine.dsec("ps", "-q").returncode == 0))
                self.assertTrue(eventually(lambda: not engine.groups()), engine.groups())
                scratch = self.images / ".import"
                self.assertTrue(eventually(lambda: not [*scratch.glob(f"{engine.instance}*/*")]),
                                [*scratch.glob("*/*")])
                for left in engine.dsec("ps", "-q").stdout.decode().split():
                    ran = engine.dsec("exec", left, "--", "echo", "goes on")
                    self.assertEqual(ran.stdout, b"goes on\n", ran.stderr)
                self.assertEqual({"early", "late"} & self.names(), set())
                self.assertFalse([*self.images.glob("early.*"), *self.images.glob("late.*")])

    def test_a_sandbox_that_is_destroyed_ends_its_pack(self):
        one = self.sandbox()
        child = self.begun(one)
        self.good("rm", one)
        self.assertIn(b"cancelled", child.communicate(timeout=RUN_S)[1])
        self.check_nothing_is_left()
        self.assertNotIn("early", self.names())

    def test_an_engine_that_stops_midway_leaves_nothing(self):
        engine = Engine(self.folder, "stops", self.images, "--store-program", self.store)
        made = engine.dsec("create", "base", "-q")
        self.assertEqual(made.returncode, 0, made.stderr)
        child = self.begun(made.stdout.decode().strip(), engine=engine)
        engine.stop()
        child.kill()  # it would wait for another engine
        child.communicate(timeout=RUN_S)
        self.assertIn("nothing is left", engine.log.read_text())
        self.assertEqual([*(self.images / ".import").glob(f"*{engine.instance}*")], [])
        self.assertFalse((self.images / "early.erofs").exists())


if __name__ == "__main__":
    unittest.main()
