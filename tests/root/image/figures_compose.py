#!/usr/bin/env python3
"""figures_compose.py BASE WORKSPACE [ROUNDS]: what a composition costs end to end, through an engine.

Two folders become images, and ROUNDS tools of one file, so that base+workspace+tool is another composition each time.
A sandbox of one that is new, one of it again, and `dsec image compose`; beside a sandbox of the base. DSEC_BUILD and
SEAL_FOLDER: a build. See docs/images.md.
"""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from importer import mounts_of_our_own
from test_image_engine import Engine


def main():
    base, workspace = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 21
    mounts_of_our_own()
    folder = Path(tempfile.mkdtemp(prefix="dsec-compose-figures.", dir="/var/tmp"))
    rows = {}
    try:
        images = folder / "images"
        images.mkdir()
        words = ["base", base, "workspace", workspace]
        for number in range(rounds):
            tool = folder / f"tool{number}"
            tool.mkdir()
            (tool / "tool").write_text(f"{number}\n")
            words += [f"tool{number}", tool]
        subprocess.run([os.environ["SEAL_FOLDER"], images, *words], check=True, stdout=subprocess.DEVNULL)
        engine = Engine(folder, "composefigures", images)
        try:
            figures(engine, rounds, rows)
        finally:
            engine.stop()
    finally:
        shutil.rmtree(folder)
    for what, times in rows.items():
        print(f"{what:36} p50 {statistics.median(times) * 1e3:6.1f} ms, least {min(times) * 1e3:6.1f} ms")


def figures(engine, rounds, rows):
    def take(what, *words):
        begun = time.monotonic()
        ran = engine.dsec(*words)
        rows.setdefault(what, []).append(time.monotonic() - begun)
        if ran.returncode:
            raise AssertionError(ran.stderr)
        return ran.stdout.decode().strip()
    for number in range(rounds):
        name = f"base+workspace+tool{number}"
        made = [take("create, a new composition", "create", name),
                take("create, the same again", "create", name),
                take("create, the base", "create", "base")]
        take("dsec image compose", "image", "compose", "made", "base", "workspace", f"tool{number}")
        engine.dsec("rm", *made)


if __name__ == "__main__":
    main()
