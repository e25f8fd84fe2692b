#!/usr/bin/env python3
"""The ladder: the root suite on other kernels, in QEMU guests.

    ladder.py run SERIES...          boots three guests for the first and one for each other, as many
                                     at once as there are CPUs, and runs in them every test that
                                     CTest knows as root or hostile
    ladder.py report SERIES NAME     one test's end in that guest: its output and its status

$DSEC_BUILD is the build; what came of the tests is kept in its folder `ladder`. The list comes from
CTest's labels, so a new suite is taken in by itself; what cannot run in a guest is named, with the
reason, in the file `exceptions`, by regular expressions. $DSEC_LADDER_ONLY, a regular expression, narrows the list for a
look at some tests. `run` ends well when every test was run to some end: how each went is for
`report` to say, so that one failure, or one skip, is one of CTest's.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import vm

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
BUILD = Path(os.environ["DSEC_BUILD"]).resolve()
FOLDER = BUILD / "ladder"
EXCEPTIONS = HERE / "exceptions"
LABELS = "^(root|hostile)$"
# How many times slower than a machine the guest is taken to be: fixtures read it, see slowness.h.
SLOWNESS = 8
LIMIT_S, TEST_LIMIT_S, LOG_LINES = 1500, 300, 40
PYTHON = re.compile(r".*/python3[.0-9]*")
FIRST_PARTS = 3  # guests that share the first kernel's tests, which are the most
GUEST = "guest"  # guest_tests.py: what only a guest can show
PASSED, FAILED, SKIPPED = 0, 1, 77


def exceptions(series):
    """What is not run on this kernel, each a regular expression of names, with the reason."""
    found = {}
    for line in EXCEPTIONS.read_text().splitlines():
        if line and not line.startswith("#"):
            names, where, reason = line.split(None, 2)
            if where in ("*", series):
                found[re.compile(names)] = reason
    return found


def ctest_tests():
    ran = subprocess.run(
        ["ctest", "--test-dir", BUILD, "--show-only=json-v1"], capture_output=True, check=True,
        timeout=120,
    )
    tests = {}
    for test in json.loads(ran.stdout)["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test["properties"]}
        tests[test["name"]] = (test["command"], properties)
    return tests


def python_own(word):
    """The guest's own python: the host's may be a script that looks for one."""
    return "/usr/bin/python3" if PYTHON.fullmatch(word) else word


def plan_make(series, image):
    """The tests for this kernel, and complaints about what does not fit together."""
    tests, apart = ctest_tests(), exceptions(series)
    only = re.compile(os.environ.get("DSEC_LADDER_ONLY", ""))
    wrong = [f"the exception {names.pattern} is of no test" for names in apart
             if not any(names.fullmatch(name) for name in tests)]
    guest = [TOP / "tests/run-test", "--root", "--program", "--"]
    guest += ["/usr/bin/python3", "-B", HERE / "guest_tests.py", BUILD, image]
    plan = [{"name": GUEST, "command": list(map(str, guest)), "environment": [],
             "timeout_s": TEST_LIMIT_S}]
    for name, (command, properties) in tests.items():
        labels = properties.get("LABELS", [])
        if not any(re.match(LABELS, label) for label in labels):
            continue
        if any(names.fullmatch(name) for names in apart):
            continue
        if f"vm.{series}.{name}" not in tests:
            wrong.append(f"nobody would report {name}: configure again")
        plan.append({"name": name, "command": list(map(python_own, command)),
                     "environment": properties.get("ENVIRONMENT", []),
                     "timeout_s": TEST_LIMIT_S})
    return [test for test in plan if only.search(test["name"])], wrong


def results_read(path):
    """Those that are whole: a guest may end in the middle of a line."""
    found = {}
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found[row["name"]] = row
    return found


def guest_run(series, shares, kernel, image):
    """One guest from boot to end; returns what to say of it, and whether every test was run."""
    share, of = shares
    plan, wrong = plan_make(series, image)
    if wrong:
        return "\n".join(wrong), False
    plan = plan[share::of]
    name = f"{series}-{share + 1}"
    path, results = FOLDER / f"{name}.plan", FOLDER / f"{name}.results"
    path.write_text(json.dumps(plan, indent=1))
    command = ["env", f"DSEC_TEST_SLOWNESS={SLOWNESS}", "/usr/bin/python3", "-B",
               HERE / "guest_ladder.py", path, image.parent]
    began = time.monotonic()
    log = FOLDER / f"{name}.log"
    guest = vm.Guest(command, kernel, timeout_s=LIMIT_S, folders=[TOP, BUILD, image.parent],
                     results=results, output=log)
    status = guest.run()
    rows = results_read(results)
    lines = [f"{name}: {len(rows)} of {len(plan)} tests in {time.monotonic() - began:.0f} s"]
    if status == vm.BROKEN:
        lines += ["  the guest did not come to its end:", guest.console()]
    if len(rows) < len(plan):
        lines += log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    for test in plan:
        row = rows.get(test["name"])
        state = f"{row['status']:4} {row['seconds']:6.1f} s" if row else "not run      "
        lines.append(f"  {state}  {test['name']}")
    lines += [f"  not run, {names.pattern}: {reason}"
              for names, reason in exceptions(series).items()]
    return "\n".join(lines), len(rows) == len(plan)


def run(all_series):
    FOLDER.mkdir(exist_ok=True)
    for path in [*FOLDER.glob("*.unable"), *FOLDER.glob("*.results")]:
        path.unlink()
    kernels = {}
    for series in all_series:
        try:
            kernels[series] = vm.prepare(series)
        except vm.Unable as why:
            (FOLDER / f"{series}.unable").write_text(str(why))
            print(f"skipped: {why}")
    if not kernels:
        return SKIPPED
    made = subprocess.run(
        [TOP / "loadgen/image.sh", "--minimal"], stdout=subprocess.PIPE, check=True, timeout=600
    )
    image = Path(made.stdout.decode().strip()).resolve()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as guests:
        ends = []
        for series, kernel in kernels.items():
            parts = FIRST_PARTS if series == all_series[0] else 1
            ends += [guests.submit(guest_run, series, (share, parts), kernel, image)
                     for share in range(parts)]
        told = [end.result() for end in ends]
    for text, _ in told:
        print(text)
    print(f"Tested: {len(told)}")
    return PASSED if all(complete for _, complete in told) else FAILED


def is_of_this_build(path):
    """The results are younger than what was tested."""
    programs = [BUILD / "engine/dsecd", BUILD / "engine/dsec-launcher"]
    return path.exists() and all(path.stat().st_mtime > program.stat().st_mtime
                                 for program in programs)


def report(series, name):
    unable = FOLDER / f"{series}.unable"
    if unable.exists():
        print(f"skipped: {unable.read_text()}")
        return SKIPPED
    results = list(FOLDER.glob(f"{series}-*.results"))
    if not results or not all(map(is_of_this_build, results)):
        print("skipped: no guest ran since this was built: ctest -R vm.guests")
        return SKIPPED
    row = {k: v for path in results for k, v in results_read(path).items()}.get(name)
    if row is None:
        only = os.environ.get("DSEC_LADDER_ONLY")
        if only and not re.search(only, name):
            print(f"skipped: DSEC_LADDER_ONLY is {only}")
            return SKIPPED
        print(f"{name} came to no end in the guest {series}")
        return FAILED
    print(row["output"])
    # What it tested was judged there, by the kind of its program.
    print(f"Tested: 1 in the guest {series}: status {row['status']}, {row['seconds']} s")
    return row["status"]


def main():
    if sys.argv[1] == "run":
        return run(sys.argv[2:])
    return report(*sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
