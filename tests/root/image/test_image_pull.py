#!/usr/bin/env python3
"""Images from engine to engine: pushed, served by a directory and by HTTP, pulled, run."""
import hashlib
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from importer import directory, entry, libc, link, mounts_of_our_own, must, tar
from test_image_engine import Engine, busybox, eventually

NGINX = "/usr/sbin/nginx"
SECRET = "Bearer pull.example"


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Server:
    """A layout by HTTP that answers as it is told: `lie` gets the handler, the bytes, the range."""

    def __init__(self, folder):
        self.folder, self.lie, self.asked, self.followed = folder, None, [], False
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                server.asked.append((self.path, self.headers["Range"],
                                     self.headers["Authorization"]))
                path = server.folder / self.path.lstrip("/")
                server.followed |= self.path.startswith("/away")
                if not path.is_file():
                    self.send_error(404)
                    return
                data = path.read_bytes()
                first, last = map(int, re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
                try:
                    (server.lie or Handler.true)(self, data, first, min(last, len(data) - 1))
                except OSError:
                    self.close_connection = True

            def head(self, data, first, last, size=None):
                self.send_response(206)
                self.send_header("Content-Length", str(last + 1 - first))
                self.send_header("Content-Range", f"bytes {first}-{last}/{size or len(data)}")
                self.end_headers()

            def true(self, data, first, last):
                self.head(data, first, last)
                self.wfile.write(data[first:last + 1])

            def log_message(self, *_):
                pass

        self.true = Handler.true
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # who asked has gone
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def is_segment(data):
    return len(data) > 1 << 20


class PullTest(unittest.TestCase):
    engines = 0

    @classmethod
    def setUpClass(cls):
        mounts_of_our_own()
        cls.folder = Path(tempfile.mkdtemp(prefix="dsec-pull-test."))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.folder.chmod(0o755)  # nginx' workers are nobody's
        cls.layout = cls.folder / "layout"
        cls.data = os.urandom(3 << 20)
        cls.source = Engine(cls.folder, "pullsrc", cls.folder / "source")
        cls.addClassCleanup(cls.source.stop)
        root = tar(directory("bin"), entry("bin/busybox", busybox(), mode=0o755),
                   directory("dev"), directory("proc"), directory("tmp"), entry("data", cls.data))
        cls.made(cls.source.dsec("image", "import", "-", "--name", "rl/base:1", input=root))
        work = tar(directory("work"), entry("work/task", b"task" * 1000), link("work/it", "task"))
        cls.made(cls.source.dsec("image", "import", "-", "--layer", "--name", "rl/work:1", input=work))
        cls.made(cls.source.dsec("image", "compose", "rl/both:1", "rl/base:1", "rl/work:1"))
        for name in ("rl/base:1", "rl/both:1"):
            cls.made(cls.source.dsec("image", "push", name, f"oci:{cls.layout}"))
        cls.digests = {row["name"]: row["digest"] for row in cls.rows(cls.source)}

    @staticmethod
    def made(ran):
        assert ran.returncode == 0, ran.stderr

    @staticmethod
    def rows(engine):
        return [json.loads(line) for line in engine.dsec("image", "ls", "--json").stdout.splitlines()]

    def engine(self, *options, images=None):
        PullTest.engines += 1
        name = f"pull{self.engines}"
        engine = Engine(self.folder, name, images or self.folder / name, *options)
        self.addCleanup(engine.stop)
        return engine

    def server(self):
        server = Server(self.layout)
        self.addCleanup(server.close)
        return server

    def nginx(self):
        if not Path(NGINX).exists():
            self.skipTest("no nginx here: see tests/setup.sh")
        place = Path(tempfile.mkdtemp(prefix="nginx.", dir=self.folder))
        place.chmod(0o755)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        (place / "conf").write_text(
            f"daemon off; pid {place}/pid; error_log {place}/log; worker_processes 1;\n"
            "events {}\nhttp { access_log off; server { listen 127.0.0.1:%d; root %s;\n"
            "if ($http_authorization != \"%s\") { return 403; } } }\n" % (port, self.layout, SECRET))
        process = subprocess.Popen([NGINX, "-p", place, "-c", place / "conf"], stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait, timeout=120)
        self.addCleanup(process.send_signal, signal.SIGTERM)

        def answers():
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", port)) == 0
        self.assertTrue(eventually(answers), "nginx answers")
        header = place / "header"
        header.write_text(f"Authorization: {SECRET}\n")
        header.chmod(0o600)
        return f"http://127.0.0.1:{port}", header

    def check_same(self, engine, name="rl/base:1", kept=None):
        row, = [row for row in self.rows(engine) if row["name"] == (kept or name)]
        self.assertEqual(row["digest"], self.digests[name])
        ran = engine.dsec("run", kept or name, "--", "/bin/busybox", "sha256sum", "/data")
        self.assertEqual((ran.returncode, ran.stdout.split()[:1]), (0, [sha(self.data).encode()]),
                         (ran.stderr, engine.log.read_text()[-2000:]))

    @staticmethod
    def where(engine, name):
        """Where its segments are, and how many images have them."""
        about = json.loads(engine.dsec("--json", "image", "inspect", name).stdout)
        return {(segment["where"], segment["images"]) for segment in about["contents"]}

    def check_nothing_is_left(self, engine):
        """No scratch, no group, no blob that has a name, and nothing runs."""
        self.assertTrue(eventually(lambda: not engine.groups()), engine.groups())
        cache = engine.images / "cache"

        def left():
            return [path for path in engine.left() if path != cache / ".lock"]
        self.assertTrue(eventually(lambda: not left()), left())
        self.assertEqual(self.rows(engine), [])
        self.assertEqual(sorted((engine.images / "blobs/sha256").glob("*")), [])
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in self.below(engine)}
        self.assertFalse(names & {"dsec-fetch", "dsec-store"}, names)

    @staticmethod
    def below(engine):
        """All that keeper and engine have for children."""
        found, left = [], [str(engine.process.pid)]
        while left:
            pid = left.pop()
            try:
                left += Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                found.append(pid)
            except OSError:
                continue
        return found

    def pull(self, engine, *words, **options):
        return engine.dsec("image", "pull", *words, **options)

    def pulled(self, engine, *words):
        ran = self.pull(engine, "--json", *words)
        self.assertEqual((ran.returncode, ran.stderr), (0, b""), engine.log.read_text()[-2000:])
        return json.loads(ran.stdout.splitlines()[0])

    def refused(self, engine, *words, says):
        ran = self.pull(engine, *words)
        self.assertEqual(ran.returncode, 125, (ran.stdout, ran.stderr))
        for text in says:
            self.assertIn(text, ran.stderr.decode())

    # ---- what goes well ----

    def test_a_name_is_pulled_of_a_directory_and_runs(self):
        engine = self.engine("--remote", f"dir:{self.layout}")
        report = self.pulled(engine, "rl/base:1")
        self.assertGreater(report["new_bytes"], len(self.data))
        self.check_same(engine)
        self.pulled(engine, "rl/both:1", "mine/both:2")
        self.check_same(engine, "rl/both:1", "mine/both:2")
        ran = engine.dsec("run", "mine/both:2", "--", "/bin/busybox", "cat", "/work/it")
        self.assertEqual(ran.stdout, b"task" * 1000)
        self.assertEqual(self.pulled(engine, "rl/base:1", "again")["new_bytes"], 0, "it is there")
        # The base's are of three images, the workspace's of one.
        self.assertEqual(self.where(engine, "mine/both:2"), {("store", 3), ("store", 1)})
        self.assertEqual(self.where(engine, "again"), {("store", 3)})
        self.assertEqual({row["local_bytes"] == row["segment_bytes"] for row in self.rows(engine)},
                         {True})

    def test_a_name_is_pulled_of_nginx_with_credentials_and_runs(self):
        address, header = self.nginx()
        engine = self.engine("--remote", address + "/", "--remote-header-file", str(header))
        for name in ("rl/base:1", "rl/both:1"):
            self.pulled(engine, name)
            self.check_same(engine, name)
        # Whoever names the server is not helped by the engine's credentials.
        self.refused(engine, f"{address}#rl/base:1", "other", says=["pull.index", "403"])

    def test_a_lazy_pull_brings_no_contents_and_serves_them(self):
        address, header = self.nginx()
        for options in (("--remote", f"dir:{self.layout}"),
                        ("--remote", address, "--remote-header-file", str(header))):
            engine = self.engine(*options)
            self.pulled(engine, "rl/both:1", "--lazy")
            blobs = [path.stat().st_size for path in (engine.images / "blobs/sha256").iterdir()]
            self.assertLess(sum(blobs), 1 << 20, "no segment is here")
            row, = self.rows(engine)
            self.assertGreater(row["segment_bytes"], len(self.data))
            self.assertEqual(row["local_bytes"], 0)
            self.assertEqual(self.where(engine, "rl/both:1"), {("elsewhere", 1)})
            self.assertIn(b" 0% ", engine.dsec("image", "ls").stdout)
            if os.path.exists("/dev/fuse"):
                self.check_same(engine, "rl/both:1")
                self.assertTrue(eventually(lambda: self.where(engine, "rl/both:1") &
                                           {("part", 1), ("cache", 1)}))

    def test_a_server_is_named_by_who_is_root_alone(self):
        server = self.server()
        engine = self.engine()
        self.pulled(engine, f"{server.address}#rl/base:1", "named")
        self.check_same(engine, "rl/base:1", "named")
        self.assertEqual({secret for _, _, secret in server.asked}, {None})
        self.refused(engine, "rl/base:1", says=["image.source", "--remote", "unsupported"])
        self.refused(engine, "http://user@127.0.0.1#x", "x", says=["image.source", "user"])
        self.refused(engine, "a b", "x", says=["image.source", "image's name"])

    def test_a_connection_that_is_cut_goes_on_where_it_was(self):
        server = self.server()

        def cut(handler, data, first, last):
            handler.head(data, first, last)
            handler.wfile.write(data[first:min(last + 1, first + 700000)])
            handler.close_connection = last + 1 - first > 700000
        server.lie = cut
        engine = self.engine("--remote", server.address)
        self.pulled(engine, "rl/base:1")
        self.check_same(engine)
        firsts = [int(re.search(r"(\d+)-", ranges).group(1)) for _, ranges, _ in server.asked]
        self.assertGreaterEqual(sum(first > 0 for first in firsts), 4, "by ranges")

    # ---- what does not ----

    def test_every_lie_is_an_error_that_names_what(self):
        def flip(handler, data, first, last):
            if is_segment(data):
                data = data[:2000000] + bytes([data[2000000] ^ 1]) + data[2000001:]
            server.true(handler, data, first, last)

        def small(handler, data, first, last):
            if not handler.path.endswith("index.json"):
                data = bytes([data[0] ^ 1]) + data[1:]
            server.true(handler, data, first, last)

        def shorter(handler, data, first, last):
            server.true(handler, data[:-5] if is_segment(data) else data, first,
                        min(last, len(data) - 6) if is_segment(data) else last)

        def longer(handler, data, first, last):
            handler.head(data, first, last)
            handler.wfile.write(data[first:last + 1] + b"x" * 100)
            handler.close_connection = True

        def other(handler, data, first, last):
            handler.head(data, first + 1, last)
            handler.wfile.write(data[first + 1:last + 1])

        def missing(handler, data, first, last):
            if is_segment(data):
                handler.send_error(404)
            else:
                server.true(handler, data, first, last)

        def away(handler, data, first, last):
            handler.send_response(302)
            handler.send_header("Location", "/away/index.json")
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        def cut(handler, data, first, last):
            if not is_segment(data):
                server.true(handler, data, first, last)
                return
            handler.head(data, first, last)
            handler.close_connection = True

        def drip(handler, data, first, last):
            handler.head(data, first, last)
            while True:
                handler.wfile.write(b"{")
                time.sleep(0.1)

        def hang(handler, data, first, last):
            time.sleep(20)

        def busy(handler, data, first, last):
            handler.send_error(503)
        server = self.server()
        engine = self.engine("--remote", server.address, "--remote-timeout", "2s")
        for lie, says in ((flip, ["pull.blobs", "chunk", "sha256:"]),
                          (small, ["pull.manifest", "digest", "sha256:"]),
                          (shorter, ["pull.blobs", "another size", "sha256:"]),
                          (longer, ["pull."]), (other, ["pull.index", "another range"]),
                          (missing, ["pull.blobs", "404", "sha256:"]),
                          (away, ["pull.index", "redirect"]), (cut, ["pull.blobs", "sha256:"]),
                          (drip, ["pull.index", "in time"]), (hang, ["pull.index", "in time"]),
                          (busy, ["pull.index", "503"])):
            with self.subTest(lie.__name__):
                server.lie = lie
                begin = time.monotonic()
                if lie is longer:
                    self.pull(engine, "rl/base:1")  # what is too much may not even be seen
                    engine.dsec("image", "rm", "rl/base:1")
                    engine.dsec("image", "gc")
                else:
                    self.refused(engine, "rl/base:1", says=says)
                self.assertLess(time.monotonic() - begin, 30)
                self.check_nothing_is_left(engine)
        self.assertFalse(server.followed)
        server.lie = None
        self.refused(engine, "rl/none:1", says=["pull.index", "no manifest of this tag"])
        self.pulled(engine, "rl/base:1")
        self.check_same(engine)

    def test_a_directory_that_lies_is_an_error_that_names_what(self):
        layout = self.folder / "lying"
        shutil.copytree(self.layout, layout)
        engine = self.engine("--remote", f"dir:{layout}")
        segment = max((layout / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
        true = segment.read_bytes()
        for wrong, says in ((true[:2000000] + b"x" + true[2000001:], ["pull.blobs", "chunk", segment.name[:10]]),
                            (true[:-4096], ["pull.blobs", "size", segment.name[:10]]),
                            (None, ["pull.blobs", "not there", segment.name[:10]])):
            segment.unlink()
            if wrong is not None:
                segment.write_bytes(wrong)
            self.refused(engine, "rl/base:1", says=says)
            self.check_nothing_is_left(engine)
            segment.write_bytes(true)

    def test_a_server_that_is_not_there_is_told(self):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        engine = self.engine("--remote", f"http://127.0.0.1:{port}")
        self.refused(engine, "rl/base:1", says=["pull.index", "connect"])
        self.check_nothing_is_left(engine)

    def test_a_pull_that_is_cancelled_or_killed_leaves_nothing(self):
        server = self.server()
        gate = threading.Event()
        self.addCleanup(gate.set)

        def wait(handler, data, first, last):
            if is_segment(data):
                gate.wait(60)
            server.true(handler, data, first, last)
        server.lie = wait
        engine = self.engine("--remote", server.address)
        for number in (signal.SIGINT, signal.SIGKILL):
            asked = len(server.asked)
            child = engine.start("image", "pull", "rl/base:1")
            self.assertTrue(eventually(lambda: len(server.asked) >= asked + 4), "it reads")
            child.send_signal(number)
            child.communicate(timeout=60)
            self.check_nothing_is_left(engine)

    def test_a_full_disk_is_told_and_leaves_nothing(self):
        images = self.folder / "full"
        images.mkdir()
        must(libc.mount(b"none", str(images).encode(), b"tmpfs", 0, b"size=2M"))
        self.addCleanup(libc.umount2, str(images).encode(), 2)
        server = self.server()
        for remote in (f"dir:{self.layout}", server.address):
            engine = self.engine("--remote", remote, images=images)
            ran = self.pull(engine, "rl/base:1")
            self.assertEqual(ran.returncode, 125)
            self.assertRegex(ran.stderr.decode(), "full|space")
            self.check_nothing_is_left(engine)


if __name__ == "__main__":
    unittest.main(verbosity=2)
