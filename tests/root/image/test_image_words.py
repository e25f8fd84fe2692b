#!/usr/bin/env python3
"""What `dsec image` says where it is used wrongly: the field, the reason, whose fault; and what it shows."""
import json
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from importer import entry, mounts_of_our_own, tar
from test_image_engine import Engine

CONTENT_BYTES = 3 << 20


class WordsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        mounts_of_our_own()
        cls.folder = Path(tempfile.mkdtemp(prefix="dsec-image-words."))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        images, tree = cls.folder / "images", cls.folder / "tree"
        images.mkdir()
        tree.mkdir()
        (tree / "file").write_bytes(b"by hand")
        subprocess.run(["mkfs.erofs", images / "foreign.erofs", tree], check=True, capture_output=True)
        cls.engine = Engine(cls.folder, "imgwords", images)
        cls.addClassCleanup(cls.engine.stop)
        ran = cls.engine.dsec("image", "import", "-", "--name", "own",
                              input=tar(entry("a", b"x" * CONTENT_BYTES)))
        assert ran.returncode == 0, ran.stderr

    def refused(self, *words, step, says, status="invalid"):
        ran = self.engine.dsec("--json", "image", *words)
        self.assertEqual(ran.returncode, 125, ran)
        told = json.loads(ran.stdout.splitlines()[-1])
        self.assertEqual((told["status"], told["blame"], told.get("step")), (status, "caller", step))
        self.assertIn(says, ran.stderr.decode())
        self.assertNotIn("--allow-degraded", ran.stderr.decode())
        return told

    def test_an_image_that_is_not_there_is_named_with_its_field(self):
        for words, step in ((["push", "no", "oci:/x"], "push.name"), (["verify", "no"], "verify.name"),
                            (["hotset", "no"], "hotset.name"), (["inspect", "no"], "image.name"),
                            (["compose", "new", "own", "no"], "compose.part"), (["rm", "no"], "image.name")):
            self.refused(*words, step=step, says="no such image", status="absent")
            self.assertFalse((self.folder / "x").exists())

    def test_an_image_that_is_not_of_the_store_is_said_to_be_and_what_helps(self):
        target = f"oci:{self.folder}/layout"
        for words, step in ((["push", "foreign", target], "push.name"),
                            (["compose", "new", "own", "foreign"], "compose.part")):
            self.refused(*words, step=step, says="import it anew", status="unsupported")
        ran = self.engine.dsec("image", "verify", "foreign")
        self.assertIn(b"1 images were made by other means: nothing to compare them with", ran.stdout)
        self.assertNotIn(b"sound", ran.stdout)
        ran = self.engine.dsec("image", "verify")
        self.assertIn(b"1 images were made by other means", ran.stdout)
        self.assertIn(b"all sound", ran.stdout)

    def test_a_push_litters_no_folder_that_is_none_of_images(self):
        taken, cut, new = self.folder / "taken", self.folder / "cut", self.folder / "new"
        taken.mkdir()
        (taken / "mine").write_text("mine")
        self.refused("push", "own", f"oci:{taken}", step="push.target", says="no image layout")
        self.assertEqual([path.name for path in taken.iterdir()], ["mine"])
        (cut / "blobs" / "sha256").mkdir(parents=True)  # as a push that was killed leaves it
        for folder in (cut, new, new):
            ran = self.engine.dsec("image", "push", "own", f"oci:{folder}")
            self.assertEqual(ran.returncode, 0, ran.stderr)
        (new / "kept by others").write_text("")
        self.assertEqual(self.engine.dsec("image", "push", "own", f"oci:{new}:two").returncode, 0)
        self.refused("push", "own", f"oci:{taken}/mine", step="push.target", says="Not a directory")

    def test_addresses_and_counts_are_told_in_full(self):
        for address in ("docker://registry.example/x", "/tmp", "oci"):
            self.refused("push", "own", address, step="push.target", says="oci:DIR[:TAG]")
        ran = self.engine.dsec("image", "compose", "new", *["own"] * 129)
        self.assertIn(b"1 to 128 PARTs", ran.stderr)
        self.assertEqual(self.engine.dsec("image", "compose", "new", *["own"] * 128).returncode, 0)

    def test_the_size_of_an_image_is_that_of_what_is_in_it(self):
        rows = {row["name"]: row for row in map(json.loads, self.engine.dsec(
            "--json", "image", "ls").stdout.splitlines())}
        self.assertEqual(rows["own"]["content_bytes"], CONTENT_BYTES)
        self.assertLess(rows["own"]["bytes"], CONTENT_BYTES)
        shown = {line.split()[0]: line for line in self.engine.dsec("image", "ls").stdout.decode().splitlines()}
        self.assertIn(" 3.0 MB ", shown["own"])
        self.assertNotIn("MB", shown["foreign"])


if __name__ == "__main__":
    unittest.main()
