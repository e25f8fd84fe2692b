#!/usr/bin/env python3
"""`dsec policy` against an engine: documents are checked, loaded, shown, compared and removed."""
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_cli_engine import PROGRAM, EngineFixture  # noqa: E402

# By a mount, and by an LSM program, where the kernel takes those.
READ_ONLY = "Read-only file system|Operation not permitted"
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
        self.assertIn(" files.protect /usr/bin\n", effective)
        self.assertRegex(effective, r"\d  required        [a-z,-]*seccomp[a-z,-]* +processes.bpf deny\n")
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
                         (1, "- required        processes.bpf deny\n+ required        files.hide /a\n"))
        same = self.ask("policy", "diff", "verify", "verify")
        self.assertEqual((same.returncode, same.stdout), (0, b""))
        lines = self.ask("policy", "diff", "verify", path, "--json").stdout.splitlines()
        self.assertEqual([json.loads(line)["only"] for line in lines], ["first", "second"])

    def inspect(self, sandbox):
        return json.loads(self.good("inspect", sandbox, "--json"))

    def version(self, name):
        return json.loads(self.good("policy", "show", name, "--json"))["version"]

    def test_a_sandbox_has_the_policy_it_was_given_and_keeps_its_version(self):
        seen = self.inspect(self.create())
        self.assertEqual((seen["policy"], seen["policy_version"]), ("default", self.version("default")))
        self.assertEqual(seen["rules_unenforced"], 0)
        first = self.load("kept", "name: kept\nextends: no-network\n")
        sandbox = self.create("--policy", "kept")
        made = json.loads(self.good("create", "small", "--json", "--policy", "kept").splitlines()[0])
        self.assertEqual(made["policy_version"], first["version"])
        shown = json.loads(self.good("policy", "show", "kept", "--json"))
        self.assertEqual(shown["in_use"], 2)
        self.assertEqual(made["rules_unenforced"], shown["unenforced"])
        again = self.load("kept", "name: kept\n")
        self.assertEqual(self.inspect(sandbox)["policy_version"], first["version"])
        self.assertEqual(self.inspect(self.create("--policy", "kept"))["policy_version"],
                         again["version"])
        self.good("policy", "rm", "kept")
        seen = self.inspect(sandbox)
        self.assertEqual((seen["policy"], seen["policy_version"]), ("kept", first["version"]))
        ran = self.ask("create", "small", "--policy", "kept")
        self.assertEqual(ran.returncode, 125)
        self.assertIn("no such policy", ran.stderr.decode())
        self.assertIn("dsec policy ls", ran.stderr.decode())
        self.assertIn("create.policy", self.ask("create", "small", "--policy", "Ke").stderr.decode())

    def test_a_create_echoes_what_holds_and_what_nothing_holds(self):
        told = self.load("echoed", "name: echoed\nfiles: {readonly: [/root], hide: [/nosuch]}\n")
        ran = self.ask("create", "small", "--policy", "echoed", "--effective")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        sandbox, *rules = ran.stdout.decode().splitlines()
        self.assertEqual("\n".join(rules) + "\n", self.good("policy", "show", "echoed", "--effective"))
        shown = self.good("inspect", sandbox)
        unheld = self.inspect(sandbox)["rules_unenforced"]
        self.assertRegex(shown, rf"policy +echoed, version {told['version']}"
                         + (f", {unheld} rules held by nothing\n" if unheld else "\n"))
        self.assertEqual(f"held by nothing: {unheld} of" in ran.stderr.decode(), bool(unheld))
        lines = self.good("create", "small", "--json", "--policy", "echoed", "--effective").splitlines()
        echoed = json.loads(lines[1])
        self.assertEqual((echoed["name"], echoed["version"]), ("echoed", told["version"]))
        self.assertEqual([r["levels"] for r in echoed["rules"]], [r["levels"] for r in told["rules"]])

    def test_a_policy_bounds_the_network(self):
        ran = self.ask("create", "small", "--policy", "no-network", "--network", "private")
        self.assertEqual(ran.returncode, 125)
        self.assertIn("network.mode none", ran.stderr.decode())
        self.load("wide", "name: wide\nextends: no-network\nnetwork: {mode: private}\n")
        self.create("--policy", "wide", "--network", "private")

    def test_a_sandbox_is_held_to_its_policy_and_its_neighbour_is_not(self):
        told = self.load("held", "name: held\nfiles: {readonly: [/root], hide: [/nosuch]}\n")
        held, free = self.create("--policy", "held"), self.create()
        # Its image has no /nosuch: no mount can hide what is made there later.
        unenforced = 0 if "bpf-lsm" in told["rules"][1]["levels"] else 1
        self.assertEqual(self.inspect(held)["rules_unenforced"], unenforced)
        path = self.document("file", "x\n")
        ran = self.ask("cp", path, f"{held}:/root/x")
        self.assertEqual(ran.returncode, 125)
        self.assertRegex(ran.stderr.decode(), READ_ONLY)
        self.good("cp", path, f"{held}:/tmp/x")
        self.good("cp", path, f"{free}:/root/x")
        shown = self.good("exec", held, "--", PROGRAM, "show", "1")
        self.assertEqual(shown, self.good("exec", free, "--", PROGRAM, "show", "1"))
        for name in READY:
            ran = self.ask("create", "small", "-q", "--policy", name)
            policy = json.loads(self.good("policy", "show", name, "--json"))
            unmet = [r for r in policy["rules"] if r["enforce"] == "required" and not r["levels"]]
            self.assertEqual(ran.returncode, 125 if unmet else 0, ran.stderr)

    def test_what_is_required_and_not_enforced_fails_the_create(self):
        rules = {"files.protect /usr/bin": "files: {protect: [/usr/bin]}",
                 "sockets.unix.deny /run/x": "sockets: {unix: {deny: [/run/x]}}",
                 "ioctls.deny 0x1234": "ioctls: {deny: [0x1234]}",
                 "processes.bpf deny": "processes: {bpf: deny}"}
        outcomes = set()
        for rule, text in rules.items():
            told = self.load("needs", f"name: needs\n{text}\n")
            levels = told["rules"][0]["levels"]
            self.assertEqual((told["rules"][0]["text"], told["rules"][0]["enforce"]), (rule, "required"))
            self.assertEqual(told["unenforced"], 0 if levels else 1)
            ran = self.ask("create", "small", "--policy", "needs", "--json")
            outcomes.add(bool(levels))
            if levels:
                self.assertEqual(ran.returncode, 0, ran.stderr)
                continue
            self.assertEqual(ran.returncode, 125)
            self.assertIn(f"{rule}: nothing enforces it on this host", ran.stderr.decode())
            self.assertIn("--allow-degraded", ran.stderr.decode())
            seen = self.inspect(self.create("--policy", "needs", "--allow-degraded"))
            self.assertEqual((seen["policy"], seen["rules_unenforced"]), ("needs", 1))
            subject = rule.split(".")[0]
            self.load("asks", f"name: asks\n{text}\nenforce: {{{subject}: where-possible}}\n")
            self.assertEqual(self.inspect(self.create("--policy", "asks"))["rules_unenforced"], 1)
        self.assertIn(True, outcomes, "every sandbox is refused bpf()")

    def test_walls_stand_around_a_sandbox_and_no_other(self):
        told = self.load("kept", "name: kept\nfiles: {readonly: [/tmp]}\nenforce: {files: required}\n")
        self.assertEqual(told["unenforced"], 0)
        path = self.document("plain", "x")
        free, kept = self.create(), self.create("--policy", "kept")
        self.good("cp", path, f"{free}:/tmp/x")
        ran = self.ask("cp", path, f"{kept}:/tmp/x")
        self.assertNotEqual(ran.returncode, 0)
        self.assertRegex(ran.stderr.decode(), READ_ONLY)

    def test_words_that_make_no_sense_are_refused(self):
        for words in ((), ("frob",), ("show",), ("diff", "a"), ("ls", "x"),
                      ("ls", "--version", "1")):
            ran = self.ask("policy", *words)
            self.assertEqual(ran.returncode, 125, words)


if __name__ == "__main__":
    unittest.main()
