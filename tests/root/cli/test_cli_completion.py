#!/usr/bin/env python3
"""Completion as a person has it: bash and zsh on a terminal, with the keys that complete."""
import os
import pty
import re
import select
import signal
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from test_cli_engine import BUILD, PROGRAM, RUN_S, EngineFixture  # noqa: E402

SETUP = {
    "bash": ["PS1='$ '", "bind 'set bell-style none'", "source <(dsec completion bash)"],
    "zsh": ["PS1='$ '", "unsetopt beep zle_bracketed_paste prompt_sp", "autoload -U compinit",
            "compinit -D -u", "source <(dsec completion zsh)"],
}
SHELL = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}
TAB, ALL = b"\t", b"\x1b*"


class Shell:
    def __init__(self, name, address, folder):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            path = f"{BUILD / 'sdk'}:{os.environ['PATH']}"
            os.execvpe(name, SHELL[name], {"TERM": "dumb", "PATH": path, "HOME": "/nonesuch",
                                           "DSEC_ADDRESS": address, "COLUMNS": "4000"})
        os.set_blocking(self.fd, False)
        for number, line in enumerate(SETUP[name]):
            self.type(f"{line}; echo so far {number} $((1+1))\n".encode())
            self.until(rf"so far {number} 2\r")

    def type(self, text):
        os.write(self.fd, text)

    def until(self, pattern):
        end, seen = time.monotonic() + RUN_S, ""
        while not re.search(pattern, seen):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"no {pattern} in {seen!r}")
            seen += os.read(self.fd, 65536).decode(errors="replace")
        return re.search(pattern, seen)

    def complete(self, line, key=TAB):
        """What the line is after that key, as the shell's own words."""
        self.type(line.encode() + key + b"\x01printf '<%s>' \x05; echo \" en\"d\n")
        return re.findall("<([^<>]*)>", self.until(r"\n((<[^<>\r\n]*>)+) end\r")[1])

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


class CompletionTest(EngineFixture):
    def shell(self, name):
        (self.folder / "afile").touch()
        shell = Shell(name, self.address, self.folder)
        self.addCleanup(shell.close)
        return shell

    def completes(self, shell, line, words):
        """On a busy machine an engine needs more than the half second that it is given."""
        said = None
        for _ in range(20):
            said = shell.complete(line)
            if said == words:
                return
        self.assertEqual(said, words)

    def both(self, shell):
        """What bash and zsh do alike."""
        sandbox = self.create("--name", "web", "--label", "task=11099")
        for line, words in (
            ("dsec ver", ["dsec", "version"]),
            ("dsec compl", ["dsec", "completion"]),
            ("dsec image insp", ["dsec", "image", "inspect"]),
            ("dsec image rm sm", ["dsec", "image", "rm", "small"]),
            ("dsec --js", ["dsec", "--json"]),
            ("dsec run --netw", ["dsec", "run", "--network"]),
            ("dsec run --network eg", ["dsec", "run", "--network", "egress-unpoliced"]),
            ("dsec run --network=eg", ["dsec", "run", "--network=egress-unpoliced"]),
            ("dsec create s", ["dsec", "create", "small"]),
            ("dsec --json create --image=s", ["dsec", "--json", "create", "--image=small"]),
            (f"dsec rm {sandbox[:20]}", ["dsec", "rm", sandbox]),
            ("dsec exec nam", ["dsec", "exec", "name:web"]),
            ("dsec exec name:w", ["dsec", "exec", "name:web"]),
            ("dsec ls name:w", ["dsec", "ls", "name:web:"]),
            ("dsec cp afi", ["dsec", "cp", "afile"]),
            ("dsec ps --label ta", ["dsec", "ps", "--label", "task=11099"]),
            ("dsec exec name:web -- afi", ["dsec", "exec", "name:web", "--", "afile"]),
            ("dsec -H priv", ["dsec", "-H", "private:"]),
            (f"dsec -H {self.address} rm --label na", ["dsec", "-H", self.address, "rm", "--label",
                                                       "name=web"]),
            ("dsec -H unix:/nonesuch rm na", ["dsec", "-H", "unix:/nonesuch", "rm", "na"]),
        ):
            self.completes(shell, line, words)

    def test_bash_completes_verbs_options_ids_labels_images_and_files(self):
        shell = self.shell("bash")
        self.both(shell)
        every = shell.complete("dsec ", ALL)
        verbs = re.findall(r"^  (\w+) ", self.good("--help"), re.M)
        self.assertEqual(sorted(every[1:]), sorted(verbs))
        options = re.findall(r" --([\w-]+)", self.good("create", "--help"))
        self.assertEqual(sorted(set(shell.complete("dsec create --", ALL)[2:])),
                         sorted({f"--{option}" for option in options}))
        sandbox = self.good("ps", "-q").strip()
        self.good("exec", "-d", sandbox, "--", PROGRAM, "sleep")
        self.completes(shell, f"dsec attach {sandbox} ", ["dsec", "attach", sandbox, "1"])

    def test_zsh_does_the_same(self):
        self.both(self.shell("zsh"))

    def test_a_name_that_means_something_to_a_shell_is_not_offered(self):
        self.create("--label", "evil=$(touch pwned)", "--label", "evil2=;x", "--label", "good=1")
        words = self.shell("bash").complete("dsec ps --label ", ALL)
        self.assertEqual(words, ["dsec", "ps", "--label", "good=1"])

    def test_other_shells_are_refused_by_name(self):
        ran = self.ask("completion", "fish")
        self.assertEqual((ran.returncode, ran.stdout), (125, b""))
        self.assertIn(b"bash and zsh, not for fish", ran.stderr)


if __name__ == "__main__":
    unittest.main()
