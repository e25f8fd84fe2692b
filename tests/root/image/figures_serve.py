#!/usr/bin/env python3
"""What serving costs at a remote of 2 ms, beside the same bytes in the store and in the same run:
python3 figures_serve.py [DELAY_US], by hand, on a machine that does nothing else."""
import os
import random
import shutil
import subprocess
import sys
import time
import unittest
from pathlib import Path

import test_engine_serve as serve

CHUNK, MEGABYTE = serve.CHUNK, 1 << 20
DELAY_US = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
SIZE = 64 * MEGABYTE - 4 * MEGABYTE
FILES, FILE_BYTES = 200, 256 << 10  # 50 MB, as a start reads them: many files in no order
ROUNDS = 3


def say(what, figure):
    print(f"{what + ':':52} {figure}", flush=True)


class Figures(serve.ServedTest):
    """Reads of a sandbox's file from outside, so that only the file systems are in the way."""

    def far(self):
        process = subprocess.Popen([serve.neighbour.BUILD / "tests/unit/delayed_remote", self.remote.blobs, str(DELAY_US)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(process.wait, timeout=10)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        return f"http://127.0.0.1:{process.stdout.readline().decode().strip()}"

    def store(self):
        """The last image's segment is the store's, too."""
        blobs = self.images / "blobs/sha256"
        blobs.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.segment, blobs)

    def opened(self, name):
        """The file as a sandbox of the image has it: a descriptor."""
        sandbox = self.engine.dsec("create", "-q", name).stdout.decode().strip()
        self.engine.dsec("exec", "-d", sandbox, "--", "/bin/busybox", "sleep", f"1{name[-1]}00")
        place = self.inside(f"1{name[-1]}00") / "root/data"
        fd = os.open(place, os.O_RDONLY)
        self.addCleanup(os.close, fd)
        return fd

    def readers(self, fd, threads, size, places):
        """Seconds of all reads, and microseconds of the median one."""
        ran = subprocess.run([serve.neighbour.BUILD / "tests/root/image/readers", str(fd), str(threads), str(size)],
                             input="\n".join(map(str, places)), pass_fds=[fd], text=True,
                             stdout=subprocess.PIPE, timeout=100, check=True)
        return map(float, ran.stdout.split())

    def sequential(self, name):
        took, _ = self.readers(self.opened(name), 1, MEGABYTE, range(0, SIZE, MEGABYTE))
        return f"{SIZE / 1e6 / took:8.0f} MB/s"

    def written(self):
        """What the engine had the kernel write to disks, its caches included."""
        fields = Path(f"/proc/{self.engine.child()}/io").read_text().split()
        return int(fields[fields.index("write_bytes:") + 1])

    def misses(self, name):
        """One block of each chunk, in no order: every read is a miss."""
        fd = self.opened(name)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        places = list(range(0, SIZE - CHUNK, CHUNK))
        random.Random(1).shuffle(places)
        alone, places = places[:100], places[100:]
        _, time_us = self.readers(fd, 1, 4096, alone)
        took, _ = self.readers(fd, 64, 4096, places)
        return f"{time_us:8.0f} us p50", f"{len(places) / took:8.0f} /s"

    def begun(self, name):
        """A start: mounted, made, 50 MB read by a program in it."""
        order = list(range(FILES))
        random.Random(2).shuffle(order)
        words = [f"/f{number}" for number in order]
        before, begin = self.written(), time.monotonic()
        ran = self.engine.dsec("run", name, "--", "/bin/busybox", "sh", "-c", 'cat "$@" >/dev/null',
                               "sh", *words)
        took = time.monotonic() - begin
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.engine.dsec("check")
        return took * 1e3, (self.written() - before) / (FILES * FILE_BYTES)

    def emptied(self):
        """The cache, but for what was noted of an earlier time."""
        self.stop()
        for end in ("data", "map"):
            for path in self.cache.glob(f"*.{end}"):
                path.unlink()

    def test_figures(self):
        address = self.far()
        for name in ("cold1", "cold2", "here3"):
            self.image(name, {"data": os.urandom(SIZE)})
        self.store()
        for name in ("list", "store"):
            self.image(name, {f"f{number}": os.urandom(FILE_BYTES) for number in range(FILES)})
        self.store()
        subprocess.run(["sync"], check=True, timeout=60)
        self.start(address=address)
        say("in order, in the store", self.sequential("here3"))
        before = self.written()
        say(f"in order, cold, {DELAY_US} us away", self.sequential("cold1"))
        say("  bytes written for each", f"{(self.written() - before) / SIZE:8.2f}")
        alone, rate = self.misses("cold2")
        say("a miss, alone", alone)
        say("misses, 64 readers: fetched, checked, cached", rate)
        for number in range(ROUNDS):
            took, _ = self.begun("store")
            say("a start that reads 50 MB, in the store", f"{took:8.0f} ms")
            took, share = self.begun("list")
            say("  the same, cold, no list" if not number else "  the same, cold, by its list",
                f"{took:8.0f} ms, {share:.2f} bytes written for each")
            self.emptied()
            self.start(address=address)


def load_tests(*_):
    return unittest.TestSuite([Figures("test_figures")])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
