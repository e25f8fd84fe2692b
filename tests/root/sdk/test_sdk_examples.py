#!/usr/bin/env python3
"""The examples of sdk/examples, as they are built, against an engine: what they say is so."""
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))
from test_cli_engine import BUILD, PROGRAM, RUN_S, EngineFixture, eventually  # noqa: E402

# What it compiles are programs already: the judge does not care, and an image needs no compiler.
CC = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char text[1 << 20];
	int in = open(argv[argc - 1], O_RDONLY), out;
	ssize_t bytes = read(in, text, sizeof(text));

	if (argc != 5 || bytes < 4 || memcmp(text, "\177ELF", 4))
		return fprintf(stderr, "%s: error\n", argv[argc - 1]), 1;
	out = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0755);
	return write(out, text, (size_t)bytes) != bytes;
}
"""
SOURCE = r"""
#include <unistd.h>

int main(void)
{
	static char text[65536];

	if (read(0, text, sizeof(text)) < 1 || text[0] == 'e')
		return 3;
	if (text[0] == 'c')
		__builtin_trap();
	while (text[0] == 's')
		sleep(60);
	while (text[0] == 'o')
		if (write(1, text, sizeof(text)) < 0)
			return 0;
	return 0;
}
"""


# The same of what comes on stdin, for the shell of a function.
CC_STDIN = r"""
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char text[1 << 20];
	ssize_t bytes = 0, n;
	int out = open(argv[argc - 2], O_WRONLY | O_CREAT | O_TRUNC, 0755);

	while ((n = read(0, text + bytes, sizeof(text) - (size_t)bytes)) > 0)
		bytes += n;
	if (bytes < 4 || memcmp(text, "\177ELF", 4))
		return write(2, "no program\n", 11), 1;
	return write(out, text, (size_t)bytes) != bytes;
}
"""
PYTHON = """
import sys

letter = sys.stdin.read(1)
if letter == 'e':
    raise SystemExit(3)
while letter == 's':
    pass
while letter == 'o':
    sys.stdout.write('o' * 65536)
"""
TOP = HERE.parents[2]


class ExamplesTest(EngineFixture):
    sandboxes_max = 600

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = cls.folder / "judge-root"
        (root / "bin").mkdir(parents=True)
        for text, target in ((CC, root / "bin/cc"), (SOURCE, cls.folder / "program.c")):
            subprocess.run(["cc", "-static", "-s", "-O1", "-x", "c", "-o", target, "-"], check=True,
                           input=text.encode(), timeout=RUN_S)
        for name in ("proc", "dev/pts", "dev/shm", "tmp"):
            (root / name).mkdir(parents=True)
        subprocess.run(["mkfs.erofs", "--quiet", cls.images / "judge.erofs", root], check=True,
                       timeout=RUN_S)

    def image_with_shell(self):
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dsec"
        subprocess.run([TOP / "loadgen/image.sh", "--minimal", cache], check=True, timeout=RUN_S,
                       stdout=subprocess.DEVNULL)
        root = self.folder / "shell-root"
        subprocess.run(["cp", "-a", cache / "root-minimal", root], check=True, timeout=RUN_S)
        subprocess.run(["cc", "-static", "-s", "-O1", "-x", "c", "-o", root / "bin/cc", "-"],
                       check=True, input=CC_STDIN.encode(), timeout=RUN_S)
        subprocess.run(["mkfs.erofs", "--quiet", self.images / "shell.erofs", root], check=True,
                       timeout=RUN_S)

    def inputs(self, letters):
        files = []
        for letter in letters:
            files.append(self.folder / f"input-{letter}")
            files[-1].write_text(letter)
        return files

    def verdicts(self, ran):
        self.assertEqual(ran.returncode, 0, ran)
        return dict(re.findall(r"input-(\w): ([a-z ]+), [\d.]+ ms", ran.stdout))

    def test_submissions_in_c_are_compiled_once_and_called_for_each_input(self):
        self.image_with_shell()
        wanted = {"a": "ok", "e": "runtime error", "c": "runtime error", "o": "output limit"}
        ran = self.example("submissions", "shell", self.folder / "program.c", *self.inputs(wanted))
        self.assertEqual(self.verdicts(ran), wanted)
        (self.folder / "bad.c").write_text("this is no program")
        ran = self.example("submissions", "shell", self.folder / "bad.c", *self.inputs("a"))
        self.assertEqual((ran.returncode, ran.stdout),
                         (1, f"{self.folder}/bad.c: compile error\n"))

    def test_submissions_in_python_are_called_for_each_input(self):
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dsec"
        subprocess.run([TOP / "loadgen/image.sh", cache], check=True, stdout=subprocess.DEVNULL)
        shutil.copyfile(cache / "debian.erofs", self.images / "debian.erofs")
        (self.folder / "program.py").write_text(PYTHON)
        wanted = {"a": "ok", "e": "runtime error", "s": "time limit", "o": "output limit"}
        ran = self.example("submissions", "debian", self.folder / "program.py",
                           *self.inputs(wanted))
        self.assertEqual(self.verdicts(ran), wanted)

    def example(self, name, *words):
        ran = subprocess.run([BUILD / "sdk/examples" / name, *words], capture_output=True,
                             env=os.environ | {"DSEC_ADDRESS": self.address}, timeout=RUN_S,
                             text=True)
        self.assertTrue(eventually(lambda: self.good("ps", "-q") == ""), f"it leaves nothing: {ran}")
        return ran

    def test_epoll_makes_500_in_one_loop_and_says_how_long_it_took(self):
        ran = self.example("epoll", "small")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertRegex(ran.stdout, r"^500 of 500 created, p50 [\d.]+ ms, p99 [\d.]+ ms\n$")
        ran = self.example("epoll", "nonesuch")
        self.assertEqual((ran.returncode, ran.stdout), (1, ""))
        self.assertIn("no such image", ran.stderr)

    def test_threads_share_a_connection_and_a_queue(self):
        ran = self.example("threads", "small", PROGRAM, "exit", "0")
        self.assertEqual((ran.returncode, ran.stdout), (0, "500 of 500 ran well, by 64 threads\n"))
        ran = self.example("threads", "small", PROGRAM, "exit", "1")
        self.assertEqual((ran.returncode, ran.stdout), (1, "0 of 500 ran well, by 64 threads\n"))
        ran = self.example("threads", "nonesuch", PROGRAM)
        self.assertEqual((ran.returncode, ran.stdout), (1, "0 of 500 ran well, by 64 threads\n"))
        for _ in range(max(20 // int(os.environ.get("DSEC_TEST_SLOWNESS", "1")), 2)):  # nobody waits for ever for what could not be begun
            ran = self.example("threads", "small", PROGRAM, "exit", "0")
            self.assertEqual(ran.stdout, "500 of 500 ran well, by 64 threads\n")

    def test_judge_compiles_once_and_gives_each_input_a_verdict(self):
        wanted = {"a": "ok", "e": "runtime error", "c": "runtime error", "s": "time limit",
                  "o": "output limit"}
        files = []
        for letter in wanted:
            files.append(self.folder / f"input-{letter}")
            files[-1].write_text(letter)
        ran = self.example("judge", "judge", self.folder / "program.c", *files)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual(re.findall(r"input-(\w): ([a-z ]+), [\d.]+ ms", ran.stdout),
                         list(wanted.items()))
        (self.folder / "bad.c").write_text("this is no program")
        ran = self.example("judge", "judge", self.folder / "bad.c", files[0])
        self.assertEqual((ran.returncode, ran.stdout), (1, f"{self.folder}/bad.c: compile error\n"))


if __name__ == "__main__":
    unittest.main()
