#!/usr/bin/env python3
"""What libdsec exports is what dsec.h and its own includes declare and what dsec.map names, and nothing else.

usage: symbols.py DSEC_H DSEC_MAP LIBRARY
"""
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from source import code_only  # noqa: E402


def declared(header):
    """Functions: a name that begins with dsec_ before a bracket."""
    return set(re.findall(r"\b(dsec_\w+)\s*\(", code_only(header)))


def mapped(text):
    """(name, version) of every global symbol."""
    names = set()
    for version, body in re.findall(r"(\w+)\s*\{(.*?)\}", code_only(text), re.DOTALL):
        for part in re.findall(r"global:(.*?)(?:local:|$)", body, re.DOTALL):
            names |= {(name, version) for name in re.findall(r"\w+", part)}
    return names


def exported(listing):
    """(name, version) from nm's lines "name@@version T ..."; the versions' own symbols are not."""
    names = set()
    for line in listing.splitlines():
        name, kind = line.split()[:2]
        if kind != "A":
            name, _, version = name.partition("@@")
            names.add((name, version))
    return names


def differences(header, version_map, listing):
    """What is wrong, one line each, and how many symbols were compared."""
    in_header, in_map, in_library = declared(header), mapped(version_map), exported(listing)
    named = {name for name, _ in in_map}
    wrong = [f"{name}: declared, not in the map" for name in sorted(in_header - named)]
    wrong += [f"{name}: in the map, not declared" for name in sorted(named - in_header)]
    wrong += [f"{a}@{b}: in the map, not exported" for a, b in sorted(in_map - in_library)]
    wrong += [f"{a}@{b}: exported, not in the map" for a, b in sorted(in_library - in_map)]
    return wrong, len(in_header | named)


def whole(path):
    """A header with those of ours that it includes."""
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r"#include <dsec/(\w+\.h)>", text):
        text += (path.parent / name).read_text(encoding="utf-8")
    return text


def main():
    header, version_map = whole(Path(sys.argv[1])), Path(sys.argv[2]).read_text(encoding="utf-8")
    listing = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", sys.argv[3]],
        capture_output=True, text=True, check=True,
    ).stdout
    wrong, count = differences(header, version_map, listing)
    for what in wrong:
        print(what)
    print(f"Tested: {count} symbols")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
