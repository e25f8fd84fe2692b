#!/usr/bin/env python3
"""Every header compiles alone: ours as GNU C17, the public ones also as C11 -pedantic and as C++17.

usage: headers.py ROOT CC CXX
Headers of BPF programs (*.bpf.h) compile with vmlinux.h only, when their program does.
"""
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from source import c_files  # noqa: E402

WARNINGS = ["-Wall", "-Wextra", "-Wundef", "-Werror", "-fsyntax-only"]
PUBLIC = "sdk/include/"


def compilers(header, cc, cxx):
    yield [cc, "-x", "c", "-std=gnu17", "-D_GNU_SOURCE", *WARNINGS]
    if header.startswith(PUBLIC):
        yield [cc, "-x", "c", "-std=c11", "-pedantic", *WARNINGS]
        yield [cxx, "-x", "c++", "-std=c++17", "-pedantic", *WARNINGS]


def findings(root, cc, cxx):
    """(header, what the compiler said) for each compilation that fails."""
    for path in c_files(root, (".h",)):
        header = path.as_posix()
        if header.endswith(".bpf.h"):
            continue
        for compiler in compilers(header, cc, cxx):
            include = ["-iquote", str(root), "-I", str(Path(root, "sdk/include"))]
            result = subprocess.run(
                [*compiler, *include, "-include", str(Path(root, path)), "/dev/null"],
                capture_output=True,
                text=True,
                check=False,
            )
            if result.returncode != 0:
                yield header, f"{' '.join(compiler[:5])}\n{result.stderr}"


def main():
    root, cc, cxx = Path(sys.argv[1]).resolve(), *sys.argv[2:]
    failed = 0
    for header, what in findings(root, cc, cxx):
        print(f"{header} does not compile alone: {what}")
        failed = 1
    print(f"Tested: {len(c_files(root, ('.h',)))} headers")
    return failed


if __name__ == "__main__":
    sys.exit(main())
