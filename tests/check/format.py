#!/usr/bin/env python3
"""clang-format decides how C looks.

usage: format.py check|fix ROOT CLANG_FORMAT
Versions differ in details, so only the one that the tree was formatted with may judge it.
"""
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from source import c_files  # noqa: E402

VERSION = 14


def version_of(clang_format):
    said = subprocess.run([clang_format, "--version"], capture_output=True, text=True, check=True)
    return int(re.search(r"version (\d+)", said.stdout)[1])


def run(mode, root, clang_format):
    files = [str(Path(root, path)) for path in c_files(root)]
    action = ["-i"] if mode == "fix" else ["--dry-run", "--Werror"]
    style = f"--style=file:{Path(root, '.clang-format')}"
    result = subprocess.run(
        [clang_format, style, *action, *files], stderr=subprocess.PIPE, text=True, check=False
    )
    places = re.findall(r"^(\S+:\d+):\d+: error: ", result.stderr, re.MULTILINE)
    for place in sorted(set(places)):
        print(f"{place}: not as clang-format lays it out (cmake --build BUILD --target format)")
    if result.returncode and not places:
        print(result.stderr)
    return len(files), 1 if result.returncode else 0


def main():
    mode, root, clang_format = sys.argv[1:]
    if version_of(clang_format) != VERSION:
        print(f"skipped: the tree is formatted by clang-format {VERSION}")
        return 77
    tested, failed = run(mode, Path(root).resolve(), clang_format)
    print(f"Tested: {tested} files")
    return failed


if __name__ == "__main__":
    sys.exit(main())
