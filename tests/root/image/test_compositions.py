#!/usr/bin/env python3
"""Images of several, base+workspace+tools, against a real engine."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import test_image_engine as neighbour
from importer import mounts_of_our_own, record_of

SEAL = os.environ["SEAL_FOLDER"]
PARTS = 100


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def whiteout(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, 0o20000 | 0, 0)


class CompositionsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        mounts_of_our_own()
        # Where device nodes may be made, and EROFS read.
        cls.folder = Path(tempfile.mkdtemp(prefix="dsec-compose.", dir="/var/tmp"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.images = cls.folder / "images"
        cls.images.mkdir()
        base = cls.folder / "base"
        for name in ("bin", "dev/pts", "proc", "tmp"):
            (base / name).mkdir(parents=True)
        (base / "bin/busybox").write_bytes(neighbour.busybox())
        (base / "bin/busybox").chmod(0o755)
        for name in ("data/kept", "data/gone", "data/later", "opt/tool/old", "kind/was-folder/x"):
            write(base / name, "base\n")
        write(base / "kind/was-file", "base\n")
        workspace = cls.folder / "workspace"
        write(workspace / "data/later", "workspace\n")
        write(workspace / "work/file", "workspace\n")
        whiteout(workspace / "data/gone")
        write(workspace / "opt/tool/new", "workspace\n")
        os.setxattr(workspace / "opt/tool", "trusted.overlay.opaque", b"y")
        write(workspace / "kind/was-folder", "file\n")
        write(workspace / "kind/was-file/x", "folder\n")
        (workspace / "data").chmod(0o711)
        cls.tool_make("tool", "1")
        cls.seal(base=base, workspace=workspace, tool=cls.folder / "tool")
        cls.engine = neighbour.Engine(cls.folder, "composetest", cls.images)
        cls.addClassCleanup(cls.engine.stop)

    @classmethod
    def seal(cls, **folders):
        words = [word for name, folder in folders.items() for word in (name, folder)]
        subprocess.run([SEAL, cls.images, *words], check=True, timeout=60 * neighbour.SLOWNESS,
                       stdout=subprocess.DEVNULL)

    @classmethod
    def tool_make(cls, name, version):
        write(cls.folder / name / f"tools/{name}", f"{version}\n")
        write(cls.folder / name / "data/later", f"{name} {version}\n")

    def shell(self, image, script):
        return self.engine.dsec("run", image, "--", "/bin/busybox", "sh", "-c", script)

    def says(self, image, script):
        ran = self.shell(image, script)
        self.assertEqual(ran.returncode, 0, (image[:200], ran.stdout, ran.stderr))
        return ran.stdout.decode().split()

    def refused(self, image, text):
        ran = self.shell(image, "echo ran")
        self.assertNotEqual(ran.returncode, 0, (image[:200], ran.stdout))
        self.assertIn(text, ran.stderr.decode())

    def composed(self):
        folder = self.images / "composed"
        return {path.name for path in folder.iterdir()} if folder.exists() else set()

    def test_parts_lie_over_each_other(self):
        image = "base+workspace+tool"
        self.assertEqual(self.says(image, "cat /data/kept /data/later /work/file /tools/tool"),
                         ["base", "tool", "1", "workspace", "1"])
        self.assertEqual(self.says(image, "ls /data; ls /opt/tool"), ["kept", "later", "new"])
        self.assertEqual(self.says(image, "cat /kind/was-folder /kind/was-file/x"),
                         ["file", "folder"])
        self.assertEqual(self.says(image, "stat -c %a /data"), ["755"])
        self.assertEqual(self.says("base+workspace", "stat -c %a /data; cat /data/later"),
                         ["711", "workspace"])
        self.assertEqual(self.says("base+tool+workspace", "cat /data/later"), ["workspace"])
        self.assertEqual(self.says("base", "cat /data/gone /opt/tool/old"), ["base", "base"])

    def test_what_is_composed_is_made_once(self):
        self.tool_make("once", "1")
        self.seal(once=self.folder / "once")
        before = self.composed()
        runs = [self.engine.start("run", "base+once", "--", "/bin/busybox", "cat", "/tools/once")
                for _ in range(8)]
        for run in runs:
            out, errors = run.communicate(timeout=neighbour.RUN_S)
            self.assertEqual((run.returncode, out), (0, b"1\n"), errors)
        self.assertEqual(len(self.composed() - before), 1)
        self.assertEqual(self.engine.log.read_text().count('image ready name="base+once"'), 1)

    def test_a_changed_part_is_another_composition(self):
        self.tool_make("changed", "1")
        self.seal(changed=self.folder / "changed")
        old = self.engine.dsec("create", "base+changed").stdout.decode().strip()
        before = self.composed()
        self.tool_make("changed", "2")
        self.seal(changed=self.folder / "changed")
        self.assertTrue(neighbour.eventually(
            lambda: self.says("base+changed", "cat /tools/changed") == ["2"]))
        self.assertEqual(len(self.composed() - before), 1)
        ran = self.engine.dsec("exec", old, "/bin/busybox", "cat", "/tools/changed")
        self.assertEqual(ran.stdout, b"1\n", ran.stderr)
        self.assertEqual(self.engine.dsec("rm", old).returncode, 0)

    def test_the_same_part_anew_is_no_other_composition(self):
        self.tool_make("same", "1")
        self.seal(same=self.folder / "same")
        self.assertEqual(self.says("base+same", "cat /tools/same"), ["1"])
        before = self.composed()
        self.seal(same=self.folder / "same")
        self.assertEqual(self.says("base+same", "cat /tools/same"), ["1"])
        self.assertEqual(self.composed(), before)

    def test_a_hundred_parts(self):
        names = [f"t{number}" for number in range(10)]
        for name in names:
            self.tool_make(name, "1")
        self.seal(**{name: self.folder / name for name in names})
        for number in range(10, PARTS - 1):
            shutil.copy(self.images / f"t{number % 10}.erofs", self.images / f"t{number}.erofs")
        image = "+".join(["base", *(f"t{number}" for number in range(PARTS - 1))])
        self.assertEqual(self.says(image, "cat /tools/*; cat /data/later"), ["1"] * 10 + ["t8", "1"])
        rows = self.engine.dsec("create", image)
        self.assertEqual(rows.returncode, 0, rows.stderr)
        listed = self.engine.dsec("ps", "--json").stdout.decode()
        self.assertIn(image, listed)
        self.assertEqual(self.engine.dsec("rm", rows.stdout.decode().strip()).returncode, 0)
        self.refused("+".join(["base"] * 129), "at most 128")

    def test_names_that_are_none_are_refused(self):
        for name in ("base+", "+base", "base++tool", "base+../x", "base+composed/x", "composed/x"):
            self.refused(name, "letters, digits")
        self.refused("base+absent", "no such image")

    def test_a_part_that_is_not_of_the_store_is_refused(self):
        subprocess.run(["mkfs.erofs", "--quiet", self.images / "plain.erofs", self.folder / "tool"],
                       check=True, timeout=60, stdout=subprocess.DEVNULL)
        self.refused("base+plain", "import it anew")
        ran = self.engine.dsec("image", "compose", "made", "base", "plain")
        self.assertIn("not of the store: import it anew: plain", ran.stderr.decode())

    def test_what_cannot_be_made_is_told_and_leaves_nothing(self):
        self.tool_make("broken", "1")
        before = set((self.images / "blobs/sha256").iterdir())
        self.seal(broken=self.folder / "broken")
        kept = {}
        for blob in set((self.images / "blobs/sha256").iterdir()) - before:
            kept[blob] = blob.read_bytes()
            blob.write_bytes(b"x" * len(kept[blob]))
        composed = self.composed()
        self.refused("base+broken", "damaged")
        self.assertEqual(self.composed(), composed)
        for blob, contents in kept.items():
            blob.write_bytes(contents)
        self.assertEqual(self.says("base+broken", "cat /tools/broken"), ["1"])
        self.assertTrue(neighbour.eventually(lambda: not self.engine.groups()))

    def test_a_program_that_fails_or_hangs_is_told_of_and_leaves_nothing(self):
        program, mark = self.folder / "program", self.folder / "mark"
        program.write_text(f"#!/bin/sh\n[ -e {mark} ] || {{ : >{mark}; exit 1; }}\nexec sleep 300\n")
        program.chmod(0o755)
        self.tool_make("hangs", "1")
        self.seal(hangs=self.folder / "hangs")
        engine = neighbour.Engine(self.folder, "hangtest", self.images, "--store-program", program)
        try:
            ran = engine.dsec("run", "base+hangs", "--", "/bin/busybox", "true")
            self.assertIn("was killed: see the log", ran.stderr.decode())
            self.assertTrue(neighbour.eventually(lambda: not engine.groups()))
            run = engine.start("run", "base+hangs", "--", "/bin/busybox", "true")
            self.assertTrue(neighbour.eventually(engine.groups))
        finally:
            engine.stop()
        run.kill()  # it waits for an engine that comes back
        run.communicate(timeout=neighbour.RUN_S)
        self.assertEqual(engine.process.returncode, 0, engine.log.read_text())
        self.assertEqual(list((self.images / ".import").glob("*hangtest*")), [])

    def program(self, name, before):
        """The store's program, behind some lines of shell. Descriptor 0 has the parts, each with a NUL."""
        program = self.folder / name
        program.write_text(f"#!/bin/sh\n{before}\nexec {neighbour.BUILD}/engine/dsec-store \"$@\"\n")
        program.chmod(0o755)
        return program

    def test_what_takes_too_long_is_told_and_leaves_nothing(self):
        mark = self.folder / "late-mark"
        program = self.program("late-program", f"[ -e {mark} ] || {{ : >{mark}; sleep 300 & exec sleep 300; }}")
        self.tool_make("late", "1")
        self.seal(late=self.folder / "late")
        composed = self.composed()
        engine = neighbour.Engine(self.folder, "latetest", self.images, "--store-program", program,
                                  "--compose-timeout", "1s")
        self.addCleanup(engine.stop)
        ran = engine.dsec("run", "base+late", "--", "/bin/busybox", "true")
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("longer to make than --compose-timeout", ran.stderr.decode())
        self.assertTrue(neighbour.eventually(lambda: not engine.groups()))
        self.assertTrue(neighbour.eventually(lambda: not engine.left()), engine.left())
        self.assertEqual(self.composed(), composed)
        ran = engine.dsec("run", "base+late", "--", "/bin/busybox", "cat", "/tools/late")
        self.assertEqual(ran.stdout, b"1\n", ran.stderr)

    def test_tenants_take_turns(self):
        names = [f"turn{number}" for number in range(9)] + ["other"]
        for name in names:
            self.tool_make(name, name)
        self.seal(**{name: self.folder / name for name in names})
        manifests = {name: record_of(self.images / f"{name}.erofs")["manifests"][0].split(":")[1]
                     for name in names}
        order, go, door = self.folder / "order", self.folder / "go", self.folder / "green.sock"
        program = self.program("turns-program", f"tr '\\0' '\\n' </proc/self/fd/0 | sed -n 2p >>{order}\n"
                               f"while [ ! -e {go} ]; do sleep 0.05; done")
        engine = neighbour.Engine(self.folder, "turntest", self.images, "--store-program", program,
                                  "--tenant", f"name=green,socket={door}")
        self.addCleanup(engine.stop)
        self.addCleanup(go.touch)
        runs = []

        def want(name, waiting, **where):
            command = ["run", f"base+{name}", "--", "/bin/busybox", "cat", f"/tools/{name}"]
            runs.append((name, subprocess.Popen(
                [neighbour.DSEC, "-H", f"unix:{where.get('socket', engine.socket)}", *command],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)))
            told = "image compose waits"
            self.assertTrue(neighbour.eventually(lambda: engine.log.read_text().count(told) == waiting),
                            engine.log.read_text())
        for number, name in enumerate(names[:-1]):
            want(name, max(0, number - 1))
        want("turn8", 8, socket=door)  # the last of the other's: it need not wait for those before
        want("other", 9, socket=door)
        go.touch()
        for name, run in runs:
            out, errors = run.communicate(timeout=neighbour.RUN_S)
            self.assertEqual((run.returncode, out.decode()), (0, f"{name}\n"), errors)
        begun = order.read_text().split()
        self.assertEqual(len(begun), len(names), "each is made once")
        self.assertLess(begun.index(manifests["turn8"]), 4, begun)
        self.assertLess(begun.index(manifests["other"]), 6, begun)

    def test_a_composition_may_have_a_name(self):
        made = self.engine.dsec("image", "compose", "team/all", "base", "workspace", "tool")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(self.says("team/all", "cat /data/later"), ["tool", "1"])
        self.tool_make("above", "3")
        self.seal(above=self.folder / "above")
        self.assertEqual(self.says("team/all+above", "cat /data/later"), ["above", "3"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
