#!/usr/bin/env python3
"""Each test that docs/cases.md names is there: cases.py ROOT"""
import re
import sys
from pathlib import Path

# `suite: name` or, after one of the same suite, `name` alone.
NAMED = re.compile(r"`(?:([a-z0-9_]+): )?([a-z0-9_]+)`")
ROW = re.compile(r"^\| ([UE]\d+) \|")


def definition(name):
    return re.compile(
        rf"^static (?:void|bool) {name}\(|^Test\(\w+, {name}[,)]|^\s+def {name}\(", re.MULTILINE)


def suite_files(root, suite):
    if suite == "guest":
        return [root / "tests/vm/guest_tests.py"]
    return [path for path in (root / "tests").rglob(f"test_{suite}.*")
            if path.suffix in (".c", ".py")]


def row_problems(root, line):
    """What is wrong with one row; and how many tests it names."""
    problems, count, suite = [], 0, None
    for suite_named, name in NAMED.findall(line):
        suite = suite_named or suite
        count += 1
        files = suite_files(root, suite) if suite else []
        if not files:
            problems.append(f"no suite {suite} for {name}")
        elif not any(definition(name).search(path.read_text()) for path in files):
            problems.append(f"no test {suite}: {name}")
    if not count and "later:" not in line:
        problems.append("neither a test nor what it waits for")
    return problems, count


def check(root):
    """Lines about what is wrong, and the number of tests that are named."""
    problems, tests, seen = [], 0, set()
    page = root / "docs/cases.md"
    for number, line in enumerate(page.read_text().splitlines(), 1):
        row = ROW.match(line)
        if not row:
            continue
        wrong, count = row_problems(root, line)
        if row[1] in seen:
            wrong.append("it stands twice")
        seen.add(row[1])
        tests += count
        problems += [f"docs/cases.md:{number}: {row[1]}: {text} [cases]" for text in wrong]
    return problems, tests


def main(root):
    problems, tests = check(Path(root))
    print("\n".join(problems + [f"Tested: {tests}"]))
    return 1 if problems or not tests else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
