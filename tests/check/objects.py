#!/usr/bin/env python3
"""What only the built tree shows.

usage: objects.py statics ROOT BUILD    no mutable static or global data, NDEBUG never defined
       objects.py sources ROOT BUILD    every .c file is built, or a build script names it
"""
import json
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from source import c_files, tree_files  # noqa: E402

MAY_HOLD_STATE = ("engine/base/log.c", "sdk/lib/error.c")
MUTABLE_KINDS = "bBcCdDgGsS"


def compilations(root, build):
    """(source relative to root, object, command) of every compilation of ours."""
    root = Path(root).resolve()
    for entry in json.loads(Path(build, "compile_commands.json").read_text(encoding="utf-8")):
        source = Path(entry["directory"], entry["file"]).resolve()
        if not source.is_relative_to(root) or source.is_relative_to(Path(build).resolve()):
            continue
        match = re.search(r" -o (\S+)", entry["command"])
        yield source.relative_to(root), Path(entry["directory"], match[1]), entry["command"]


def mutable_symbols(path):
    """Symbols in writable sections; what is only written by the loader (.data.rel.ro) is constant."""
    listing = subprocess.run(
        ["nm", "--format=sysv", path], capture_output=True, text=True, check=True
    ).stdout
    for line in listing.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 7 and cells[2] in list(MUTABLE_KINDS):
            if not cells[6].startswith(".data.rel.ro"):
                yield cells[0]


def check_statics(root, build):
    """How many objects were looked at, and what is wrong with them."""
    tested, wrong = 0, []
    for source, built, command in compilations(root, build):
        if source.parts[0] == "tests":
            continue
        tested += 1
        if re.search(r" -D ?NDEBUG\b", command):
            wrong.append(f"{source}: compiled with NDEBUG")
        if not built.exists():
            wrong.append(f"{source}: not built ({built})")
        elif source.as_posix() not in MAY_HOLD_STATE:
            wrong += [
                f"{source}: mutable static or global {symbol}" for symbol in mutable_symbols(built)
            ]
    return tested, wrong


def check_sources(root, build):
    """How many sources there are, and which of them nothing builds."""
    built = {source for source, _, _ in compilations(root, build)}
    scripts = [
        (path.parent, Path(root, path).read_text(encoding="utf-8"))
        for path in tree_files(root)
        if path.name == "CMakeLists.txt" or path.suffix in (".cmake", ".sh")
    ]
    sources, wrong = c_files(root, (".c",)), []
    for path in sources:
        named = (
            re.search(rf"(?<![\w.-]){re.escape(str(path.relative_to(folder)))}(?![\w.-])", text)
            for folder, text in scripts
            if path.is_relative_to(folder)
        )
        if path not in built and not any(named):
            wrong.append(f"{path}: nothing builds it")
    return len(sources), wrong


def main():
    check = {"statics": check_statics, "sources": check_sources}[sys.argv[1]]
    tested, wrong = check(sys.argv[2], sys.argv[3])
    for what in wrong:
        print(what)
    print(f"Tested: {tested} {sys.argv[1]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
