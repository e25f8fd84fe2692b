#!/usr/bin/env python3
"""DSec on another kernel: runs guest_tests.py in a guest. test_vm.py SERIES PROGRAM..."""
import os
import subprocess
import sys
from pathlib import Path

import vm

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
BUILD = Path(os.environ["DSEC_BUILD"]).resolve()
LIMIT_S = 480
# The minimal image is made before, and copied: making it again in the guest is slow.
CACHE = "/tmp/cache/dsec"
SETUP = (
    f'mkdir -p {CACHE} && cp -a "$1"/.minimal.stamp "$1"/minimal.* "$1"/root-minimal {CACHE}/ && '
    'export XDG_CACHE_HOME=/tmp/cache && shift && exec "$@"'
)


def main():
    series, programs = sys.argv[1], sys.argv[2:]
    try:
        kernel = vm.prepare(series)
    except vm.Unable as why:
        print(f"skipped: {why}")
        return vm.SKIPPED
    image = subprocess.run(
        [TOP / "loadgen/image.sh", "--minimal"], stdout=subprocess.PIPE, check=True, timeout=600
    )
    cache = Path(image.stdout.decode().strip()).resolve().parent
    tests = ["python3", "-B", HERE / "guest_tests.py", BUILD, f"{CACHE}/minimal.erofs", *programs]
    command = ["sh", "-c", SETUP, "sh", cache, *tests]
    return vm.run(command, kernel, timeout_s=LIMIT_S, folders=[TOP, BUILD, cache])


if __name__ == "__main__":
    sys.exit(main())
