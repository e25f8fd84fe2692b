#!/usr/bin/env python3
"""Images whose contents are segments: files of their own, which the image names by digest."""
import ctypes
import hashlib
import json
import mmap
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import test_image_engine as neighbour
from gated_remote import GatedRemote
from importer import libc, mounts_of_our_own, must
from slow_remote import SlowRemote

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


def needs_fuse():
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        raise unittest.SkipTest(f"/dev/fuse: {error.strerror}") from error


def not_emulated(test):
    """A guest under emulation tries what depends on the kernel; the rest is the engine's own."""
    return test if neighbour.SLOWNESS <= 1 else None


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

    @not_emulated
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
        self.refused("missing", "not on this node: segment ffffffffffff", "f" * 64)
        self.refused("missing", "[platform]", "f" * 64)

    @not_emulated
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

    @not_emulated
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

    engines = 0

    @classmethod
    def setUpClass(cls):
        needs_fuse()
        mounts_of_our_own()

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="dsec-serve-test."))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.images = self.folder / "images"
        self.images.mkdir()
        self.remote = Remote(self.folder / "remote")
        self.cache = self.images / "cache"
        self.engine = self.slow = None

    def start(self, *options, address=None, **how):
        ServedTest.engines += 1
        self.engine = neighbour.Engine(self.folder, f"serve{self.engines}", self.images, "--remote",
                                       address or f"dir:{self.remote.folder}", *options, **how)
        self.addCleanup(self.stop)
        return self.engine

    def stop(self):
        if self.slow:
            self.slow.open()  # what the kernel reads for an engine is waited for when it ends
        if self.engine:
            engine, self.engine = self.engine, None
            engine.stop()
            self.assertEqual(engine.process.returncode, 0, engine.log.read_text())

    def slow_remote(self):
        """The remote is a file system that answers reads when it is allowed to."""
        source = self.folder / "source"
        source.mkdir()
        self.slow = SlowRemote(source, self.remote.blobs)
        self.addCleanup(self.slow.close)
        self.remote.blobs = source
        return self.slow

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

    # ---- a remote that lies ----

    @not_emulated
    def test_every_lie_is_an_error_and_never_other_bytes(self):
        self.start("--remote-timeout", "3s")
        for number, (what, lie) in enumerate(LIES.items()):
            with self.subTest(what):
                name, data = f"lie{number}", os.urandom(500000)
                contents = self.image(name, {"data": data})
                path = self.table if "table" in what else self.segment
                true, at = path.read_bytes(), contents.find(data) + 200000
                path.unlink()
                lie(path, true, at if path == self.segment else 0)
                begin = time.monotonic()
                code, sums, said = self.sums(name, "/data")
                self.assertLess(time.monotonic() - begin, 60 * neighbour.SLOWNESS)
                self.assertNotEqual(code, 0, what)
                self.assertEqual(sums, [])
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                path.write_bytes(true)
                code, sums, said = self.sums(name, "/data")
                self.assertEqual((code, sums), (0, [sha(data)]), (what, said))
        self.assertIn("has other bytes than its digest says", self.engine.log.read_text())

    @not_emulated
    def test_a_remote_that_hangs_is_an_error_in_time_and_harms_nobody_else(self):
        slow = self.slow_remote()
        data = os.urandom(500000)
        self.image("slow", {"data": data})
        other = os.urandom(100000)
        self.image("other", {"data": other})
        self.start("--remote-timeout", "3s")
        self.assertEqual(self.sums("other", "/data")[1], [sha(other)])
        sandbox = self.engine.dsec("create", "-q", "slow").stdout.decode().strip()
        # All of the program, or its pages are what is missing.
        ran = self.engine.dsec("exec", sandbox, "--", "/bin/busybox", "sha256sum", "/bin/busybox")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        slow.shut()
        begin = time.monotonic()
        reader = self.engine.start("exec", sandbox, "--", "/bin/busybox", "sha256sum", "/data")
        self.assertTrue(slow.waiting.wait(30), "it is asked")
        code, sums, said = self.sums("other", "/data")
        self.assertEqual((code, sums), (0, [sha(other)]), (said, "others go on"))
        out, said = reader.communicate(timeout=60 * neighbour.SLOWNESS)
        self.assertEqual(out, b"")
        self.assertIn(b"Input/output error", said)
        self.assertGreater(time.monotonic() - begin, 1)
        slow.open()
        ran = self.engine.dsec("exec", sandbox, "--", "/bin/busybox", "sha256sum", "/data")
        self.assertEqual(ran.stdout.decode().split()[0], sha(data))

    def test_who_waits_for_contents_is_killed_at_once(self):
        slow = GatedRemote(self.remote.blobs)
        self.addCleanup(slow.close)
        self.image("slow", {"data": os.urandom(500000)})
        self.start("--remote-timeout", "1h", address=slow.address)
        sandbox = self.engine.dsec("create", "-q", "slow").stdout.decode().strip()
        self.engine.dsec("exec", sandbox, "--", "/bin/busybox", "true")
        slow.shut()
        reader = self.engine.start("exec", sandbox, "--", "/bin/busybox", "sha256sum", "/data")
        self.assertTrue(slow.waiting.wait(30), "it is asked")
        ran = self.engine.dsec("rm", sandbox)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        reader.communicate(timeout=60)
        self.assertNotEqual(reader.returncode, 0)

    # ---- the cache ----

    @not_emulated
    def test_the_cache_stays_within_its_bytes_and_reads_stay_right(self):
        limit = 4 << 20
        images = {f"many{n}": os.urandom(900000) for n in range(8)}
        for name, data in images.items():
            self.image(name, {"data": data})
        self.start("--image-cache", "4M")
        for _ in range(2):
            for name, data in images.items():
                code, sums, said = self.sums(name, "/data")
                self.assertEqual((code, sums), (0, [sha(data)]), said)
                self.assertLessEqual(self.cached(), limit)
        # Nobody has them any more: room is made for others.
        for name in images:
            (self.images / f"{name}.erofs").unlink()
        kept = {path.name for path in self.cache.glob("*.data")}

        def room_is_made():
            room_is_made.count += 1
            data = os.urandom(900000)
            self.image(f"more{room_is_made.count}", {"data": data})
            self.assertEqual(self.sums(f"more{room_is_made.count}", "/data")[1], [sha(data)])
            self.assertLessEqual(self.cached(), limit)
            return kept - {path.name for path in self.cache.glob("*.data")}
        room_is_made.count = 0
        self.assertTrue(neighbour.eventually(room_is_made), list(self.cache.iterdir()))

    @not_emulated
    def test_what_the_next_engine_finds_is_checked_before_it_is_shown(self):
        files = {f"file{n}": os.urandom(300000) for n in range(4)}
        contents = self.image("kept", files)
        sums = [sha(data) for data in files.values()]
        names = [f"/{name}" for name in files]
        self.start()
        self.assertEqual(self.sums("kept", *names[:2])[1], sums[:2])
        self.assertTrue(neighbour.eventually(self.synced))
        os.kill(self.engine.child(), signal.SIGKILL)
        self.assertTrue(neighbour.eventually(lambda: self.sums("kept", *names[:1])[1] == sums[:1]))
        self.stop()
        # The disk changed a byte, and cut nothing off.
        path = next(self.cache.glob("*.data"))
        at = contents.find(files["file1"]) + 100000
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(bytes([contents[at] ^ 1]))
        self.start()
        self.assertEqual(self.sums("kept", *names)[1], sums)
        self.assertIn("where=cache", self.engine.log.read_text())
        self.stop()
        for damage in (b"", b"garbage" * 1000):
            next(self.cache.glob("*.map")).write_bytes(damage)
            self.start()
            self.assertEqual(self.sums("kept", *names)[1], sums)
            self.stop()

    def synced(self):
        """Some bits are written: of what is in the cache."""
        return any(any(path.read_bytes()[4096:4100]) for path in self.cache.glob("*.map"))

    @not_emulated
    def test_a_segment_that_is_whole_needs_no_remote(self):
        data = os.urandom(300000)
        contents = self.image("whole", {"data": data})
        self.start()
        self.engine.dsec("run", "whole", "--", "/bin/busybox", "cat", "/data",
                         "/bin/busybox")
        self.assertTrue(neighbour.eventually(lambda: "whole=1" in self.status("whole")))
        self.segment.unlink()
        self.table.unlink()
        self.assertEqual(self.sums("whole", "/data")[1], [sha(data)])
        self.assertEqual(next(self.cache.glob("*.data")).read_bytes(), contents)

    @not_emulated
    def test_what_was_asked_for_most_is_the_hot_set(self):
        contents = self.image("hot", {"data": os.urandom(300000)})
        self.start()
        self.assertEqual(json.loads(self.engine.dsec("image", "hotset", "--json").stdout)["segments"],
                         [])
        self.sums("hot", "/data")
        self.stop()
        self.start()
        for words in (["hotset"], ["hotset", "hot"]):
            report = json.loads(self.engine.dsec("image", *words, "--json").stdout)
            row = report["segments"][0]
            self.assertEqual((row["digest"], row["bytes"]),
                             ("sha256:" + sha(contents), len(contents)))
            self.assertGreaterEqual(row["asked_bytes"], 300000)
            self.assertGreaterEqual(report["covered_bytes"] * 100, report["asked_bytes"] * 70)

    def status(self, name):
        """What the log says of the devices of an image that is mounted anew."""
        path = self.images / f"{name}.erofs"
        copy = path.with_suffix(".new")
        copy.write_bytes(path.read_bytes())
        copy.rename(path)
        self.assertTrue(neighbour.eventually(lambda: self.sums(name, "/bin/busybox")[0] == 0))
        lines = [line for line in self.engine.log.read_text().splitlines() if "devices" in line]
        return lines[-1] if lines else ""

    @not_emulated
    def test_a_full_disk_costs_the_cache_and_not_the_read(self):
        data = os.urandom(3 << 20)
        self.image("full", {"data": data})
        self.cache.mkdir()
        must(libc.mount(b"none", str(self.cache).encode(), b"tmpfs", 0, b"size=1M"))
        self.addCleanup(libc.umount2, str(self.cache).encode(), 2)
        self.start()
        for _ in range(2):
            code, sums, said = self.sums("full", "/data")
            self.assertEqual((code, sums), (0, [sha(data)]), said)
        self.assertTrue(neighbour.eventually(
            lambda: "not cached=" in self.engine.log.read_text()))
        self.stop()

    def in_memory(self):
        """Bytes of the cache's data that are in the page cache."""
        pages = 0
        for path in self.cache.glob("*.data"):
            with open(path, "rb") as file:
                with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE,
                               flags=mmap.MAP_PRIVATE) as data:
                    present = (ctypes.c_ubyte * (len(data) // 4096))()
                    where = ctypes.addressof(ctypes.c_char.from_buffer(data))
                    must(libc.mincore(ctypes.c_void_p(where), ctypes.c_size_t(len(data)), present))
                    pages += sum(page & 1 for page in present)
        return pages * 4096

    @not_emulated
    def test_what_was_read_is_in_memory_once(self):
        kind = subprocess.run(["stat", "-fc", "%T", self.folder], capture_output=True, text=True,
                              timeout=60, check=True).stdout.strip()
        if kind == "tmpfs":
            self.skipTest("tmpfs: what it holds is in memory")
        data = os.urandom(8 << 20)
        self.image("once", {"data": data})
        self.start()
        self.assertEqual(self.sums("once", "/data")[1], [sha(data)])
        self.assertGreaterEqual(self.cached(), len(data))
        self.assertTrue(neighbour.eventually(lambda: self.in_memory() < len(data) / 8),
                        self.in_memory())
        self.assertEqual(self.sums("once", "/data")[1], [sha(data)])

    @not_emulated
    def test_a_second_engine_is_told_that_the_cache_is_anothers(self):
        self.image("shared", {"data": os.urandom(100000)})
        self.start()
        second = neighbour.Engine(self.folder, "second", self.images, "--remote",
                                  f"dir:{self.remote.folder}")
        self.addCleanup(second.stop)
        self.assertIn("another engine has it", second.log.read_text())
        ran = second.dsec("run", "shared", "--", "/bin/busybox", "true")
        self.assertEqual(ran.returncode, 125, ran.stderr)
        self.assertIn(b"not on this node", ran.stderr)

    @not_emulated
    def test_what_an_earlier_time_began_with_comes_before_it_is_asked_for(self):
        data = os.urandom(2 << 20)
        self.image("listed", {"data": data})
        self.start()
        self.assertEqual(self.sums("listed", "/data")[1], [sha(data)])
        self.stop()
        self.assertEqual(len(list(self.cache.glob("*.list"))), 1)
        for end in ("data", "map"):
            next(self.cache.glob(f"*.{end}")).unlink()
        self.start()
        ran = self.engine.dsec("run", "listed", "--", "/bin/busybox", "true")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertTrue(neighbour.eventually(lambda: self.cached() >= len(data)), self.cached())

    # ---- engines that end ----

    def blocked_reader(self, data):
        """A thread in the middle of a read that nobody answers; what it got goes into a list."""
        slow = GatedRemote(self.remote.blobs)
        self.addCleanup(slow.close)
        self.image("slow", {"data": data})
        self.start("--remote-timeout", "10m", address=slow.address, lives_on=True)
        sandbox = self.engine.dsec("create", "-q", "slow").stdout.decode().strip()
        ran = self.engine.dsec("exec", "-d", sandbox, "--", "/bin/busybox", "sleep", "1000")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        file = open(self.inside("sleep") / "root/data", "rb", buffering=0)
        self.addCleanup(file.close)
        slow.shut()
        got = []

        def read():
            try:
                got.append(b"".join(iter(lambda: file.read(1 << 20), b"")))
            except OSError as error:
                got.append(error.errno)
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        self.assertTrue(slow.waiting.wait(30), "it is asked")
        return slow, thread, got

    def inside(self, name):
        found = []

        def look():
            for path in Path("/proc").glob("[0-9]*"):
                try:
                    words = (path / "cmdline").read_bytes().split(b"\0")
                    if name.encode() in words and (path / "root/data").exists():
                        found.append(path)
                except OSError:
                    continue
            return found
        self.assertTrue(neighbour.eventually(look))
        return found[0]

    def test_a_reader_has_right_bytes_after_its_engine_was_killed(self):
        data = os.urandom(1 << 20)
        slow, thread, got = self.blocked_reader(data)
        os.kill(self.engine.child(), signal.SIGKILL)
        self.assertTrue(neighbour.eventually(
            lambda: "of an engine before goes on" in self.engine.log.read_text()),
            self.engine.log.read_text())
        self.assertEqual(got, [])
        slow.open()
        thread.join(timeout=60 * neighbour.SLOWNESS)
        self.assertFalse(thread.is_alive(), self.engine.log.read_text())
        self.assertEqual([g if isinstance(g, int) else sha(g) for g in got], [sha(data)])

    @not_emulated
    def test_a_reader_is_told_at_once_when_engine_and_keeper_are_gone(self):
        slow, thread, got = self.blocked_reader(os.urandom(1 << 20))
        engine, self.engine = self.engine, None
        child = engine.child()
        engine.process.kill()
        os.kill(child, signal.SIGKILL)
        engine.process.wait(timeout=60)
        thread.join(timeout=30 * neighbour.SLOWNESS)
        self.assertFalse(thread.is_alive())
        self.assertEqual(got, [5], "EIO")
        slow.open()
        os.close(engine.lifeline)
        subprocess.run([neighbour.DSECD, "--uninstall", "--instance", engine.instance],
                       capture_output=True, timeout=60, check=False)


def flipped(path, true, at):
    path.write_bytes(true[:at] + bytes([true[at] ^ 1]) + true[at + 1:])


LIES = {
    "a byte differs": flipped,
    "it is cut off": lambda path, true, at: path.write_bytes(true[:at]),
    "it is missing": lambda path, true, at: None,
    "it is a folder": lambda path, true, at: path.mkdir(),
    "it is a pipe": lambda path, true, at: os.mkfifo(path),
    "it is another": lambda path, true, at: path.write_bytes(os.urandom(len(true))),
    "a byte of the table differs": flipped,
    "the table is cut off": lambda path, true, at: path.write_bytes(true[:len(true) - 1]),
    "the table is missing": lambda path, true, at: None,
}

if __name__ == "__main__":
    unittest.main(verbosity=2)
