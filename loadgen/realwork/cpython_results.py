# SPDX-License-Identifier: Apache-2.0
"""cpython_results.py REPORT MODULE...: the JUnit report of CPython's own test runner as lines that
can be compared: every failed test, the skipped ones counted by class, then one line a module.
A module of which the report says nothing did not finish, which is never a result. Ends with 1 if
anything failed or did not finish."""

import collections
import re
import sys
import xml.etree.ElementTree


def outcome(case):
    kinds = {child.tag for child in case}
    if kinds & {"error", "failure"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"


def main(report, modules):
    counts = {module: collections.Counter() for module in modules}
    skipped = collections.Counter()
    lines = []
    try:
        cases = list(xml.etree.ElementTree.parse(report).iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError):
        cases = []
    for case in cases:
        # "test.MODULE.CLASS.METHOD", or "setUpClass (test.MODULE.CLASS)"
        found = re.search(r"\btest\.(test_\w+)\.([\w.]+)", case.get("name"))
        if not found or found[1] not in counts:
            lines.append(f"unknown/{case.get('name')}: {outcome(case)}")
            continue
        module, name = found.groups()
        counts[module][outcome(case)] += 1
        if outcome(case) == "failed":
            lines.append(f"{module}/{name}: failed")
        elif outcome(case) == "skipped":
            skipped[f"{module}/{name.split('.')[0]}"] += 1
    lines += [f"{name}: skipped {count}" for name, count in skipped.items()]
    lines += [f"{module}: did not finish" for module in modules if not counts[module]]
    print("\n".join(sorted(lines)))
    for module in modules:
        count = counts[module]
        print(f"{module}: passed {count['passed']} failed {count['failed']}"
              f" skipped {count['skipped']}")
    return 0 if all(c and not c["failed"] for c in counts.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
