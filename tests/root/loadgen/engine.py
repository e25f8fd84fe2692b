"""An engine of its own for a test, on an image of a few kilobytes."""
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
READY_S, STOP_S, RUN_S = 120, 120, 240


class Engine(unittest.TestCase):
    """A class of tests that share one engine. The build's folder comes in DSEC_BUILD."""

    options = ()

    @classmethod
    def setUpClass(cls):
        cls.build = Path(os.environ["DSEC_BUILD"])
        cls.folder = Path(tempfile.mkdtemp(prefix="dsec-loadgen-test."))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.instance = f"lgtest-{os.getpid()}"
        cls.address = f"unix:{cls.folder}/socket"
        cls.image_make()
        cls.engine_start()

    @classmethod
    def image_make(cls):
        """Folders that a sandbox needs, and the freestanding programs."""
        root = cls.folder / "root"
        for name in ("proc", "dev/pts", "dev/shm", "tmp", "root", "etc", "usr/libexec/dsec"):
            (root / name).mkdir(parents=True)
        tiny = str(ROOT / "loadgen/tiny/build.sh")
        subprocess.run([tiny, root / "usr/libexec/dsec"], check=True, timeout=RUN_S)
        image = cls.folder / "images/tiny.erofs"
        image.parent.mkdir()
        subprocess.run(["mkfs.erofs", "--quiet", image, root], check=True, timeout=RUN_S)

    @classmethod
    def engine_start(cls):
        reader, writer = os.pipe()
        with open(cls.folder / "log", "wb") as log:
            cls.engine = subprocess.Popen(
                [cls.build / "engine/dsecd", "--instance", cls.instance]
                + ["--socket", cls.folder / "socket", "--images", cls.folder / "images"]
                + ["--state", cls.folder / "state"]
                + ["--ready-fd", str(writer), *cls.options],
                pass_fds=[writer],
                stdout=log,
                stderr=log,
            )
        cls.addClassCleanup(cls.engine_stop)
        os.close(writer)
        with os.fdopen(reader) as ready:
            if ready.readline() != "ready\n":
                raise AssertionError(f"dsecd is not ready:\n{(cls.folder / 'log').read_text()}")

    @classmethod
    def engine_stop(cls):
        cls.engine.send_signal(signal.SIGTERM)
        if cls.engine.wait(STOP_S) != 0:
            raise AssertionError(f"dsecd's end:\n{(cls.folder / 'log').read_text()}")

    def loadgen(self, *options):
        """The command of one run."""
        return [
            str(self.build / "loadgen/dsec-loadgen"),
            *("--address", self.address, "--instance", self.instance, "--image", "tiny"),
            *options,
        ]

    def launchers(self):
        """The engine's workers, by their names."""
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                pid, rest = status.read_text().split(" (", 1)
            except FileNotFoundError:
                continue
            name, rest = rest.rsplit(") ", 1)
            if name.startswith("dsec-launch") and self.is_ours(int(rest.split()[1])):
                found.append(int(pid))
        return found

    def is_ours(self, pid):
        """Whether this process is the engine or below it."""
        while pid > 1:
            if pid == self.engine.pid:
                return True
            try:
                stat = Path(f"/proc/{pid}/stat").read_text()
            except FileNotFoundError:
                return False
            pid = int(stat.rsplit(") ", 1)[1].split()[1])
        return False

    def slots(self):
        """Cgroups of slots."""
        tree = next(
            line.split()[1]
            for line in Path("/proc/mounts").read_text().splitlines()
            if line.split()[2] == "cgroup2"
        )
        return sorted(Path(tree, f"dsec-{self.instance}").glob("s*/b*"))
