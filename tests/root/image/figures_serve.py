#!/usr/bin/env python3
"""What serving costs, beside the same bytes in the store: python3 figures_serve.py, by hand."""
import concurrent.futures
import os
import random
import shutil
import subprocess
import time
import unittest

import test_engine_serve as serve

CHUNK, MEGABYTE = serve.CHUNK, 1 << 20


class Figures(serve.ServedTest):
    """Reads of a sandbox's file from outside, so that only the file systems are in the way."""

    def opened(self, name):
        """The file as a sandbox of the image has it: a descriptor."""
        sandbox = self.engine.dsec("create", "-q", name).stdout.decode().strip()
        self.engine.dsec("exec", "-d", sandbox, "--", "/bin/busybox", "sleep", f"1{name[-1]}00")
        place = self.inside(f"1{name[-1]}00") / "root/data"
        fd = os.open(place, os.O_RDONLY)
        self.addCleanup(os.close, fd)
        return fd

    def sequential(self, fd, size):
        begin = time.monotonic()
        for at in range(0, size, MEGABYTE):
            os.pread(fd, MEGABYTE, at)
        return size / MEGABYTE / (time.monotonic() - begin)

    def test_figures(self):
        size = 64 * MEGABYTE - 4 * MEGABYTE
        for name in ("cold1", "cold2", "here3"):
            self.image(name, {"data": os.urandom(size)})
            if name == "here3":
                blobs = self.images / "blobs/sha256"
                blobs.mkdir(parents=True)
                shutil.copy(self.segment, blobs)
        self.start()
        here, cold, spread = (self.opened(name) for name in ("here3", "cold1", "cold2"))
        print(f"sequential, in the store:    {self.sequential(here, size):8.0f} MB/s")
        print(f"sequential, cold, directory: {self.sequential(cold, size):8.0f} MB/s")
        # One block of each chunk, in no order: every read is a miss.
        places = [at for at in range(0, size - CHUNK, CHUNK)]
        random.Random(1).shuffle(places)
        alone, places = places[:100], places[100:]
        times = []
        for at in alone:
            begin = time.monotonic()
            os.posix_fadvise(spread, 0, 0, os.POSIX_FADV_RANDOM)
            os.pread(spread, 4096, at)
            times.append(time.monotonic() - begin)
        print(f"a miss, alone:               {sorted(times)[50] * 1e6:8.0f} us p50")
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            list(pool.map(lambda at: os.pread(spread, 4096, at), places))
        rate = len(places) / (time.monotonic() - begin)
        print(f"misses, 64 readers:          {rate:8.0f} /s")
        self.engine.dsec("check")
        subprocess.run(["sync"], check=True, timeout=60)
        print(f"cached: {self.cached() / MEGABYTE:.1f} MB of two segments of {size / MEGABYTE:.0f}")


def load_tests(*_):
    return unittest.TestSuite([Figures("test_figures")])


if __name__ == "__main__":
    unittest.main()
