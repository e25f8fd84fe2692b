#!/usr/bin/env python3
"""Runs every block of README.md, in order, in one shell, as a reader would.

Left out: the block that is the test run itself. Must hold: the README's own words are run, not a copy.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ["DSEC_BUILD"])
TIMEOUT_S = 1400
# What a reader must see after each block that says something.
EXPECTED = {
    "loadgen/run.sh": ["0 failures"],
    "dsec run debian": ["42", "status 3"],
    "dsec run mine": ["mine  sha256:", "my own image", "IN USE"],
    "dsec ps --label": ["hello", "from outside", "README.md", "task=11099"],
    "dsec attach": ["running", "step 2", "step 3", "status 5", "step 1"],
    "dsec check": ["status 124", "status 127", "before", "5000000 True err", "still here",
                   "left:    processes 0, cgroups 0, mounts 0, namespaces 0"],
    "dsec call --register": ["42", "re\ntle\nole"],
    "dsec events --label": ["running", "ended"],
    "dsec policy load": ["files.protect /usr/bin", "status 1", "20 1", "port-scan",
                         "integrity    tainted[port-scan]"],
    "PYTHONPATH=": ["b'from Python'", "100 made, 0 refused, 100 ran"],
    "EXAMPLES=": ["500 of 500 created", "500 of 500 ran well", "right: ok", "wrong: runtime error"],
}


def blocks():
    found = re.findall(r"^```sh\n(.*?)^```$", (TOP / "README.md").read_text(), re.M | re.S)
    return [block for block in found if "tests/run.sh" not in block]


class Readme(unittest.TestCase):
    def run_blocks(self, path):
        """In a session of its own: when it takes too long, all of it ends, and what it said is told."""
        process = subprocess.Popen(["bash", str(path)], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", start_new_session=True)
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # the engine takes its own down
            output, _ = process.communicate()
            self.fail(f"not at its end after {TIMEOUT_S} s: {output[-6000:]}")
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def test_what_the_tour_uses_was_built_by_the_first_command(self):
        said = (TOP / "loadgen/run.sh").read_text()
        targets = re.search(r"^\tlocal targets=\((.*)\)$", said, re.M)[1].split()
        commands = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", *targets], check=True,
                                  capture_output=True, text=True).stdout
        made = {re.sub(r"(\.so)\..*", r"\1", path) for path in re.findall(r" -o (\S+)", commands)}
        wanted = {"engine/dsecd", "engine/dsec-launcher", "engine/dsec-import", "engine/dsec-store",
                  "sdk/dsec"}
        for block in blocks():
            block = block.replace('"$EXAMPLES"', "$PWD/build/release/sdk/examples")
            paths = re.findall(r"\$PWD/build/release/([\w./-]+)", block)
            wanted |= {path for path in paths if not (BUILD / path).is_dir()}
        self.assertIn("sdk/libdsec.so.1", wanted)
        self.assertIn("sdk/examples/judge", wanted)
        self.assertEqual({path.removesuffix(".1") for path in wanted} - made, set())

    def test_every_block_does_what_it_says(self):
        with tempfile.TemporaryDirectory() as scratch:
            script = ["set -eu", f"cd {TOP}", "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT"]
            for number, block in enumerate(blocks()):
                # A reader built into build/release; the tests' build may lie elsewhere.
                block = block.replace("$PWD/build/release", str(BUILD))
                script += [f"echo '=== block {number}'", block]
            path = Path(scratch) / "readme.sh"
            path.write_text("\n".join(script))
            run = self.run_blocks(path)
        self.assertEqual(run.returncode, 0, run.stdout[-6000:])
        outputs = re.split(r"^=== block \d+$", run.stdout, flags=re.M)[1:]
        self.assertEqual(len(outputs), len(blocks()))
        for key, words in EXPECTED.items():
            at = [n for n, block in enumerate(blocks()) if key in block]
            self.assertTrue(at, f"no block of the README says '{key}'")
            for word in words:
                self.assertIn(word, outputs[at[-1]], f"block {at[-1]}: {outputs[at[-1]][-3000:]}")


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: needs root")
        sys.exit(77)
    unittest.main()
