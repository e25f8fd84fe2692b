#!/usr/bin/env python3
"""Functions from Python, the examples as they are, and an installed tree that finds its library."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from fixture import ROOT, PythonTest, fewer

import dsec
import dsec.aio

EXAMPLES = ROOT / "sdk/python/examples"
RUN_S = 240


class ExamplesTest(PythonTest):
    maxDiff = None

    options = ("--shards", "2", "--sandboxes-max", "600")

    def run_python(self, *words, **environment):
        given = {"PYTHONPATH": str(ROOT / "sdk/python"), "DSEC_ADDRESS": self.address}
        ran = subprocess.run([sys.executable, "-B", *map(str, words)], capture_output=True,
                             text=True, timeout=RUN_S, env=os.environ | given | environment)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        return ran.stdout

    def test_a_task_fails_before_the_patch_and_passes_after(self):
        self.assertEqual(self.run_python(EXAMPLES / "swe_task.py", "small"),
                         "before: exit 1, AssertionError\nafter: exit 0, reward 1.0\n")

    def test_a_submission_has_a_verdict_for_each_input(self):
        path = self.folder / "submission.py"
        path.write_text("n = int(input())\nwhile n == 0: pass\nif n == 1: print('x' * 99999)\n"
                        "print(100 // (n - 2))\n")
        self.assertEqual(self.run_python(EXAMPLES / "judge.py", "small", path, "12", "2", "0"),
                         "12: ok 10\n2: re\n0: tle\n")
        with dsec.connect(self.address) as client:
            self.assertEqual(client.functions(), [])

    def test_a_burst_is_made_runs_and_goes(self):
        count = fewer(500, 60)
        self.assertEqual(self.run_python(EXAMPLES / "burst.py", "small", count),
                         f"{count} made, 0 refused, {count} ran\n")
        with dsec.connect(self.address) as client:
            self.assertEqual(client.list(), [])

    def test_six_programs_get_six_verdicts_and_are_told_apart(self):
        with dsec.connect(self.address) as client:
            function = client.register("echo", "small", ["sh", "-c", (
                "read x; echo err >&2; case $x in ok) printf 'a\\0b';; re) exit 3;; "
                "signal) kill -11 $$;; tle) sleep 99;; ole) yes;; esac")], wall=1,
                output_bytes=1000, isolation="domain")
            row, = client.functions()
            self.assertEqual((row.id, row.name, row.image, row.isolation, row.wall,
                              row.output_bytes), (function.id, "echo", "small", "domain", 1, 1000))
            names = ["ok", "re", "signal", "tle", "ole", "ok"]
            calls = function.invoke_many([name.encode() + b"\n" for name in names])
            self.assertEqual([call.verdict for call in calls],
                             ["ok", "re", "re", "tle", "ole", "ok"])
            self.assertEqual([call.code for call in calls[:3]], [0, 3, None])
            self.assertEqual(calls[2].signal, 11)
            self.assertEqual((calls[0].stdout, calls[0].stderr), (b"a\0b", b"err\n"))
            self.assertLessEqual(len(calls[4].stdout) + len(calls[4].stderr), 1000)
            self.assertEqual(function.invoke(b"ok\n").stdout, b"a\0b")
            with self.assertRaises(dsec.DsecInvalidError):
                function.invoke_many(b"one")
            with self.assertRaises(dsec.DsecInvalidError):
                client.register("other", "small", ["true"], isolation="none")
            with self.assertRaises(dsec.DsecConflictError):
                client.register("echo", "small", ["true"])
            function.remove()
            with self.assertRaises(dsec.DsecAbsentError):
                function.invoke(b"ok\n")

    def test_an_installed_tree_finds_its_own_library(self):
        prefix = Path(tempfile.mkdtemp(prefix="dsec-python-test."))
        self.addCleanup(shutil.rmtree, prefix)
        package = prefix / "lib/python3/dist-packages/dsec"
        shutil.copytree(ROOT / "sdk/python/dsec", package,
                        ignore=shutil.ignore_patterns("__pycache__"))
        machine = prefix / "lib" / f"{os.uname().machine}-linux-gnu"
        machine.mkdir()
        shutil.copy(self.build / "sdk/libdsec.so.1", machine)
        said = self.run_python("-c", (
            "import dsec; dsec.connect().close(); "
            "print(*{line.split()[-1] for line in open('/proc/self/maps') if 'libdsec' in line})"),
            PYTHONPATH=str(package.parent), DSEC_LIBRARY="")
        self.assertEqual(said, f"{machine}/libdsec.so.1\n")
        lost = subprocess.run([sys.executable, "-B", "-c", "import dsec; dsec.connect()"],
                              capture_output=True, text=True, timeout=RUN_S,
                              env=os.environ | {"PYTHONPATH": str(ROOT / "sdk/python"),
                                                "DSEC_LIBRARY": "/nowhere.so"})
        self.assertIn("ImportError: libdsec is not here", lost.stderr)


if __name__ == "__main__":
    unittest.main()
