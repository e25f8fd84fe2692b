#!/usr/bin/env python3
"""In the guest: runs the tests that the harness gives it, one after the other. Called by ladder.py.

    guest_ladder.py CACHE

CACHE is a folder with the minimal image, which takes long to make here. Through $VM_TALK comes one
JSON line {name, command, environment, timeout_s, settle_s} for each test, an empty one when there
is none any more; for the first, and for each next one, is asked by a line: {}, then what came of the
last, {name, status, seconds, output}. A line of it for people goes to standard output.
A test that leaves anything behind (see held()) has failed, whatever it says; what it left is removed.
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
OUTPUT_MAX = 64 * 1024
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


def lines_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60).stdout.splitlines()


def mounts():
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def held():
    """What a test can leave, each as one line: its kind, its name."""
    found = {
        "cgroup": Path("/sys/fs/cgroup").glob("dsec*"),
        # libxdp keeps its folder, empty.
        "pin": [*(path for path in Path("/sys/fs/bpf").iterdir()
                  if path.name != "xdp" or any(path.iterdir())),
                *Path("/run/dsec").glob("*/bpf/*")],
        # The folder of locks of uid ranges stays for the next engine.
        "run": [*Path("/run").glob("dsec*.sock"),
                *(path for path in Path("/run/dsec").glob("*") if path.name != "uids")],
        "mount": mounts(),
        "netns": Path("/run/netns").glob("*"),
        "loop": lines_of("losetup", "--noheadings", "--list", "--output", "NAME"),
    }
    return processes() | {f"{kind} {name}" for kind, names in found.items() for name in names}


def left_since(before, settle_s):
    end = time.monotonic() + settle_s
    while (left := held() - before) and time.monotonic() < end:
        time.sleep(0.2)
    return sorted(left)


def cgroup_remove(name):
    try:
        (Path(name) / "cgroup.kill").write_text("1")
    except OSError:
        pass
    for _ in range(20):
        if subprocess.run(["find", name, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"],
                          stderr=subprocess.DEVNULL, timeout=60).returncode == 0:
            return
        time.sleep(0.1)


def remove(kind, name):
    if kind == "process":
        try:
            os.kill(int(name.split()[0]), signal.SIGKILL)
        except ProcessLookupError:
            pass
    elif kind == "cgroup":
        cgroup_remove(name)
    else:
        command = {"pin": ["rm", "-rf"], "mount": ["umount", "--lazy"], "netns": ["umount", "--lazy"],
                   "loop": ["losetup", "--detach"], "run": ["rm", "-rf", "--one-file-system"]}[kind]
        subprocess.run([*command, name], stderr=subprocess.DEVNULL, timeout=60)
        if kind == "netns":
            Path(name).unlink(missing_ok=True)


def left_remove(left):
    """The deepest mounts first, and folders after what is mounted in them."""
    order = ["process", "cgroup", "pin", "netns", "mount", "loop", "run"]
    rows = [line.split(" ", 1) for line in left]
    for kind, name in sorted(rows, key=lambda row: (order.index(row[0]), -row[1].count("/"))):
        remove(kind, name)


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


def next_test(talk, row):
    """Tells what came of the last, and waits for the next; None: there is none."""
    data = json.dumps(row).encode() + b"\n"
    while data:
        data = data[talk.write(data):]
    line = talk.readline().strip()
    return json.loads(line) if line else None


def main():
    environment = dict(os.environ) | {"XDG_CACHE_HOME": str(cache_fill(Path(sys.argv[1])))}
    failed, row = 0, {}
    with open(environment.pop("VM_TALK"), "r+b", buffering=0) as talk:
        while test := next_test(talk, row):
            before, began = held(), time.monotonic()
            status, output = test_run(test, environment)
            if left := left_since(before, test["settle_s"]):
                output += "\n".join(["left behind:", *left, ""])
                left_remove(left)
                status = status or FAILED
            seconds = time.monotonic() - began
            failed += status not in (PASSED, SKIPPED)
            row = {"name": test["name"], "status": status, "seconds": round(seconds, 1),
                   "output": output}
            print(f"{test['name']}: {why(status, output)}, {seconds:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
