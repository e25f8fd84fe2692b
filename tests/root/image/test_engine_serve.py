#!/usr/bin/env python3
"""Images whose contents are segments: files of their own, which the image names by digest."""
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

import test_image_engine as neighbour
from importer import mounts_of_our_own

SUPER, SLOT_BYTES, BLOCK = 1024, 128, 4096


def segmented(folder, tree):
    """mkfs.erofs's metadata and contents of a tree, with the contents' digest in its table."""
    meta, blob = folder / "meta.erofs", folder / "blob"
    blob.write_bytes(b"")
    subprocess.run(["mkfs.erofs", "--quiet", "-T0", f"--blobdev={blob}", "--chunksize=4096", meta,
                    tree], check=True, timeout=60, stdout=subprocess.DEVNULL)
    image, contents = bytearray(meta.read_bytes()), blob.read_bytes()
    meta.unlink()
    blob.unlink()
    contents += bytes(-len(contents) % BLOCK)
    # The sum is of what we change.
    compat, = struct.unpack_from("<I", image, SUPER + 8)
    struct.pack_into("<I", image, SUPER + 8, compat & ~1)
    slot = struct.unpack_from("<H", image, SUPER + 88)[0] * SLOT_BYTES
    tag(image, slot, hashlib.sha256(contents).hexdigest())
    struct.pack_into("<I", image, slot + 64, len(contents) // BLOCK)
    return image, contents, slot


def tag(image, slot, text):
    struct.pack_into("64s", image, slot, text.encode())


class DevicesTest(unittest.TestCase):
    """All segments are here: the kernel reads their files."""

    @classmethod
    def setUpClass(cls):
        mounts_of_our_own()
        cls.folder = Path(tempfile.mkdtemp(prefix="dsec-serve-test."))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.images = cls.folder / "images"
        cls.blobs = cls.images / "blobs/sha256"
        cls.blobs.mkdir(parents=True)
        tree = cls.folder / "tree"
        for name in ("bin", "dev/pts", "proc", "tmp"):
            (tree / name).mkdir(parents=True)
        (tree / "bin/busybox").write_bytes(neighbour.busybox())
        (tree / "bin/busybox").chmod(0o755)
        cls.data = os.urandom(300000)
        (tree / "data").write_bytes(cls.data)
        cls.image, cls.contents, cls.slot = segmented(cls.folder, tree)
        cls.segment = cls.blobs / hashlib.sha256(cls.contents).hexdigest()
        cls.segment.write_bytes(cls.contents)
        cls.engine = neighbour.Engine(cls.folder, "devtest", cls.images)
        cls.addClassCleanup(cls.engine.stop)

    def put(self, name, image):
        path = self.images / f"{name}.erofs"
        path.write_bytes(image)
        self.addCleanup(path.unlink)

    def sha(self, name):
        return self.engine.dsec("run", name, "--", "/bin/busybox", "sha256sum", "/data")

    def refused(self, name, says, log):
        ran = self.sha(name)
        self.assertEqual(ran.returncode, 125, (ran.stdout, ran.stderr))
        self.assertIn(says, ran.stderr.decode())
        self.assertIn(log, self.engine.log.read_text())

    def test_contents_of_a_segment_are_the_files(self):
        self.put("whole", self.image)
        ran = self.sha("whole")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(ran.stdout.decode().split()[0], hashlib.sha256(self.data).hexdigest())

    def test_a_tag_that_is_no_digest_is_refused(self):
        for number, text in enumerate(("../../../etc/passwd", "A" * 64, "")):
            image = bytearray(self.image)
            tag(image, self.slot, text)
            self.put(f"tag{number}", image)
            self.refused(f"tag{number}", "damaged", "is named by no digest")

    def test_a_segment_that_is_missing_is_told_by_name(self):
        image = bytearray(self.image)
        tag(image, self.slot, "f" * 64)
        self.put("missing", image)
        self.refused("missing", "not on this node", "f" * 64)

    def test_a_segment_of_another_size_or_kind_is_refused(self):
        image = bytearray(self.image)
        struct.pack_into("<I", image, self.slot + 64, len(self.contents) // BLOCK + 1)
        self.put("size", image)
        self.refused("size", "damaged", "another size")
        for number, kind in enumerate((os.mkfifo, os.mkdir, lambda p: p.symlink_to(self.segment))):
            path = self.blobs / str(number).zfill(64)
            kind(path)
            image = bytearray(self.image)
            tag(image, self.slot, path.name)
            self.put(f"kind{number}", image)
            ran = self.sha(f"kind{number}")
            self.assertEqual(ran.returncode, 125, (number, ran.stdout))

    def test_a_table_beyond_the_file_is_refused(self):
        image = bytearray(self.image)
        struct.pack_into("<H", image, SUPER + 86, 1000)
        self.put("beyond", image)
        self.refused("beyond", "damaged", "beyond")


if __name__ == "__main__":
    unittest.main(verbosity=2)
