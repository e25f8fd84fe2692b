#!/usr/bin/env python3
"""Jobs on images against a real engine: what a program of the store leaves, says and dies of."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from importer import entry, mounts_of_our_own, tar
from test_image_engine import DSEC, DSECD, RUN_S, Engine, eventually

# In the place of dsec-store: what it does, the name of its image says.
STORE = r"""#!/usr/bin/python3
import os, struct, sys, time
verb, name = sys.argv[1], sys.argv[5]
texts = os.pread(0, 1 << 20, 0).decode().split("\0")[:-1]
def frame(kind, error=0, step=b"", reason=b""):
    os.write(1, struct.pack("<IiIIQQQIIQQ24s80s256s72s", kind, error, 0, 0, 7, 4096, 0, 0, 0, 1, 2,
                            step, reason, b"", b""))
def scratch(file):
    return open(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=3), "wb")
assert os.path.isdir("/proc/self/fd/4") and all(map(str.isdigit, sys.argv[2:5]))
frame(1)
if name == "hangs" or os.path.exists(sys.argv[0] + ".hangs"):
    os.fork()
    time.sleep(600)
if verb == "compose":
    part = os.open(texts[0] + ".erofs", os.O_RDONLY, dir_fd=4)
    with scratch("image.erofs") as made, open(part, "rb") as of:
        made.write(of.read())
if name == "linked":
    os.symlink("/etc/passwd", "report.json", dir_fd=3)
else:
    with scratch("report.json") as report:
        words = " ".join([verb, sys.argv[4], name, *texts]).encode()
        report.write(b"x" * 70000 if name == "large" else b'{"asked": "%s"}' % words)
if name == "fails":
    frame(3, 2, b"blobs", b"it is not there")
    sys.exit(1)
frame(2)
"""


class JobTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        mounts_of_our_own()
        cls.folder = Path(tempfile.mkdtemp(prefix="dsec-image-jobs."))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        images, program = cls.folder / "images", cls.folder / "store"
        images.mkdir()
        program.write_text(STORE)
        program.chmod(0o755)
        cls.engine = Engine(cls.folder, "imgjobs", images, "--store-program", str(program))
        cls.addClassCleanup(cls.engine.stop)
        ran = cls.engine.dsec("image", "import", "-", "--name", "base", input=tar(entry("a", b"a")))
        assert ran.returncode == 0, ran.stderr

    def good(self, *words):
        ran = self.engine.dsec("--json", "image", *words)
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        return [json.loads(line) for line in ran.stdout.decode().splitlines()]

    def bad(self, *words, says):
        ran = self.engine.dsec("image", *words)
        self.assertEqual(ran.returncode, 125, (ran.stdout, ran.stderr))
        for text in says:
            self.assertIn(text, ran.stderr.decode())
        return ran.stdout.decode()

    def check_nothing_is_left(self):
        self.assertTrue(eventually(lambda: not self.engine.groups()), self.engine.groups())
        self.assertTrue(eventually(lambda: not self.engine.left()), self.engine.left())

    def test_what_it_made_is_published_and_its_report_is_told(self):
        report, row = self.good("compose", "made/one", "base", "base")
        self.assertEqual(report, {"asked": "compose 0 made/one base base"})
        self.assertEqual((row["name"], row["new_bytes"], row["shared_bytes"]), ("made/one", 1, 2))
        self.assertIn("made/one", [row["name"] for row in self.good("ls")])
        self.good("rm", "made/one")
        self.check_nothing_is_left()

    def test_words_and_flags_reach_it_as_they_were_asked(self):
        for words, asked in ((["gc"], "gc 0 "), (["gc", "--dry-run"], "gc 2 "),
                             (["verify"], "verify 0 "), (["verify", "base"], "verify 0 base"),
                             (["push", "base", "oci:/x:y", "--zstd"], "push 4 base oci:/x:y"),
                             (["pull", "oci:/x:y", "base2", "--lazy"], "pull 8 base2 oci:/x:y"),
                             (["hotset"], "hotset 0 ")):
            self.assertEqual(self.good(*words), [{"asked": asked}])
        self.check_nothing_is_left()

    def test_a_failure_is_told_with_its_report(self):
        said = self.bad("verify", "fails", says=["verify.blobs", "it is not there", "absent"])
        self.assertEqual(json.loads(said), {"asked": "verify 0 fails"})
        self.bad("verify", "large", says=["verify.report"])
        self.bad("verify", "linked", says=["verify.report"])
        self.check_nothing_is_left()

    def test_texts_that_make_no_sense_are_refused_by_field(self):
        self.bad("compose", "x", "../base", says=["image.items", "no image's name"])
        self.bad("push", "base", "a\nb", says=["image.items", "control characters"])
        self.bad("compose", ".x", "base", says=["image.name"])

    def test_a_program_that_is_missing_is_named_with_the_remedy(self):
        nowhere = self.folder / "nowhere"
        nowhere.mkdir()
        alone = shutil.copy2(DSECD, nowhere)
        with self.assertRaises(AssertionError) as refused:
            Engine(self.folder, "imgnone", self.folder / "none", program=alone)
        said = str(refused.exception)
        self.assertIn(f'program missing path="{nowhere}/dsec-launcher"', said)
        self.assertIn("or name it by --launcher", said)
        shutil.copy2(Path(DSECD).parent / "dsec-launcher", nowhere)
        engine = Engine(self.folder, "imgsome", self.folder / "none", program=alone)
        self.addCleanup(engine.stop)
        for words, name in ((("import", "-", "--name", "x"), "dsec-import"), (("gc",), "dsec-store")):
            ran = engine.dsec("image", *words, input=b"")
            self.assertEqual(ran.returncode, 125)
            self.assertIn(f"the program {name} is not there".encode(), ran.stderr)
        for option in ("--importer", "--store-program"):
            self.assertIn(f"or name it by {option}", engine.log.read_text())

    def test_of_several_tenants_none_learns_what_others_have_or_does_what_is_of_all(self):
        doors = {name: self.folder / f"{name}.sock" for name in ("blue", "green")}
        engine = Engine(self.folder, "imgmany", self.folder / "many", *[
            word for name, door in doors.items()
            for word in ("--tenant", f"name={name},socket={door}")])
        self.addCleanup(engine.stop)

        def ask(name, *words, **options):
            return subprocess.run([DSEC, "-H", f"unix:{doors[name]}", "--json", "image", *words],
                                  capture_output=True, timeout=RUN_S, check=False, **options)
        for name in doors:
            ran = ask(name, "import", "-", "--name", f"{name}/a", input=tar(entry("a", b"a" * 9000)))
            self.assertEqual(ran.returncode, 0, ran.stderr)
            row = json.loads(ran.stdout)
            self.assertEqual((row["new_bytes"], row["shared_bytes"]), (None, None))
        for words in (["gc"], ["verify"], ["push", "blue/a", "oci:/x"], ["pull", "oci:/x", "blue/b"],
                      ["hotset"], ["compose", "green/b", "blue/a"]):
            self.assertIn(b"denied", ask("blue", *words).stdout, words)
        self.assertIn(b"by the engine's own socket", ask("blue", "gc").stdout)
        # By the engine's own socket root is the operator.
        for words in (["gc"], ["verify"], ["hotset"]):
            ran = engine.dsec("--json", "image", *words)
            self.assertEqual((ran.returncode, ran.stderr), (0, b""), words)
        self.assertIn(b"no such image", ask("blue", "compose", "blue/b", "green/a").stdout)

    def test_an_end_before_its_end_leaves_nothing(self):
        for number, says in ((signal.SIGINT, b"cancelled"), (signal.SIGKILL, b"")):
            child = self.engine.start("image", "verify", "hangs")
            self.assertTrue(eventually(self.engine.groups), "it runs")
            child.send_signal(number)
            _, said = child.communicate(timeout=RUN_S)
            self.assertIn(says, said)
            self.check_nothing_is_left()
        child = self.engine.start("image", "verify", "hangs", "--timeout", "300ms")
        self.assertIn(b"deadline", child.communicate(timeout=RUN_S)[1])
        self.check_nothing_is_left()

    def test_an_interrupt_of_every_long_verb_cancels_it_and_leaves_nothing(self):
        hangs = self.folder / "store.hangs"
        hangs.touch()
        self.addCleanup(hangs.unlink)
        before = [row["name"] for row in self.good("ls")]
        for words in (("import", "-", "--name", "new"), ("compose", "new", "base", "base"), ("gc",),
                      ("verify",), ("verify", "base"), ("push", "base", "oci:/srv/none.example"),
                      ("pull", "oci:/srv/none.example", "new"), ("hotset",)):
            with self.subTest(" ".join(words)):
                child = self.engine.start("image", *words, stdin=subprocess.PIPE)
                self.assertTrue(eventually(self.engine.groups), "it runs")
                group, = self.engine.groups()
                self.assertTrue(eventually((group / "cgroup.procs").read_text), "a process of it")
                child.send_signal(signal.SIGINT)
                out, said = child.communicate(timeout=RUN_S)
                self.assertIn(b"cancelled", said)
                self.assertEqual((child.returncode, out), (128 + signal.SIGINT, b""))
                self.check_nothing_is_left()
        self.assertEqual([row["name"] for row in self.good("ls")], before)

    def test_a_killed_program_is_told(self):
        child = self.engine.start("image", "verify", "hangs", stdin=subprocess.DEVNULL)
        self.assertTrue(eventually(self.engine.groups), "it runs")
        group, = self.engine.groups()
        self.assertTrue(eventually((group / "cgroup.procs").read_text))
        for pid in map(int, (group / "cgroup.procs").read_text().split()):
            with contextlib.suppress(ProcessLookupError):  # all end with the first
                os.kill(pid, signal.SIGKILL)
        self.assertIn(b"program was killed", child.communicate(timeout=RUN_S)[1])
        self.check_nothing_is_left()


if __name__ == "__main__":
    unittest.main()
