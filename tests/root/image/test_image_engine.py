#!/usr/bin/env python3
"""dsec image against a real engine: import, use, replace, remove, and every way to end early."""
import contextlib
import gzip
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import tarfile
import tempfile
import time
import unittest
from pathlib import Path

from importer import (BUILD, directory, docker_archive, entry, libc, link, must,
                      mounts_of_our_own, oci_archive, oci_files, tar)

DSEC, DSECD = BUILD / "sdk/dsec", BUILD / "engine/dsecd"
# As tests/slowness.h reads it: an emulated machine waits longer and does less.
SLOWNESS = int(os.environ.get("DSEC_TEST_SLOWNESS", "1"))
READY_S, RUN_S = 240, 720
PASSWD = b"root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n"


def eventually(what, seconds=160):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def has_interpreter(program):
    """Whether an ELF file of 64 bits asks for a dynamic linker (PT_INTERP)."""
    start, = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    kinds = [struct.unpack_from("<I", program, start + n * size)[0] for n in range(count)]
    return 3 in kinds


def busybox():
    """A static one: installed, or a package's file in the cache of load tests."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dsec"
    for path in (Path("/bin/busybox"), Path("/usr/bin/busybox"),
                 cache / "root-minimal/bin/busybox"):
        if path.exists() and not has_interpreter(path.read_bytes()):
            return path.read_bytes()
    raise unittest.SkipTest("no static busybox here: apt-get install busybox-static")


def end_with_us():
    libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Engine:
    """One of our own; `stop` ends it in order."""

    def __init__(self, folder, name, images, *options, lives_on=False, program=None):
        self.folder, self.images = folder, images
        self.instance = f"{name}-{os.getpid()}"
        self.socket = folder / f"{name}.sock"
        self.log = folder / f"{name}.log"
        images.mkdir(exist_ok=True)
        reader, writer = os.pipe()
        lifeline, self.lifeline = os.pipe()  # if we are killed, it goes too
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [program or DSECD, "--instance", self.instance, "--socket", self.socket, "--images", images,
                 "--ready-fd", str(writer), "--shards", "2", "--sandboxes-max", "64",
                 *(() if lives_on else ("--lifeline", str(lifeline))), *options],
                preexec_fn=end_with_us if lives_on else None,
                pass_fds=[writer, lifeline], stdout=log, stderr=log)
        os.close(writer)
        os.close(lifeline)
        with os.fdopen(reader) as ready:
            if ready.readline() != "ready\n":
                raise AssertionError(f"dsecd is not ready:\n{self.log.read_text()}")

    def child(self):
        """The engine below its keeper."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return int(Path(path).read_text().split()[0])

    def importers(self):
        children = Path(f"/proc/{self.child()}/task/{self.child()}/children").read_text().split()
        names = {}
        for pid in map(int, children):
            with contextlib.suppress(OSError):
                names[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
        return [pid for pid, name in names.items() if name == "dsec-import"]

    def groups(self):
        """Control groups of imports."""
        mount = next(line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()
                     if line.split()[2] == "cgroup2")
        return sorted(Path(mount, f"dsec-{self.instance}").glob("import*"))

    def dsec(self, *words, **options):
        options.setdefault("stdin", subprocess.DEVNULL if "input" not in options else None)
        if options["stdin"] is None:
            del options["stdin"]
        return subprocess.run([DSEC, "-H", f"unix:{self.socket}", *map(str, words)],
                              capture_output=True, timeout=RUN_S, check=False, **options)

    def start(self, *words, **options):
        return subprocess.Popen([DSEC, "-H", f"unix:{self.socket}", *map(str, words)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def left(self):
        """What is in the images' directory besides images."""
        # walk() passes over what goes meanwhile.
        there = [Path(folder, name) for folder, folders, files in os.walk(self.images)
                 for name in [*folders, *files]]
        images = [path for path in there if path.suffix == ".erofs"]
        ours = {self.images / ".import", *images, *(path.parent for path in images)}
        return [path for path in there if path not in ours and not self.is_stores(path)]

    def is_stores(self, path):
        """Of the store itself; of its blobs what has the name of one."""
        words = path.relative_to(self.images).parts
        if words[:2] == ("blobs", "sha256") and len(words) == 3:
            return re.fullmatch("[0-9a-f]{64}", words[2]) is not None
        return words in {(name,) for name in ("blobs", "oci-layout", "index", "index.lock", ".lock",
                                              "composed", "cache")} | {("blobs", "sha256")}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        os.close(self.lifeline)


class ImageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        mounts_of_our_own()
        cls.busybox = busybox()
        cls.folder = Path(tempfile.mkdtemp(prefix="dsec-image-test."))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.images = cls.folder / "images"
        cls.images.mkdir()
        cls.engine = Engine(cls.folder, "imgtest", cls.images)
        cls.addClassCleanup(cls.engine.stop)

    def base(self, *entries):
        return tar(directory("home/agent", uid=1000, gid=1000), directory("srv", mode=0o755),
                   entry("etc/passwd", PASSWD), entry("bin/busybox", self.busybox, mode=0o755),
                   *[link(f"bin/{name}", "busybox") for name in
                     ("sh", "cat", "env", "id", "pwd", "echo", "sleep", "ls", "true")], *entries)

    def good(self, *words, **options):
        ran = self.engine.dsec(*words, **options)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout.decode()

    def bring(self, name, data, *words):
        return json.loads(self.good("--json", "image", "import", "-", "--name", name, *words,
                                    input=data))

    def bad(self, *words, says=(), **options):
        ran = self.engine.dsec(*words, **options)
        self.assertEqual(ran.returncode, 125, (ran.stdout, ran.stderr))
        for text in says:
            self.assertIn(text, ran.stderr.decode())
        return ran

    def rows(self):
        return {row["name"]: row for row in
                map(json.loads, self.good("--json", "image", "ls").splitlines())}

    # ---- sources ----

    def test_every_source_makes_the_same_image(self):
        folder = self.folder / "sources"
        (folder / "root").mkdir(parents=True)
        data = self.base(entry("marker", b"here\n", mtime=1700000000))
        subprocess.run(["tar", "-C", folder / "root", "-xp", "--numeric-owner"], input=data,
                       check=True, timeout=60)
        os.setxattr(folder / "root/marker", "user.note", b"\x00\xff")
        os.link(folder / "root/marker", folder / "root/again")
        (folder / "it.tar").write_bytes(data)
        (folder / "it.tar.gz").write_bytes(gzip.compress(data))
        (folder / "docker.tar").write_bytes(docker_archive(data))
        files = oci_files(data, packed=gzip.compress)
        (folder / "oci.tar").write_bytes(oci_archive(files))
        index = json.loads(files["index.json"])
        index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "it:1.0"}
        files["index.json"] = json.dumps(index).encode()
        for name, content in files.items():
            (folder / "oci" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "oci" / name).write_bytes(content)
        sources = {"dir": f"dir:{folder}/root", "tar": f"tar:{folder}/it.tar",
                   "gz": f"tar:{folder}/it.tar.gz", "docker": f"docker-archive:{folder}/docker.tar",
                   "oci": f"oci:{folder}/oci", "archive": f"oci-archive:{folder}/oci.tar",
                   "tag": f"oci:{folder}/oci:it:1.0"}
        digests = {}
        for name, source in sources.items():
            self.good("image", "import", source, "--name", f"from/{name}:1")
            ran = self.good("run", f"from/{name}:1", "--", "/bin/cat", "/marker")
            self.assertEqual(ran, "here\n")
            digests[name] = self.rows()[f"from/{name}:1"]["digest"]
        self.bad("image", "import", f"oci:{folder}/oci:2.0", "--name", "x",
                 says=["no image has that tag, but: it:1.0"])
        del digests["dir"]  # it has an attribute and a link more
        self.assertEqual(len(set(digests.values())), 1, digests)
        self.assertEqual(self.good("run", "from/dir:1", "--", "/bin/cat", "/again"), "here\n")
        for name in sources:
            self.good("image", "rm", f"from/{name}:1")
        self.assertEqual(self.engine.left(), [])

    def test_sources_that_are_none_are_told(self):
        self.bad("image", "import", "x.tar", "--name", "x", says=["is no source"])
        self.bad("image", "import", "tar:/nonesuch", "--name", "x", says=["No such file"])
        self.bad("image", "import", "dir:/nonesuch", "--name", "x", says=["nonesuch: No such file"])
        for name in ("../x", ".x", "a//b", "a/.b", "/x", "x/", "a b"):
            self.bad("image", "import", "-", "--name", name, says=["import invalid", "image.name"],
                     input=self.base())
        self.bad("image", "import", "-", "--name", "a.erofs/b", says=["import"], input=self.base())
        self.assertNotIn("a.erofs/b", self.rows())
        self.assertEqual(self.engine.left(), [])

    def test_a_hostile_entry_is_told_by_name_and_reason(self):
        ran = self.bad("image", "import", "-", "--name", "evil", input=tar(entry("../../etc/x")),
                       says=["import invalid", 'a name with ".."', "../../etc/x", "[caller]"])
        self.assertNotIn("evil", self.rows(), ran.stderr)
        self.assertEqual(self.engine.left(), [])

    # ---- the config ----

    def test_user_directory_environment_and_command_are_the_images(self):
        self.bring("conf", docker_archive(
            self.base(), User="agent", WorkingDir="/srv", Env=["A=image", "B=image", "C=image"],
            Entrypoint=["/bin/sh", "-c", 'echo "$0|$*|$(id -u)|$(pwd)|$A|$B|$C"'],
            Cmd=["cmd", "args"]))
        run = ("run", "-e", "C=exec", "conf")
        self.assertEqual(self.good(*run),
                         "cmd|args|1000|/srv|image|image|exec\n")
        self.assertEqual(self.good(*run, "--", "mine"),
                         "mine||1000|/srv|image|image|exec\n")
        self.assertEqual(self.good("run", "--entrypoint", "/bin/echo", "conf", "--", "x"), "x\n")
        self.assertEqual(self.good("run", "--entrypoint", "/bin/pwd", "-w", "/", "-u", "root",
                                   "conf"), "/\n")
        record = json.loads(self.good("image", "inspect", "conf"))
        self.assertEqual((record["user"], record["cwd"], record["cmd"], record["layers"]),
                         ("agent", "/srv", ["cmd", "args"], 1))
        # The exec's environment over the sandbox's over the image's; exec has no entrypoint.
        sandbox = self.good("create", "-q", "-e", "B=sandbox", "conf").strip()
        said = self.good("exec", "-e", "C=exec", sandbox, "--", "/bin/env").splitlines()
        self.assertEqual([line for line in said if line[:2] in ("A=", "B=", "C=")],
                         ["C=exec", "B=sandbox", "A=image"])
        self.assertEqual(self.good("exec", sandbox, "--", "/bin/pwd"), "/srv\n")
        self.good("rm", sandbox)
        self.good("image", "rm", "conf")

    def test_a_config_that_does_not_fit_the_image_is_a_typed_error(self):
        self.bring("nouser", docker_archive(self.base(), User="nobody-here", Cmd=["/bin/true"]))
        ran = self.engine.dsec("run", "nouser")
        self.assertEqual(ran.returncode, 127, ran.stderr)
        self.assertIn(b"at user", ran.stderr)
        self.bring("nocwd", docker_archive(self.base(), WorkingDir="/none", Cmd=["/bin/true"]))
        ran = self.engine.dsec("run", "nocwd")
        self.assertEqual(ran.returncode, 127, ran.stderr)
        self.assertIn(b"at cwd", ran.stderr)
        self.bring("nocmd", self.base())
        self.bad("run", "nocmd", says=["the image names none"])
        self.bad("image", "import", "-", "--name", "x", says=["no absolute path", "srv"],
                 input=docker_archive(self.base(), WorkingDir="srv"))
        for name in ("nouser", "nocwd", "nocmd"):
            self.good("image", "rm", name)

    def test_a_scan_writes_the_services_that_an_image_is_configured_for(self):
        big = b"https://first.example/\n" + b"#" * (1 << 20) + b"\nhttps://last.example/\n"
        self.bring("mirrors", docker_archive(self.base(
            directory("root", mode=0o700), directory("etc/apt/sources.list.d"),
            entry("etc/apt/sources.list.d/a.sources", b"URIs: http://deb.example/debian\n"),
            entry("etc/apt/sources.list.d/b.list", os.urandom(4096)),
            entry("etc/apt/sources.list", big), directory("etc/npmrc"),
            entry("root/.npmrc", b"registry=https://me:secret@npm.example/\n", mode=0o600),
            link("root/.gitconfig", "../" * 9 + str(self.folder) + "/outside"),
            entry("etc/pip.conf", kind=tarfile.FIFOTYPE)), User="agent"))
        (self.folder / "outside").write_text('[url "https://outside.example/"]\n')
        told = self.good("policy", "services", "scan", "mirrors")
        self.assertEqual(told, "- name: apt\n  protocol: https\n  hosts: [first.example]\n"
                               "- name: apt-http\n  protocol: http\n  hosts: [deb.example]\n"
                               "- name: npm\n  protocol: https\n  hosts: [npm.example]\n")
        self.assertEqual(self.good("ps", "-q"), "")
        services = self.folder / "services.d"
        services.mkdir()
        (services / "scanned.yaml").write_text(told)
        engine = Engine(self.folder, "services", self.folder / "none", "--services", services)
        self.addCleanup(engine.stop)
        rows = [json.loads(line) for line in
                engine.dsec("policy", "services", "ls", "--json").stdout.splitlines()]
        self.assertEqual(rows[0], {"service": "apt", "place": "first.example tcp/443"})
        self.assertEqual(engine.dsec("policy", "services", "ls", "-q").stdout.split(),
                         [b"apt", b"apt-http", b"npm"])
        path = self.folder / "out.yaml"
        path.write_text("name: out\nnetwork: {egress: {allow: [service: nmp]}}\n")
        self.assertIn(b"there is no service nmp; there is apt, apt-http, npm",
                      engine.dsec("policy", "check", path).stderr)
        self.services_are_read_again(engine, services / "scanned.yaml", path)
        (services / "scanned.yaml").write_text("- name: a\n  protocl: https\n")
        with self.assertRaisesRegex(AssertionError, "scanned.yaml:2:3 protocl: unknown field"):
            Engine(self.folder, "wrong", self.folder / "none", "--services", services)
        self.good("image", "rm", "mirrors")
        self.bad("policy", "services", "scan", "mirrors", says=["no such image"])

    def services_are_read_again(self, engine, file, path):
        """At SIGHUP, whole or not at all; what is loaded keeps its places until it is again."""
        def logged(text):
            deadline = time.monotonic() + 20
            while text not in engine.log.read_text():
                self.assertLess(time.monotonic(), deadline, engine.log.read_text())
                time.sleep(0.02)

        def told(verb, *words):
            return json.loads(engine.dsec("policy", verb, *words, "--json").stdout)

        path.write_text("name: out\nnetwork: {egress: {allow: [service: npm]}}\n")
        first = told("load", path)
        self.assertFalse(first["services_old"])
        file.write_text(file.read_text() + "nonsense\n")
        engine.process.send_signal(signal.SIGHUP)
        logged("scanned.yaml:11:1 could not find")
        self.assertFalse(told("show", "out")["services_old"])
        file.write_text("- name: npm\n  protocol: https\n  hosts: [new.example]\n")
        engine.process.send_signal(signal.SIGHUP)
        logged("count=1")
        self.assertEqual(engine.dsec("policy", "services", "ls", "-q").stdout.split(), [b"npm"])
        self.assertTrue(told("show", "out")["services_old"])
        self.assertIn(b"load it again", engine.dsec("policy", "show", "out").stderr)
        again = told("load", path)
        self.assertEqual((again["version"] > first["version"], again["services_old"]),
                         (True, False))

    # ---- list, inspect, remove, replace ----

    def test_an_image_in_use_is_not_removed_and_says_by_how_many(self):
        self.bring("used/here:2", self.base())
        sandboxes = [self.good("create", "-q", "used/here:2").strip() for _ in range(2)]
        self.assertEqual(self.rows()["used/here:2"]["in_use"], 2)
        self.bad("image", "rm", "used/here:2", says=["conflict", "in use by 2 sandboxes"])
        self.good("rm", *sandboxes)
        self.good("image", "rm", "used/here:2")
        self.assertNotIn("used/here:2", self.rows())
        self.bad("image", "rm", "used/here:2", says=["absent", "no such image"])
        self.bad("image", "inspect", "used/here:2", says=["absent"])
        self.bad("create", "used/here:2", says=["create absent"])
        self.assertFalse((self.images / "used").exists())

    def test_a_replaced_image_stays_with_those_that_have_it(self):
        first = self.bring("twice", self.base(entry("version", b"1\n")))
        old = self.good("create", "-q", "twice").strip()
        second = self.bring("twice", self.base(entry("version", b"2\n")))
        self.assertNotEqual(first["digest"], second["digest"])
        new = self.good("create", "-q", "twice").strip()
        self.assertEqual(self.good("exec", old, "--", "/bin/cat", "/version"), "1\n")
        self.assertEqual(self.good("exec", new, "--", "/bin/cat", "/version"), "2\n")
        self.good("rm", old, new)
        self.good("image", "rm", "twice")

    def test_what_becomes_of_images_is_told_to_those_who_may_see_them(self):
        doors = {name: self.folder / f"{name}.sock" for name in ("blue", "green")}
        engine = Engine(self.folder, "imgtold", self.folder / "told", "--tenant",
                        "name=default,gateway", *[word for name, door in doors.items() for word in
                                                  ("--tenant", f"name={name},socket={door}")])
        self.addCleanup(engine.stop)

        def told(*words):
            ran = engine.dsec(*words, "--json", "events", "--kind", "image")
            return [(row["event"], row["image"], row["sandbox"])
                    for row in map(json.loads, ran.stdout.splitlines())]

        own, all_see = [[(f"image-{what}", name, None) for what in
                         ("imported", "replaced", "removed", "imported")]
                        for name in ("blue/own", "shared")]
        for name, *words in (("blue/own", "-H", f"unix:{doors['blue']}"), ("shared",)):
            for verb in (("import", "-", "--name"),) * 2 + (("rm",), ("import", "-", "--name")):
                ran = engine.dsec(*words, "image", *verb, name, input=tar(directory("srv")))
                self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(told("-H", f"unix:{doors['blue']}"), own + all_see)
        self.assertEqual(told("-H", f"unix:{doors['green']}"), all_see)
        self.assertEqual(told(), all_see)
        self.assertEqual(told("--tenant", "*"), own + all_see, "each once")
        self.assertIn(" -                          image-imported shared\n",
                      engine.dsec("events").stdout.decode())

    def test_an_image_written_to_in_place_is_refused_until_nobody_uses_it(self):
        root, path = self.folder / "in-place", self.images / "in-place.erofs"
        root.mkdir()
        subprocess.run(["tar", "-C", root, "-xp"], input=self.base(), check=True, timeout=60)

        def make(version):
            (root / "version").write_text(version)
            subprocess.run(["mkfs.erofs", "--quiet", path, root], check=True, timeout=60)

        make("1")
        inode = path.stat().st_ino
        path.chmod(0o600)  # changes the file, but not what is in it
        old = self.good("create", "-q", "in-place").strip()
        path.chmod(0o644)
        time.sleep(1.5)
        self.good("run", "in-place", "--", "/bin/true")
        make("2")
        self.assertEqual(path.stat().st_ino, inode, "mkfs.erofs writes in place")
        log = self.engine.log
        self.assertTrue(eventually(lambda: "written to in place" in log.read_text()))
        self.bad("create", "in-place", says=["create conflict", "written to in place"])
        self.good("rm", old)
        self.assertTrue(eventually(
            lambda: self.engine.dsec("run", "in-place", "--", "/bin/true").returncode == 0))
        self.assertEqual(self.good("run", "in-place", "--", "/bin/cat", "/version"), "2")
        self.good("image", "rm", "in-place")

    def test_the_files_space_is_free_when_its_last_sandbox_has_gone(self):
        self.bring("space", self.base(entry("big", random.Random(1).randbytes(8 << 20))))
        sandbox = self.good("create", "-q", "space").strip()
        inode = (self.images / "space.erofs").stat().st_ino
        self.bring("space", self.base())
        self.good("rm", sandbox)

        def is_mounted():
            return any(path for path in self.deleted_files() if path == inode)

        log = self.engine.log
        self.assertTrue(eventually(lambda: 'image gone name="space"' in log.read_text()))
        self.assertFalse(is_mounted())
        self.good("image", "rm", "space")

    def deleted_files(self):
        pid = self.engine.child()
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.stat(fd).st_ino

    def test_a_file_made_by_hand_is_an_image_too(self):
        root = self.folder / "by-hand"
        root.mkdir()
        subprocess.run(["tar", "-C", root, "-xp"], input=self.base(), check=True, timeout=60)
        subprocess.run(["mkfs.erofs", "--quiet", self.images / "hand.erofs", root], check=True,
                       timeout=60)
        self.assertEqual(self.good("run", "hand", "--", "/bin/echo", "x"), "x\n")
        row = self.rows()["hand"]
        self.assertEqual((row["digest"], row["files"]), ("", None))
        self.assertEqual(json.loads(self.good("image", "inspect", "hand"))["name"], "hand")
        self.good("image", "rm", "hand")

    def test_a_damaged_record_is_refused_and_listed(self):
        self.bring("broken", self.base())
        path = self.images / "broken.erofs"
        data = bytearray(path.read_bytes())
        data[-80] ^= 1 << 7
        path.write_bytes(data)
        self.bad("create", "broken", says=["not EROFS, damaged or cut off", "[platform]"])
        self.assertIn("broken", self.rows())
        self.good("image", "rm", "broken")

    def test_a_file_that_was_cut_off_is_refused_at_once(self):
        self.bring("short", self.base(entry("large", os.urandom(300000))))
        path = self.images / "short.erofs"
        whole = path.read_bytes()
        for size in (len(whole) - 8192, len(whole) // 2, 4096, 2000):
            path.unlink()  # another file: the engine has not seen it
            path.write_bytes(whole[:size])
            self.bad("create", "short", says=["damaged or cut off", "[platform]"])
        self.good("image", "rm", "short")

    # ---- ends ----

    def begin(self, name):
        """An import that got a part of its bytes and waits for more."""
        child = self.engine.start("image", "import", "-", "--name", name, stdin=subprocess.PIPE)
        child.stdin.write(self.base(entry("x", b"x" * (4 << 20)))[:3 << 20])
        child.stdin.flush()
        self.assertTrue(eventually(self.engine.importers), "the importer runs")
        return child

    def check_nothing_is_left(self, name):
        self.assertTrue(eventually(lambda: not self.engine.importers()))
        self.assertTrue(eventually(lambda: not self.engine.groups()), self.engine.groups())
        self.assertTrue(eventually(lambda: not self.engine.left()), self.engine.left())
        self.assertNotIn(name, self.rows())

    def test_ctrl_c_cancels_and_leaves_nothing(self):
        child = self.begin("cancelled")
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=RUN_S)
        self.assertEqual(child.returncode, 128 + signal.SIGINT)
        self.assertIn(b"import cancelled", said)
        self.assertEqual(self.engine.importers(), [])
        self.check_nothing_is_left("cancelled")

    def test_all_of_an_import_is_limited_together_and_ends_together(self):
        child = self.begin("grouped")
        group, = self.engine.groups()

        def members():
            return set(map(int, (group / "cgroup.procs").read_text().split()))
        self.assertTrue(eventually(lambda: len(members()) == 2), "supervisor and unpacker")
        here = members()
        self.assertIn(self.engine.importers()[0], here)
        for name, value in {"memory.max": "2097152000", "memory.oom.group": "1", "pids.max": "8",
                            "cpu.weight": "20"}.items():
            if (group / name).exists():
                self.assertEqual((group / name).read_text().strip(), value, name)
        # What is stopped does not keep it: all are killed at once.
        for pid in here:
            os.kill(pid, signal.SIGSTOP)
        self.good("check", "--instance", self.engine.instance)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=RUN_S)
        self.assertEqual(child.returncode, 128 + signal.SIGINT)
        for pid in here:
            self.assertFalse(Path(f"/proc/{pid}").exists())
        self.check_nothing_is_left("grouped")

    def test_a_clients_death_cancels(self):
        child = self.begin("orphan")
        child.kill()
        child.communicate(timeout=RUN_S)
        self.check_nothing_is_left("orphan")

    def test_a_timeout_cancels(self):
        child = self.engine.start("image", "import", "-", "--name", "late", "--timeout", "500ms",
                                  stdin=subprocess.PIPE)
        self.assertTrue(eventually(lambda: child.poll() is not None))
        self.assertIn(b"import deadline", child.communicate(timeout=RUN_S)[1])
        self.check_nothing_is_left("late")

    def test_a_killed_importer_is_told_and_leaves_nothing(self):
        child = self.begin("killed")
        os.kill(self.engine.importers()[0], signal.SIGKILL)
        _, said = child.communicate(timeout=RUN_S)
        self.assertEqual(child.returncode, 125)
        self.assertIn(b"the importer was killed", said)
        self.assertIn(b"[platform]", said)
        self.check_nothing_is_left("killed")

    def test_a_stream_cut_off_is_refused(self):
        data = self.base(entry("x", b"x" * 100000))
        self.bad("image", "import", "-", "--name", "cut", input=data[:len(data) // 2],
                 says=["import invalid"])
        self.check_nothing_is_left("cut")

    def test_a_third_import_at_once_is_refused(self):
        two = [self.begin("one"), self.begin("two")]
        self.bad("image", "import", "-", "--name", "three", input=self.base(),
                 says=["import refused", "imports_max"])
        for child in two:
            child.send_signal(signal.SIGTERM)
            child.communicate(timeout=RUN_S)
        self.check_nothing_is_left("three")

    def test_progress_is_for_terminals_only(self):
        ran = self.engine.dsec("image", "import", "-", "--name", "quiet", input=self.base())
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        self.assertRegex(ran.stdout.decode(), r"^quiet  sha256:[0-9a-f]{64}  .* files  .* new, .* shared  .* s\n$")
        self.good("image", "rm", "quiet")

    # ---- many ----

    def test_three_hundred_imports_in_one_engines_life(self):
        count = 300 // SLOWNESS
        for number in range(count):
            data = tar(entry("bin/busybox", self.busybox, mode=0o755),
                       entry("number", str(number).encode()))
            name = f"many/{number}" if number % 3 else "many/again"
            self.bring(name, data)
            said = self.good("run", name, "--", "/bin/busybox", "cat", "/number")
            self.assertEqual(said, str(number))
        rows = [name for name in self.rows() if name.startswith("many/")]
        self.assertEqual(len(rows), count - len(range(0, count, 3)) + 1)
        self.assertEqual(self.good("run", "many/1", "--", "/bin/busybox", "cat", "/number"), "1")
        self.good("image", "rm", *rows)


class OwnEngineTest(unittest.TestCase):
    """What needs an engine of its own."""

    @classmethod
    def setUpClass(cls):
        mounts_of_our_own()

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="dsec-image-own."))
        self.addCleanup(shutil.rmtree, self.folder)
        self.images = self.folder / "images"
        self.images.mkdir()

    def begin(self, engine):
        child = engine.start("image", "import", "-", "--name", "half", stdin=subprocess.PIPE)
        child.stdin.write(tar(entry("x", b"x" * (4 << 20)))[:3 << 20])
        child.stdin.flush()
        self.assertTrue(eventually(engine.importers), "the importer runs")
        return child

    def test_the_engine_stops_in_the_middle_and_nothing_is_left(self):
        engine = Engine(self.folder, "imgstop", self.images)
        child = self.begin(engine)
        engine.stop()
        child.kill()
        child.communicate(timeout=RUN_S)
        self.assertEqual(engine.process.returncode, 0, engine.log.read_text())
        self.assertEqual([p for p in self.images.rglob("*") if p.name != ".import"], [])

    def test_a_killed_engines_scratch_is_swept_by_the_next(self):
        engine = Engine(self.folder, "imgkill", self.images)
        self.addCleanup(engine.stop)
        child = self.begin(engine)
        importer = engine.importers()[0]
        os.kill(engine.child(), signal.SIGKILL)
        child.kill()
        child.communicate(timeout=RUN_S)
        self.assertTrue(eventually(lambda: not Path(f"/proc/{importer}").exists()))
        self.assertTrue(eventually(lambda: engine.dsec("image", "ls").returncode == 0))
        self.assertTrue(eventually(lambda: not engine.left()), engine.left())
        self.assertEqual(engine.dsec("image", "ls", "-q").stdout, b"")

    def test_scratch_of_another_engine_that_lives_is_left_alone(self):
        first = Engine(self.folder, "imgone", self.images)
        self.addCleanup(first.stop)
        child = self.begin(first)
        second = Engine(self.folder, "imgtwo", self.images)
        self.addCleanup(second.stop)
        self.assertEqual(len(first.importers()), 1)
        self.assertEqual(len(list(self.images.glob(f".import/{first.instance}-*/1"))), 1)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=RUN_S)

    def small_disk(self, megabytes):
        must(libc.mount(b"tmpfs", str(self.images).encode(), b"tmpfs", 0,
                        f"size={megabytes}m".encode()))
        self.addCleanup(libc.umount2, str(self.images).encode(), 2)

    def test_a_disk_filled_to_its_mark_refuses_imports_and_harms_nobody(self):
        self.small_disk(64)
        engine = Engine(self.folder, "imgfull", self.images)
        self.addCleanup(engine.stop)
        data = tar(entry("x", random.Random(2).randbytes(12 << 20)))
        ran = engine.dsec("image", "import", "-", "--name", "fits", input=data)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        # Fits when it begins, and fills the disk on its way.
        data = tar(*[entry(f"x{n}", random.Random(n).randbytes(8 << 20)) for n in range(7)])
        ran = engine.dsec("image", "import", "-", "--name", "fills", input=data)
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"import refused", ran.stderr)
        self.assertIn(b"to its mark", ran.stderr)
        self.assertTrue(eventually(lambda: not engine.left()), engine.left())
        (self.images / "filler").write_bytes(bytes(47 << 20))
        ran = engine.dsec("image", "import", "-", "--name", "more", input=tar(entry("x")))
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"import refused", ran.stderr)
        self.assertIn(b"import.disk", ran.stderr)
        self.assertEqual(engine.dsec("image", "ls", "-q").stdout, b"fits\n")
        (self.images / "filler").unlink()
        ran = engine.dsec("image", "import", "-", "--name", "more", input=tar(entry("x")))
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_images_that_cannot_be_written_to_are_told(self):
        self.small_disk(8)
        must(libc.mount(None, str(self.images).encode(), None, 1 | 32, None))
        engine = Engine(self.folder, "imgro", self.images)
        self.addCleanup(engine.stop)
        ran = engine.dsec("image", "import", "-", "--name", "x", input=tar(entry("x")))
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"cannot be written to", ran.stderr)

    def test_a_larger_image_than_configured_is_refused(self):
        engine = Engine(self.folder, "imgmax", self.images, "--image-max", "1M")
        self.addCleanup(engine.stop)
        ran = engine.dsec("image", "import", "-", "--name", "x",
                          input=tar(entry("x", bytes(2 << 20))))
        self.assertEqual(ran.returncode, 125)
        self.assertIn(b"over the limit of bytes", ran.stderr)


if __name__ == "__main__":
    unittest.main()
