#!/usr/bin/env python3
"""`dsec call` against an engine: functions are registered, called, listed and removed."""
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_cli_engine import PROGRAM, EngineFixture, eventually  # noqa: E402


class CallsTest(EngineFixture):
    def function(self, name, *words, options=()):
        self.good("call", "--register", name, "--image", "small", *options, "--", PROGRAM, *words)
        self.addCleanup(self.ask, "call", "--remove", name)

    def call(self, name, *words, **options):
        ran = self.ask("call", name, "--json", *words, **options)
        return ran.returncode, [json.loads(line) for line in ran.stdout.splitlines()]

    def test_an_input_comes_back_and_the_exit_status_is_the_verdicts(self):
        self.function("copy", "copy")
        ran = self.ask("call", "copy", input=b"a\0\xff")
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, b"a\0\xff", b""))
        self.function("seven", "slow", "0")
        status, seen = self.call("seven", input=b"")
        self.assertEqual((status, seen[0]["verdict"], seen[0]["code"]), (7, "re", 7))
        self.assertEqual(seen[0]["stdout"]["text"], "begun\nended\n")
        self.function("sleep", "slow", "100", options=("--wall", "200ms"))
        status, seen = self.call("sleep", input=b"")
        self.assertEqual((status, seen[0]["verdict"], seen[0]["signal"]), (124, "tle", 9))
        self.function("forever", "forever", options=("--output-limit", "1000"))
        status, seen = self.call("forever", input=b"")
        self.assertEqual((status, seen[0]["verdict"]), (137, "ole"))
        self.assertEqual(seen[0]["stdout"]["bytes"], 1000)
        self.good("call", "--register", "none", "--image", "small", "--", "/nosuch")
        status, seen = self.call("none", input=b"")
        self.assertEqual((status, seen[0]["verdict"], seen[0]["blame"]), (127, "ie", "guest"))
        self.good("call", "--remove", "none")

    def test_each_input_is_a_call_and_a_line(self):
        self.function("copies", "copy", options=("--isolation", "domain"))
        files = []
        for number in range(5):
            path = self.folder / f"input-{number}"
            path.write_text(f"<{number}>")
            files += ["--input", str(path)]
        status, seen = self.call("copies", *files)
        self.assertEqual((status, [s["index"] for s in seen]), (0, list(range(5))))
        self.assertEqual([s["stdout"]["text"] for s in seen], [f"<{n}>" for n in range(5)])
        self.assertEqual(self.good("call", "copies", *files), "<0><1><2><3><4>")

    def test_functions_are_listed_until_they_are_removed(self):
        self.function("listed", "copy", options=("--cpu", "2s", "--isolation", "domain"))
        rows = [json.loads(line) for line in self.good("call", "--list", "--json").splitlines()]
        row = next(row for row in rows if row["name"] == "listed")
        self.assertEqual((row["image"], row["isolation"], row["cpu_ms"]), ("small", "domain", 2000))
        self.assertEqual(row["argv"], [PROGRAM, "copy"])
        self.assertIn("listed", self.good("call", "--list", "-q").split())
        self.good("call", "--remove", "listed")
        self.assertNotIn("listed", self.good("call", "--list", "-q").split())
        ran = self.ask("call", "listed", input=b"")
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"no function 'listed'", ran.stderr)

    def test_what_makes_no_sense_is_said(self):
        for words, said in (
            (("--register", "x"), b"--image"),
            (("x", "--cpu", "1s"), b"belong to --register"),
            (("--list", "x"), b"nothing more"),
            ((), b"one name"),
            (("--register", "x", "--image", "small", "--input", "f"), b"--input belongs to a call"),
        ):
            ran = self.ask("call", *words)
            self.assertEqual(ran.returncode, 125)
            self.assertIn(said, ran.stderr)

    def test_calls_leave_nothing(self):
        self.function("gone", "copy", options=("--isolation", "domain"))
        self.good("call", "gone", input=b"x")
        self.good("call", "--remove", "gone")

        def idle():
            return json.loads(self.ask("check", "--json", "--instance", self.instance).stdout)

        self.assertTrue(eventually(lambda: idle()["engine"]["slots_rebuilding"] == 0), idle())


if __name__ == "__main__":
    unittest.main()
