#!/usr/bin/env python3
"""docs/bpftool.md: its commands, as they stand there, say what a sandbox may do and what it tried."""
import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_cli_engine import PROGRAM, RUN_S, EngineFixture  # noqa: E402

PAGE = Path(__file__).resolve().parents[3] / "docs/bpftool.md"
TRIED = 7


class BpftoolTest(EngineFixture):
    def page_run(self, sandbox):
        """What the commands of each heading say."""
        script = "set -e -o pipefail\n"
        headings = ["", *re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)]
        for heading, text in zip(headings[::2], headings[1::2]):
            script += f"echo '=== {heading}'\n" + "".join(
                re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
        ran = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, timeout=RUN_S,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "INSTANCE": self.instance, "ID": sandbox},
        )
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        parts = re.split(r"^=== (.*)$", ran.stdout, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2]))

    def test_the_page_tells_what_a_sandbox_may_do_and_what_it_tried(self):
        path = self.folder / "held.yaml"
        path.write_text("name: held\nfiles: {protect: [/program]}\n"
                        "ioctls: {deny: [0x1234]}\n")
        self.good("policy", "load", str(path))
        self.addCleanup(self.ask, "policy", "rm", "held")
        sandbox = self.create("--policy", "held", "--network", "none")
        self.create("--policy", "held")  # which tries nothing
        for _ in range(TRIED):
            self.ask("exec", sandbox, "--", PROGRAM, "socket")
        self.assertIn('"version": 1,', self.page_run(sandbox)["Which one it is"])
        self.good("phase", sandbox, "next")  # and it keeps its policy
        told = self.page_run(sandbox)
        self.assertRegex(told["Which one it is"], r'"version": 2,\s*"phase": 2,')
        self.assertIn('"name": "held"', told["What it may do"])
        for rule in ("files.protect /program", "ioctls.deny 0x1234"):
            self.assertIn(f'"text": "{rule}"', told["What it may do"])
        self.assertRegex(told["What it may do"], r'"value": 4660')
        self.assertRegex(told["What it tried"], rf'"rule": 32768,\s*"hook": 1\s[^}}]*}},\s*'
                         rf'"value": {{\s*"count": {TRIED},')
        for name in ("dsec_socket", "cgroup"):
            self.assertIn(name, told["What enforces it"])
        if "bpf-lsm" in self.good("policy", "show", "held", "--effective"):
            self.assertRegex(told["What enforces it"], r"\d+: lsm  name dsec_file_open")
        self.assertEqual(told["What it tried"].count('"count"'), 1, "one rule, of one sandbox")
        lines = self.good("events", sandbox, "--kind", "violation").splitlines()[1:]
        self.assertRegex(lines[0], r"exec 1 socket 1 times, rule network-none, refused by \d+ program")
        event = json.loads(self.good("events", sandbox, "--kind", "violation", "--json").splitlines()[0])
        self.assertEqual((event["rule"], event["rule_name"], event["refused"]),
                         (32768, "network-none", True))


if __name__ == "__main__":
    unittest.main()
