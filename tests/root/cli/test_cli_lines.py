#!/usr/bin/env python3
"""A tour of twelve command lines, human and --json, in their order.

Line 6 (exec -it) is test_cli_terminal.py's, line 10 (call) the functions'. Then what else there is of
command lines: files of environment, copies in, backends, names of what is not there yet, and an engine of
one's own that leaves nothing.
"""
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from test_cli_engine import DSEC, DSECD, PROGRAM, READY_S, RUN_S, EngineFixture, PrivateTest  # noqa: E402
from test_cli_engine import eventually, traces  # noqa: E402

IMAGE = "swe/django-11099"
GONE_S = 60  # rarely a new engine takes the whole bound of its stop, 25 s


def docker_archive(folder, path):
    """`docker save`, of one layer."""
    def add(archive, name, data):
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        archive.add(folder, ".")
        entry = tarfile.TarInfo("testbed")
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(entry)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}
    with tarfile.open(path, "w") as archive:
        add(archive, "layer.tar", layer.getvalue())
        add(archive, "config.json", json.dumps(config).encode())
        add(archive, "manifest.json", json.dumps(
            [{"Config": "config.json", "RepoTags": [], "Layers": ["layer.tar"]}]).encode())


class LinesTest(EngineFixture):
    def setUp(self):
        super().setUp()
        docker_archive(self.folder / "root", self.folder / "swe.tar")

    def row(self, *words):
        return json.loads(self.good("--json", *words).splitlines()[-1])

    def row_of_failure(self, *words):
        ran = self.ask("--json", *words)
        self.assertEqual(ran.returncode, 125, words)
        return json.loads(ran.stdout)

    def test_line_1_run(self):
        ran = self.ask("run", "small", "--", PROGRAM, "show", "42")
        self.assertEqual((ran.returncode, ran.stdout), (0, b"42|-|/root|0|0\n"))
        told = self.row("run", "small", "--", PROGRAM, "show", "42")
        self.assertEqual((told["stdout"]["text"], told["code"]), ("42|-|/root|0|0\n", 0))

    def swe(self, *words):
        return self.good("image", "import", f"docker-archive:{self.folder}/swe.tar", "--name", IMAGE,
                         *words)

    def test_line_2_image_import(self):
        said = self.swe()
        self.assertRegex(said, rf"^{IMAGE}  sha256:[0-9a-f]+…?  [\d,]+ files  "
                               r"[\d.]+ [kKMG]?B new, [\d.]+ [kKMG]?B shared  [\d.]+ s\n$")
        told = json.loads(self.swe("--json"))
        self.assertEqual((told["name"], told["layers"]), (IMAGE, 1))
        self.assertEqual(self.good("image", "ls", "-q"), f"small\n{IMAGE}\n")
        self.good("image", "rm", IMAGE)

    def test_lines_3_to_8_a_sandbox_that_stays(self):
        self.swe()
        self.addCleanup(self.good, "image", "rm", IMAGE)
        self.addCleanup(self.remove_all)
        words = ("create", "--image", IMAGE, "--ttl", "2h", "--idle-ttl", "15m", "--label",
                 "task=11099")
        sandbox = self.good(*words, "-q").strip()
        self.assertRegex(sandbox, r"^[0-9a-hjkmnp-tv-z]{26}$")
        # 4: a time-out, and what was kept
        ran = self.ask("exec", sandbox, "-w", "/testbed", "--timeout", "700ms", "--idle-timeout", "20s",
                       "--", PROGRAM, "slow", "30")
        self.assertEqual((ran.returncode, ran.stdout), (124, b"begun\n"))
        self.assertRegex(ran.stderr, rb"^dsec: timeout after \d\.\d s: 1 process killed, 6 bytes of output \(exec 1\)\n")
        # 5: JSON of a program that fails
        ran = self.ask("exec", sandbox, "--json", "--", PROGRAM, "exit", "127")
        told = json.loads(ran.stdout)
        self.assertEqual(ran.returncode, 127)
        self.assertEqual({key: told[key] for key in ("sandbox", "exec", "reason", "code", "blame")},
                         {"sandbox": sandbox, "exec": 2, "reason": "exit", "code": 127, "blame": "none"})
        self.assertEqual(told["stdout"], {"text": "", "bytes_total": 0, "truncated": False})
        for key in ("wall_ms", "cpu_ms", "memory_peak_bytes"):
            self.assertGreaterEqual(told[key], 0, key)
        # 7: the list
        head, line = self.good("ps", "--label", "task=11099").splitlines()
        self.assertEqual(head.split()[:3], ["ID", "STATE", "PHASE"])
        self.assertRegex(line, rf"^{sandbox} +running +- +0/2 .* 14m +clean .*{IMAGE} +task=11099$")
        self.assertRegex(head, r"^ID +STATE +PHASE +EXECS +CPU +MEM +AGE +IDLE +TTL +INTEGRITY ")
        self.assertRegex(line, r" 0/2 +\d+\.\d% +(-|[\d.]+ [KM]?B) +\d")
        row = self.row("ps", "--label", "task=11099")
        self.assertGreater(row["cpu_us"], 0)
        stats = self.row("stats", sandbox)  # memory where it is counted, and nothing else where not
        self.assertEqual(row["memory_bytes"] is None, stats["memory_bytes"] is None)
        self.assertEqual((row["id"], row["image"], row["state"]), (sandbox, IMAGE, "running"))
        # 8: files in and out
        (self.folder / "patch.diff").write_text("the patch")
        self.good("cp", self.folder / "patch.diff", f"{sandbox}:/testbed/")
        report = self.ask("cp", f"{sandbox}:/testbed", "-").stdout
        with tarfile.open(fileobj=io.BytesIO(report)) as archive:
            names = {Path(name).name: name for name in archive.getnames()}
            self.assertEqual(archive.extractfile(names["patch.diff"]).read(), b"the patch")

    def test_line_9_more_than_there_may_be_is_accounted_for(self):
        ran = self.ask("create", "--image", "small", "--count", "70", "--json")
        lines = [json.loads(line) for line in ran.stdout.splitlines()]
        last = lines[-1]
        self.assertEqual(ran.returncode, 125)
        self.assertEqual((last["asked"], last["created"] + last["refused"]), (70, 70))
        self.assertEqual(len([line for line in lines if "id" in line]), last["created"])
        self.assertGreater(last["refused"], 0)
        self.assertRegex(last["reason"], r"^limit \w+_max$")
        self.assertEqual((last["status"], last["blame"]), ("refused", "platform"))
        self.assertGreater(last["retry_after_ms"], 0)
        self.assertGreaterEqual(last["wall_ms"], 0)

    def test_line_11_attach_says_what_is_no_longer_kept(self):
        sandbox = self.create()
        number = self.good("exec", "-d", sandbox, "--", PROGRAM, "letters", str(6 << 20)).strip()
        ran = self.ask("attach", sandbox, number, "--from", str(7 << 20))
        self.assertEqual((ran.returncode, ran.stdout), (125, b""))
        self.assertIn(b"beyond what it wrote so far", ran.stderr)
        self.assertTrue(eventually(lambda: self.row("ps", "--execs", sandbox)["reason"] == "exit"))
        ran = self.ask("attach", sandbox, number, "--from", str(3 << 20))
        self.assertEqual(ran.returncode, 0, ran.stderr)
        gone = re.search(rb"^dsec: gap: stdout: ([\d,]+) bytes from 3,145,728 on are no longer kept\n",
                         ran.stderr)
        self.assertIsNotNone(gone, ran.stderr)
        self.assertEqual(len(ran.stdout) + int(gone[1].replace(b",", b"")), 3 << 20)

    def test_line_12_rm_and_check(self):
        self.create("--job", "7", "--count", "3")
        other = self.create("--job", "8")
        self.assertEqual(len(self.good("ps", "-q", "--label", "job=7").split()), 3)
        self.assertEqual(self.good("ps", "-q", "--job", "8").strip(), other)
        self.assertIn(other, self.good("events", "--job", "8"))
        self.assertEqual(self.good("rm", "--job", "7"), "3 removed\n")
        self.assertEqual(self.good("rm", "--job", "8"), "1 removed\n")
        checked = self.good("check", "--instance", self.instance)
        self.assertIn("left:    processes 0, cgroups 0, mounts 0, namespaces 0\n", checked)
        self.create("--label", "job=7")
        self.assertEqual(self.row("rm", "--label", "job=7")["removed"], 1)

    # ---- what else was asked for ----

    def test_ids_that_fit_several_are_named_and_nothing_is_done(self):
        ids = sorted(self.create("--count", "3", "--name", "web").split())
        for part in ("name:web", ids[0][:8]):
            ran = self.ask("rm", part)
            self.assertEqual((ran.returncode, ran.stdout), (125, b""))
            self.assertEqual(sorted(re.findall(r"one of them: (\w+)", ran.stderr.decode())), ids)
        self.assertEqual(sorted(self.good("ps", "-q").split()), ids)
        self.good("rm", ids[1][-8:])
        self.assertEqual(self.good("ps", "-q").split(), [ids[0], ids[2]])

    def test_environment_comes_from_files_and_the_command_line_is_over_them(self):
        file = self.folder / "env"
        file.write_text("# a comment\n\nA=from file\nB=x\nA=the last = counts\r\n")
        sandbox = self.create("--env-file", file)
        for words, seen in (((), "the last = counts"), (("-e", "A=x", "-e", "A=y"), "y"),
                            (("--env-file", file, "-e", "A="), "")):
            shown = self.good("exec", *words, sandbox, "--", PROGRAM, "show", "e")
            self.assertEqual(shown, f"e|{seen}|/root|0|0\n")
        row = self.row("ps", "--execs", sandbox)
        self.assertEqual([e for e in row["env"] if e[:2] in ("A=", "B=")], ["B=x", "A="])
        for text, said in (("no equals sign", b"line 1 is not NAME=VALUE"), ("A=1\n=x", b"line 2"),
                           ("A=\0", b"NUL")):
            file.write_text(text)
            ran = self.ask("run", "--env-file", file, "small", "--", PROGRAM, "show")
            self.assertEqual((ran.returncode, ran.stdout), (125, b""))
            self.assertIn(said, ran.stderr)
        ran = self.ask("create", "--env-file", "/nonesuch", "small")
        self.assertIn(b"/nonesuch: No such file", ran.stderr)

    def test_files_go_in_before_anything_runs_and_without_them_there_is_no_sandbox(self):
        (self.folder / "in").mkdir(exist_ok=True)
        (self.folder / "in/a").write_text("a")
        words = ("--cp-in", f"{self.folder}/in:/tmp", "--cp-in", f"{self.folder}/in/a:/tmp/b")
        sandbox = self.create(*words)
        self.assertEqual(self.good("cat", f"{sandbox}:/tmp/in/a"), "a")
        self.assertEqual(self.good("cat", f"{sandbox}:/tmp/b"), "a")
        (self.folder / "in/a").write_bytes(Path(self.folder / "root/program").read_bytes())
        (self.folder / "in/a").chmod(0o755)
        ran = self.ask("run", *words, "small", "--", "/tmp/in/a", "exit", "9")
        self.assertEqual((ran.returncode, ran.stderr), (9, b""))
        for copy, said in (("/nonesuch:/tmp/x", b"/nonesuch"), ("/etc/passwd:/none/x", b"cp to /none/x failed")):
            for verb in (("run", "small", "--cp-in", copy, "--", PROGRAM), ("create", "small", "--cp-in",
                                                                          copy, "--count", "2")):
                ran = self.ask(*verb)
                self.assertEqual((ran.returncode, ran.stdout), (125, b""), verb)
                self.assertIn(said, ran.stderr)
        for copy in ("nothing", "a:relative", ":/tmp", "-:/tmp"):
            self.assertIn(b"SOURCE:/TARGET", self.ask("create", "small", "--cp-in", copy).stderr)
        self.assertEqual(self.good("ps", "-q").split(), [sandbox])

    def test_what_is_promised_and_not_there_yet_is_refused_by_name(self):
        for words in (("pause",), ("resume",), ("job",), ("replay",),
                      ("run", "--phase=x", "small")):
            ran = self.ask(*words)
            self.assertEqual((ran.returncode, ran.stdout), (125, b""), words)
            self.assertIn(b"not there yet", ran.stderr, words)
        ran = self.ask("create", "small", "--backend", "microvm")
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"only the container backend is here", ran.stderr)
        self.create("--backend", "container")

    def test_errors_say_what_failed_where_whose_fault_it_is_and_what_to_do(self):
        one = self.create()
        for words in (("cp", __file__, f"{one}:/tmp/x"), ("file", "mkdir", f"{one}:/tmp/d"),
                      ("file", "mv", f"{one}:/tmp/x", "/tmp/d/y"), ("file", "rm", "-r", f"{one}:/tmp/d")):
            self.assertEqual(json.loads(self.good("--json", *words)), {"status": "ok", "blame": "none"})
        for words in (("cat", f"{one}:/etc/x"), ("cp", f"{one}:/etc", "-"), ("completion", "bash")):
            self.assertIn("not with --json", self.row_of_failure(*words)["detail"])
        for words, said in (
            (("create", "nonesuch"),
             r"create absent: no such image.* at [\w.]+ .*\[caller\]; dsec image ls shows images"),
            (("create", "x" * 1500),
             r"create invalid: a name, or several .* 1023 bytes at create\.image \(File name too long\) .*"),
            (("create", "small", "--hostname", "a b"),
             r"create invalid: letters, .* at create\.hostname \(Invalid argument\) \[caller\]"),
            (("create", "small", "--user", "1000:x"), r"create invalid: a name, or .* at create\.user .*"),
            (("create", "small", "--backend", "vm"), r"create unsupported: .* at create\.backend \[caller\]"),
            (("exec", "0" * 26, "--", "x"), r"exec absent: .*\[caller\]; dsec ps shows sandboxes"),
            (("exec", one, "-u", "7a", "--", "x"), r"exec invalid: a name, or .* at exec\.user .*\[caller\]"),
            (("exec", one, "-e", "X", "--", "x"), r"-e: 'X' is not NAME=VALUE; see dsec --help"),
            (("attach", one, "9"), r"attach absent: .* at request\.exec .*; dsec ps --execs ID shows its programs"),
            (("logs", one, "9"), r"logs absent: .* at request\.exec .*"),
            (("cat", f"{one}:/none"),
             rf"cat {one}:/none failed: at file\.open \(No such file or directory\) \[caller\]"),
            (("cp", f"{one}:/none", "/tmp/x"), rf"cp {one}:/none: No such file or directory"),
            (("cp", "/etc/hostname", f"{one}:/no/x"), rf"cp to {one}:/no/x failed: .*"),
            (("file", "stat", f"{one}:/", "-r"), r"--recursive belongs to file rm"),
            (("file", "mv", f"{one}:/"), r"file mv wants ID:PATH and PATH"),
            (("image", "fetch"), r"image fetch: there is import, ls, inspect, rm, compose, gc, verify, push, pull, pack, build and hotset"),
            (("image", "rm", "a\x1b[31m"), r"a\\x1b\[31m invalid: .*"),
            (("image", "import", "dir:/none", "--name", "x"), r"/none: No such file or directory"),
            (("image", "import", f"tar:{__file__}", "--name", "x"), r"import invalid: .*\(Bad message\).*"),
            (("policy", "show", "nonesuch"), r"nonesuch absent: .*; dsec policy ls shows policies"),
            (("policy", "check", "/none"), r"policy: '/none': No such file or directory"),
            (("policy", "ls", "--effective"), r"--effective belongs to policy check, load and show"),
        ):
            ran = self.ask(*words)
            self.assertEqual(ran.returncode, 125)
            self.assertRegex(ran.stderr.decode(), rf"^dsec: {said}\n$")
            told = self.row_of_failure(*words)
            self.assertIn((told["status"], told["blame"]), (
                ("invalid", "caller"), ("absent", "caller"), ("unsupported", "caller"),
                ("failed", "caller"), ("failed", "platform"), ("lost", "platform")), words)


class OwnEngineTest(PrivateTest):
    """`dsec run` that starts an engine, and what ends it."""

    def test_it_leaves_nothing_when_it_is_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            child = self.start("sleep")
            name = f"private-{child.pid}-"
            self.assertTrue(eventually(lambda: any(p.read_text() for p in self.leaves(name)), READY_S))
            child.send_signal(number)
            child.communicate(timeout=RUN_S)
            # As the program, which had it; or of it, before there was a program to have it.
            self.assertIn(child.returncode, (128 + number, -number))
            self.assertTrue(eventually(lambda: not traces(name), GONE_S), traces(name))

    def in_full_run(self, fill):
        """In a mount namespace where /run is small, and filled."""
        script = (f"mount -t tmpfs -o size=64k,nr_inodes={fill} none /run && "
                  "(head -c 1M /dev/zero >/run/fill 2>/dev/null; exec \"$@\")")
        child = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", DSEC, *self.words,
             self.images, "small", "--", PROGRAM, "show", "x"],
            env=os.environ | {"DSEC_DSECD": str(DSECD)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, said = child.communicate(timeout=RUN_S)
        return child, out, said

    def test_a_full_run_is_told_and_nothing_is_left(self):
        for inodes in (2, 4, 6):
            child, out, said = self.in_full_run(inodes)
            self.assertEqual((child.returncode, out), (125, b""), said)
            self.assertIn(b"No space left on device", said)
            name = f"private-{child.pid}-"
            self.assertTrue(eventually(lambda: not traces(name), GONE_S), traces(name))

    def test_an_stdout_that_is_full_is_told_and_nothing_is_left(self):
        with open("/dev/full", "wb") as full:
            child = subprocess.Popen(
                [DSEC, *self.words, self.images, "small", "--", PROGRAM, "show", "x"], stdout=full,
                stderr=subprocess.PIPE, env=os.environ | {"DSEC_DSECD": str(DSECD)})
            _, said = child.communicate(timeout=RUN_S)
        self.assertEqual(child.returncode, 125)
        self.assertIn(b"dsec: stdout: No space left on device", said)
        self.assertTrue(eventually(lambda: not traces(f"private-{child.pid}-"), GONE_S))


del PrivateTest  # its own are test_cli_engine.py's
for name in ("test_it_runs_the_program_and_leaves_nothing", "test_it_leaves_nothing_when_it_is_killed",
             "test_an_unknown_image_is_the_callers_fault"):
    setattr(OwnEngineTest, name, None)

if __name__ == "__main__":
    unittest.main()
