#!/usr/bin/env python3
"""import_figures.py ROOT [ROUNDS]: what bringing in a folder's tar costs, beside mkfs.erofs of the folder.

Interleaved, files in the page cache, every result synced. DSEC_BUILD: a build. See docs/images.md.
"""
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from importer import Import

SEAL = os.environ["SEAL_FOLDER"]


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def file_sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def mkfs(root, place):
    image = place / "plain.erofs"
    subprocess.run(["mkfs.erofs", "--quiet", image, root], check=True, stdout=subprocess.DEVNULL)
    file_sync(image)
    image.unlink()


def seal(root, place):
    images = place / "sealed"
    images.mkdir()
    out = subprocess.run([SEAL, images, "it", root], check=True, stdout=subprocess.PIPE).stdout
    shutil.rmtree(images)
    return float(out.split(b"sealed in ")[1].split()[0]) / 1e3


def bring(archive, place, images):
    """As the engine does it: through a pipe."""
    run = Import(None, folder=place, images=images)
    with archive.open("rb") as stream:
        while os.sendfile(run.stream, stream.fileno(), None, 1 << 20):
            pass
    run.end()
    assert run.exit == 0, run.last
    return run


class Figures:
    def __init__(self):
        self.rows = {}

    def take(self, what, work, *words):
        """work() may say itself how long it took."""
        cpu, begun = cpu_s(), time.monotonic()
        result = work(*words)
        wall = result if isinstance(result, float) else time.monotonic() - begun
        self.rows.setdefault(what, []).append((wall, cpu_s() - cpu))
        return result

    def show(self):
        least = min(wall for wall, _ in self.rows["mkfs.erofs, synced"])
        median = statistics.median(wall for wall, _ in self.rows["mkfs.erofs, synced"])
        for what, runs in self.rows.items():
            walls, cpus = zip(*runs)
            print(f"{what:32} wall: median {statistics.median(walls):6.3f} s, least {min(walls):6.3f} s; "
                  f"CPU: median {statistics.median(cpus):6.3f} s; of mkfs.erofs: "
                  f"{statistics.median(walls) / median:4.2f} by medians, {min(walls) / least:4.2f} by least")


def main():
    root, rounds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    place = Path(tempfile.mkdtemp(prefix="dsec-figures.", dir="/var/tmp"))
    figures = Figures()
    try:
        archive = place / "root.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        file_sync(archive)
        print(f"{archive.stat().st_size >> 20} MiB of tar, {rounds} rounds")
        for _ in range(rounds):
            figures.take("mkfs.erofs, synced", mkfs, root, place)
            images = place / "images"
            images.mkdir()
            figures.take("import, nothing is in the store", bring, archive, place, images).remove()
            figures.take("import, all of it is", bring, archive, place, images).remove()
            shutil.rmtree(images)
            figures.take("seal alone, into an empty store", seal, root, place)
        figures.show()
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
