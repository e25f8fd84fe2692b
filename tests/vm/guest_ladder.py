#!/usr/bin/env python3
"""In the guest: runs the tests of a plan one after the other. Called by ladder.py.

    guest_ladder.py PLAN CACHE

PLAN is a JSON list of {name, command, environment, timeout_s}; CACHE a folder with the minimal
image, which takes long to make here. What came of each test goes to $VM_RESULTS as one JSON line
{name, status, seconds, output}, as soon as it ended; a line of it for people to standard output.
A test that leaves a process, a cgroup or a BPF pin has failed, whatever it says.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CACHED = (".minimal.stamp", "minimal.erofs", "minimal.json", "root-minimal")
OUTPUT_MAX, SETTLE_S = 64 * 1024, 10
TIMED_OUT, PASSED, SKIPPED, FAILED = 124, 0, 77, 1


def cache_fill(cache):
    """A cache of our own, since tests make more in it; its folder."""
    folder = Path("/tmp/cache")
    own = folder / "dsec"
    own.mkdir(parents=True)
    # cp: the image's root has device nodes.
    subprocess.run(["cp", "-a", *(cache / name for name in CACHED), own], check=True, timeout=120)
    return folder


def processes():
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            # Threads of the kernel have no command line.
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            started = (path / "stat").read_text().rsplit(") ", 1)[1].split()[19]
        except OSError:
            continue
        if words:
            found.add(f"process {path.name} ({started}) {words.strip()}")
    return found


def held():
    """What a test can leave, each as one line."""
    cgroups = {f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob("dsec*")}
    pins = {f"pin {path}" for path in Path("/sys/fs/bpf").glob("dsec/*")}
    return processes() | cgroups | pins


def left_since(before):
    end = time.monotonic() + SETTLE_S
    while (left := held() - before) and time.monotonic() < end:
        time.sleep(0.2)
    return sorted(left)


def processes_end(left):
    for line in left:
        if line.startswith("process "):
            try:
                os.kill(int(line.split()[1]), signal.SIGKILL)
            except ProcessLookupError:
                pass


def test_run(test, environment):
    """Status and output; the process group is gone afterwards."""
    with tempfile.TemporaryFile(dir="/tmp") as output:
        program = subprocess.Popen(
            test["command"], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=environment | dict(pair.split("=", 1) for pair in test["environment"]),
            start_new_session=True,
        )
        try:
            status = program.wait(test["timeout_s"])
        except subprocess.TimeoutExpired:
            status = TIMED_OUT
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - OUTPUT_MAX))
        return status, output.read().decode(errors="replace")


def why(status, output):
    """For people: how it ended."""
    if status == SKIPPED:
        reasons = [line for line in output.splitlines() if "skip" in line.lower()]
        return reasons[0].strip() if reasons else "skipped, without a reason"
    return {PASSED: "passed", TIMED_OUT: "timed out"}.get(status, f"FAILED ({status})")


def main():
    plan = json.loads(Path(sys.argv[1]).read_text())
    environment = dict(os.environ) | {"XDG_CACHE_HOME": str(cache_fill(Path(sys.argv[2])))}
    results = os.open(environment.pop("VM_RESULTS"), os.O_WRONLY)
    failed = 0
    for test in plan:
        before, began = held(), time.monotonic()
        status, output = test_run(test, environment)
        if left := left_since(before):
            output += "\n".join(["left behind:", *left, ""])
            processes_end(left)
            status = status or FAILED
        seconds = time.monotonic() - began
        failed += status not in (PASSED, SKIPPED)
        row = {"name": test["name"], "status": status, "seconds": round(seconds, 1),
               "output": output}
        data = json.dumps(row).encode() + b"\n"
        while data:
            data = data[os.write(results, data):]
        print(f"{test['name']}: {why(status, output)}, {seconds:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
