#!/usr/bin/env python3
"""`dsec policy` against an engine: documents are checked, loaded, shown, compared and removed."""
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_cli_engine import EngineFixture  # noqa: E402

READY = ["builder", "default", "fncall", "no-network", "swe-agent", "verify"]


class PolicyTest(EngineFixture):
    def document(self, name, text):
        path = self.folder / f"{name}.yaml"
        path.write_text(text)
        return str(path)

    def load(self, name, text):
        told = json.loads(self.good("policy", "load", "--json", self.document(name, text)))
        self.addCleanup(self.ask, "policy", "rm", name)
        return told

    def test_a_mistake_is_told_with_file_line_field_and_what_was_meant(self):
        path = self.document("bad", "name: bad\nfiles:\n  protct: [/bin]\n")
        ran = self.ask("policy", "check", path)
        self.assertEqual(ran.returncode, 125)
        self.assertIn(f"{path} invalid: 3:3 files.protct: unknown field; did you mean protect?",
                      ran.stderr.decode())
        field = "/" + "d" * 250
        path = self.document("bad", f"name: bad\nphases: {{{'p' * 63}: {'q' * 63}}}\n")
        ran = self.ask("policy", "load", path)
        self.assertEqual(ran.returncode, 125)
        self.assertIn(f"phases.{'p' * 63}: there is no policy {'q' * 63}\n", ran.stderr.decode())
        ran = self.ask("policy", "check", "/nosuch.yaml", "--json")
        self.assertEqual(ran.returncode, 125)
        path = self.document("bad", "name: bad\n#" + "x" * (64 << 10))
        self.assertIn("65,536", self.ask("policy", "check", path).stderr.decode())
        path = self.document("long", f"name: long\nfiles: {{hide: [{field}]}}\n")
        self.assertIn(field, self.good("policy", "check", "--effective", path))
        self.assertEqual(self.good("policy", "ls", "-q").split(), READY)

    def test_what_is_loaded_is_there_until_it_is_removed(self):
        text = "name: mine\nextends: verify\nfiles: {hide: [/srv]}\nphases: {late: no-network}\n"
        told = self.load("mine", text)
        self.assertEqual((told["name"], told["extends"]), ("mine", "verify"))
        self.assertEqual(self.load("mine", text)["version"], told["version"], "the same again")
        self.assertEqual(self.good("policy", "show", "mine"), text)
        shown = json.loads(self.good("policy", "show", "mine", "--json"))
        self.assertEqual((shown["document"], shown["rule_count"]), (text, len(shown["rules"])))
        self.assertEqual(shown["phases"], {"verify": "verify", "late": "no-network"})
        self.assertEqual(shown["rules"][-1]["text"], "files.hide /srv")
        effective = self.good("policy", "show", "mine", "--effective")
        self.assertIn("required        files.protect /usr/bin\n", effective)
        self.assertIn("where-possible  processes.bpf deny\n", effective)
        rows = [json.loads(line) for line in self.good("policy", "ls", "--json").splitlines()]
        self.assertEqual([r["name"] for r in rows], sorted(READY + ["mine"]))
        self.assertEqual([r["name"] for r in rows if r["ready_made"]], READY)
        self.assertIn("ready-made", self.good("policy", "ls"))
        again = self.load("mine", text + "# changed\n")
        self.assertGreater(again["version"], told["version"])
        path = self.document("mine", text)
        stale = self.ask("policy", "load", path, "--version", str(told["version"]))
        self.assertIn("another version is there", stale.stderr.decode())
        self.good("policy", "rm", "mine", "--version", str(again["version"]))
        gone = self.ask("policy", "show", "mine")
        self.assertIn("no such policy", gone.stderr.decode())
        self.assertIn("dsec policy ls", gone.stderr.decode())

    def test_the_ready_made_stay_as_they_are(self):
        for words in (("rm", "verify"), ("load", self.document("verify", "name: verify\n"))):
            ran = self.ask("policy", *words)
            self.assertIn("ready-made", ran.stderr.decode())
        source = Path(__file__).parents[3] / "engine/policy/policies"
        for name in READY:
            self.assertEqual(self.good("policy", "show", name), (source / f"{name}.yaml").read_text())

    def test_two_are_compared_rule_by_rule(self):
        path = self.document("other", "name: other\nextends: verify\nprocesses: {bpf: allow}\n"
                             "files: {hide: [/a]}\n")
        ran = self.ask("policy", "diff", "verify", path)
        self.assertEqual((ran.returncode, ran.stdout.decode()),
                         (1, "- where-possible  processes.bpf deny\n+ required        files.hide /a\n"))
        same = self.ask("policy", "diff", "verify", "verify")
        self.assertEqual((same.returncode, same.stdout), (0, b""))
        lines = self.ask("policy", "diff", "verify", path, "--json").stdout.splitlines()
        self.assertEqual([json.loads(line)["only"] for line in lines], ["first", "second"])

    def test_words_that_make_no_sense_are_refused(self):
        for words in ((), ("frob",), ("show",), ("diff", "a"), ("ls", "x"),
                      ("ls", "--version", "1")):
            ran = self.ask("policy", *words)
            self.assertEqual(ran.returncode, 125, words)


if __name__ == "__main__":
    unittest.main()
