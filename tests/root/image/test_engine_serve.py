#!/usr/bin/env python3
"""Images whose contents are segments: files of their own, which the image names by digest."""
import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

import test_image_engine as neighbour
from importer import mounts_of_our_own

SUPER, SLOT_BYTES, BLOCK, CHUNK = 1024, 128, 4096, 64 << 10
FOOTER_MAGIC = 0x31474D4943455344


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


def sha(data):
    return hashlib.sha256(data).hexdigest()


def table_of(contents):
    return b"".join(hashlib.sha256(contents[at:at + CHUNK]).digest()
                    for at in range(0, len(contents), CHUNK))


def with_record(image, segments):
    """An image file: with a record that says where contents can be had and how they are checked."""
    record = {"digest": "sha256:" + sha(image), "source": "tree", "created": "",
              "content_bytes": 0, "files": 1, "layers": 1, "user": "", "cwd": "", "env": [],
              "entrypoint": [], "cmd": [], "manifests": ["sha256:" + "0" * 64],
              "segments": len(segments), "segment_bytes": sum(len(s) for s in segments),
              "segment_table": [{"digest": "sha256:" + sha(s), "chunks": "sha256:" +
                                 sha(table_of(s)), "bytes": len(s)} for s in segments]}
    text = json.dumps(record).encode()
    footer = struct.pack("<QQII", FOOTER_MAGIC, len(image), len(text), 1)
    return bytes(image) + text + footer.ljust(64, b"\0")


def rooted(folder, files):
    """A tree that a sandbox can start in, with these files."""
    for name in ("bin", "dev/pts", "proc", "tmp"):
        (folder / name).mkdir(parents=True)
    (folder / "bin/busybox").write_bytes(neighbour.busybox())
    (folder / "bin/busybox").chmod(0o755)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


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
        cls.data = os.urandom(300000)
        tree = rooted(cls.folder / "tree", {"data": cls.data})
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


class Remote:
    """A directory that has what this node has not, and may lie."""

    def __init__(self, folder):
        self.folder = folder
        self.blobs = folder / "blobs/sha256"
        self.blobs.mkdir(parents=True)

    def put(self, data):
        path = self.blobs / sha(data)
        path.write_bytes(data)
        return path


class ServedTest(unittest.TestCase):
    """Contents are elsewhere: they come chunk by chunk when they are read."""

    options = ()

    @classmethod
    def setUpClass(cls):
        mounts_of_our_own()

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="dsec-serve-test."))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.images = self.folder / "images"
        self.images.mkdir()
        self.remote = Remote(self.folder / "remote")
        self.cache = self.images / "cache"
        self.engine = None

    def start(self, *options):
        self.engine = neighbour.Engine(self.folder, "serve", self.images, "--remote",
                                       f"dir:{self.remote.folder}", *options)
        self.addCleanup(self.stop)
        return self.engine

    def stop(self):
        if self.engine:
            engine, self.engine = self.engine, None
            engine.stop()
            self.assertEqual(engine.process.returncode, 0, engine.log.read_text())

    def image(self, name, files):
        """Its metadata is here, its contents are the remote's; the segment's bytes."""
        tree = rooted(self.folder / f"tree-{name}", files)
        image, contents, _ = segmented(self.folder, tree)
        self.segment, self.table = self.remote.put(contents), self.remote.put(table_of(contents))
        (self.images / f"{name}.erofs").write_bytes(with_record(image, [contents]))
        shutil.rmtree(tree)
        return contents

    def sums(self, name, *files):
        ran = self.engine.dsec("run", name, "--", "/bin/busybox", "sha256sum", *files)
        return ran.returncode, [line.split()[0] for line in ran.stdout.decode().splitlines()], \
            ran.stderr.decode()

    def cached(self):
        return sum(path.stat().st_blocks * 512 for path in self.cache.glob("*.data"))

    def test_a_cold_image_reads_as_it_was_made_and_fetches_little_more(self):
        files = {f"file{n}": os.urandom(200000 + n * 70001) for n in range(12)}
        contents = self.image("cold", files)
        self.start()
        for _ in range(2):
            code, sums, said = self.sums("cold", *[f"/{name}" for name in files])
            self.assertEqual(code, 0, (said, self.engine.log.read_text()))
            self.assertEqual(sums, [sha(data) for data in files.values()])
        self.assertTrue(neighbour.eventually(lambda: self.cached() >= len(contents) * 0.9))
        self.assertLessEqual(self.cached(), len(contents) + CHUNK)


if __name__ == "__main__":
    unittest.main(verbosity=2)
