"""An engine and an image with a shell and Python in it, for the tests of sdk/python."""
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "sdk/python"), str(ROOT / "tests/root/loadgen")]
from engine import RUN_S, Engine  # noqa: E402

# As tests/slowness.h reads it: an emulated machine waits longer and does less.
SLOWNESS = int(os.environ.get("DSEC_TEST_SLOWNESS", "1"))


def fewer(count, least):
    return max(count // SLOWNESS, least)


def eventually(what, seconds=160):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def python_copy(root):
    """Debian's Python: the program, what it links with, and the modules it starts with."""
    program = Path("/usr/bin/python3").resolve()
    asked = [program, "-I", "-c", "import os; print(os.path.dirname(os.__file__), end='')"]
    library = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    files = [word for word in linked.split() if word.startswith("/")]
    names = ["encodings", "collections", "re", "json", "importlib", *(
        f"{name}.py" for name in (
            "abc codecs io os stat posixpath genericpath site _sitebuiltins _collections_abc types "
            "enum functools operator keyword reprlib copyreg __future__ signal time "
            "contextlib heapq struct").split())]
    for path in [program, *map(Path, files)]:
        target = root / str(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    for name in names:
        source, target = library / name, root / str(library).lstrip("/") / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy2(source, target)
    (root / str(library).lstrip("/") / "lib-dynload").mkdir()
    (root / "usr/bin/python3").symlink_to(program)


class PythonTest(Engine):
    """Image `small`; `child()` is the engine below its keeper."""

    options = ("--shards", "2", "--sandboxes-max", "60")  # small: a few uid ranges

    @classmethod
    def image_make(cls):
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dsec"
        # Another that makes images there is waited for.
        subprocess.run([ROOT / "loadgen/image.sh", "--minimal", cache], check=True,
                       stdout=subprocess.DEVNULL, timeout=2 * RUN_S)
        root = cls.folder / "root"
        subprocess.run(["cp", "-a", cache / "root-minimal", root], check=True, timeout=RUN_S)
        python_copy(root)
        image = cls.folder / "images/small.erofs"
        image.parent.mkdir()
        subprocess.run(["mkfs.erofs", "--quiet", image, root], check=True, timeout=RUN_S)

    @classmethod
    def child(cls):
        path = f"/proc/{cls.engine.pid}/task/{cls.engine.pid}/children"
        return int(Path(path).read_text().split()[0])
