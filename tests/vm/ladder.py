#!/usr/bin/env python3
"""The ladder: the root suite on other kernels, in QEMU guests.

    ladder.py run SERIES...          boots guests, as many at once as there are CPUs, first those
                                     of the first kernel; they take its tests one by one from one
                                     list: every test that CTest knows as root or hostile
    ladder.py report SERIES NAME     one test's end in that guest: its output and its status

$DSEC_BUILD is the build; what came of the tests is kept in its folder `ladder`. The list comes from
CTest's labels, so a new suite is taken in by itself; what cannot run in a guest is named, with the
reason, in the file `exceptions`, by regular expressions. $DSEC_LADDER_ONLY, a regular expression, narrows the list for a
look at some tests. `run` ends well when every test was run to some end: how each went is for
`report` to say, so that one failure, or one skip, is one of CTest's.

$DSEC_LADDER_UNTIL, seconds since 1970, is when no further test begins: on a slow machine those that
are left are skipped by name. What only a guest can judge comes first.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import threading
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
LIMIT_S, TEST_LIMIT_S, LOG_LINES = 1740, 300, 40
PYTHON = re.compile(r".*/python3[.0-9]*")
GUESTS_MAX = 4  # at once, of one kernel
SETTLE_S = 10  # for what a test has to end by itself, after it
GUEST = "guest"  # guest_tests.py: what only a guest can show
# Which LSM is asked first: AppArmor, as distributions have it, but on these: LSM programs.
OPTIONS = {"6.18": "lsm=landlock,lockdown,yama,loadpin,safesetid,integrity,bpf,apparmor"}
PASSED, FAILED, SKIPPED = 0, 1, 77
# LSM programs and AppArmor, limits of controllers: machines without them skip these.
ONLY_HERE = re.compile(
    r"guest|root\.(guard_.*|launch_apparmor|engine_(limits|integrity))|hostile\.policy_.*")
FIRST_SHARE = 0.8  # of the time, before the next kernel's turn


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
             "timeout_s": TEST_LIMIT_S, "settle_s": SETTLE_S}]
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
                     "timeout_s": TEST_LIMIT_S, "settle_s": SETTLE_S})
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


class Share:
    """The tests of one kernel: its guests take one after the other, the longest first as far as
    that is known, and tell what came of them. Called by the threads of several guests."""

    def __init__(self, series, tests, lasted, until_s):
        self.series, self.total, self.waiting = series, len(tests), tests
        self.lasted = lasted  # seconds of tests by their names, on whichever kernel
        self.until_s = until_s  # when nothing begins any more
        self.taken = {}  # names of tests by the names of guests
        self.lock = threading.Lock()

    def is_over(self):
        return time.time() >= self.until_s

    def answer(self, guest, line):
        """A line of guest_ladder.py's: keeps the row, if there is one, and gives the next test."""
        row = json.loads(line)
        with self.lock:
            if row:
                self.lasted[row["name"]] = row["seconds"]
                with open(FOLDER / f"{guest}.results", "ab") as results:
                    results.write(line)
            if not self.waiting or self.is_over():
                return b""
            test = max(self.waiting, key=lambda test: (bool(ONLY_HERE.fullmatch(test["name"])),
                                                       self.lasted.get(test["name"], 0)))
            self.waiting.remove(test)
            self.taken.setdefault(guest, []).append(test["name"])
            return json.dumps(test).encode()


def guest_run(share, name, kernel, image):
    """One guest from boot to end; returns what to say of it, and whether what it took was run."""
    if not share.waiting or share.is_over():
        return f"{name}: nothing, or no time, left for it", True
    command = ["env", f"DSEC_TEST_SLOWNESS={SLOWNESS}", "/usr/bin/python3", "-B",
               HERE / "guest_ladder.py", image.parent]
    began = time.monotonic()
    log, results = FOLDER / f"{name}.log", FOLDER / f"{name}.results"
    results.touch()
    guest = vm.Guest(command, kernel, timeout_s=LIMIT_S, folders=[TOP, BUILD, image.parent],
                     answer=lambda line: share.answer(name, line), output=log,
                     options=OPTIONS.get(share.series, ""))
    status = guest.run()
    rows, taken = results_read(results), share.taken.get(name, [])
    lines = [f"{name}: {len(rows)} of {len(taken)} tests in {time.monotonic() - began:.0f} s"]
    if status == vm.BROKEN:
        lines += ["  the guest did not come to its end:", guest.console()]
    if len(rows) < len(taken):
        lines += log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    for test in taken:
        row = rows.get(test)
        state = f"{row['status']:4} {row['seconds']:6.1f} s" if row else "not run      "
        lines.append(f"  {state}  {test}")
    return "\n".join(lines), status != vm.BROKEN and len(rows) == len(taken)


def kernels_prepare(all_series):
    found = {}
    for series in all_series:
        try:
            found[series] = vm.prepare(series)
        except vm.Unable as why:
            (FOLDER / f"{series}.unable").write_text(str(why))
            print(f"skipped: {why}")
    return found


def until_of(is_last):
    now_s = time.time()
    until_s = float(os.environ.get("DSEC_LADDER_UNTIL", "inf"))
    return until_s if is_last else now_s + FIRST_SHARE * (until_s - now_s)


def run(all_series):
    FOLDER.mkdir(exist_ok=True)
    for pattern in ("*.unable", "*.results", "*.late"):
        for path in FOLDER.glob(pattern):
            path.unlink()
    kernels = kernels_prepare(all_series)
    if not kernels:
        return SKIPPED
    made = subprocess.run(
        [TOP / "loadgen/image.sh", "--minimal"], stdout=subprocess.PIPE, check=True, timeout=600
    )
    image = Path(made.stdout.decode().strip()).resolve()
    lanes, lasted, ends, shares = os.cpu_count(), {}, [], []
    with concurrent.futures.ThreadPoolExecutor(lanes) as guests:
        for series, kernel in kernels.items():
            plan, wrong = plan_make(series, image)
            if wrong:
                print("\n".join(wrong))
                return FAILED
            is_last = len(shares) + 1 == len(kernels)
            shares.append(Share(series, plan, lasted, until_of(is_last)))
            ends += [guests.submit(guest_run, shares[-1], f"{series}-{at + 1}", kernel, image)
                     for at in range(min(lanes, GUESTS_MAX, len(plan)))]
        told = [end.result() for end in ends]
    for text, _ in told:
        print(text)
    return shares_judge(shares, told)


def shares_judge(shares, told):
    """What was run, and what was not: excepted, or left by guests that broke."""
    for share in shares:
        for names, reason in exceptions(share.series).items():
            print(f"  not run on {share.series}, {names.pattern}: {reason}")
        late = [test["name"] for test in share.waiting] if share.is_over() else []
        (FOLDER / f"{share.series}.late").write_text("\n".join(late))
        for test in share.waiting:
            print(f"  not run on {share.series}: {test['name']}")
    print(f"Tested: {sum(share.total - len(share.waiting) for share in shares)}")
    complete = all(whole for _, whole in told) and not any(
        share.waiting and not share.is_over() for share in shares)
    return PASSED if complete else FAILED


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
    late = FOLDER / f"{series}.late"
    if is_of_this_build(late) and name in late.read_text().splitlines():
        print("skipped: this machine is slow, and no time was left for it; without a limit:"
              " ctest -R vm.guests")
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
