#!/usr/bin/env python3
"""Imports of similar images: what of the second was there before."""
import io
import json
import os
import shutil
import sysconfig
import tarfile
import tempfile
import unittest
from pathlib import Path

from importer import mounts_of_our_own
from test_image_engine import Engine

# A tree of thousands of real files that every machine with this test has.
TREE = Path(sysconfig.get_paths()["stdlib"])
PACKAGE = "email"
LEFT_OUT = {"__pycache__", "site-packages", "dist-packages", "test"}


def files():
    for folder, folders, names in os.walk(TREE):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(TREE), path.read_bytes()


def archive(prefix, change=lambda path, data: data):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, data in files():
            data = change(path, data)
            info = tarfile.TarInfo(str(Path(prefix) / path))
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def upgraded(path, data):
    """Every file of one package has another version in it."""
    return b"# 2.0\n" + data if path.parts[0] == PACKAGE else data


class ShareTest(unittest.TestCase):
    def setUp(self):
        mounts_of_our_own()
        self.folder = Path(tempfile.mkdtemp(prefix="dsec-share-test."))
        self.addCleanup(shutil.rmtree, self.folder)
        self.engine = Engine(self.folder, "share", self.folder / "images")
        self.addCleanup(self.engine.stop)

    def made(self, name, data):
        ran = self.engine.dsec("--json", "image", "import", "-", "--name", name, input=data)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        row = json.loads(ran.stdout)
        print(f"{name}: {row['files']} files, {row['new_bytes']} bytes new, "
              f"{row['shared_bytes']} shared")
        return row["new_bytes"], row["shared_bytes"]

    def test_an_image_with_one_package_upgraded_stores_that_package(self):
        contents = list(files())
        self.assertGreater(len(contents), 300, "a tree that says something")
        package = sum(len(data) + 6 for path, data in contents if path.parts[0] == PACKAGE)
        new, shared = self.made("first", archive("usr/lib/python"))
        again, all_of_it = self.made("same", archive("usr/lib/python"))
        self.assertEqual((again, all_of_it), (0, new + shared))
        fresh, kept = self.made("upgraded", archive("usr/lib/python", upgraded))
        # Contents of several names count once, so the package is at most its files.
        self.assertLessEqual(fresh, package)
        self.assertGreater(fresh, package // 2)
        self.assertGreater(kept, 0.95 * (kept + fresh) if package * 20 < new else new - package)
        fresh, kept = self.made("elsewhere", archive("opt/python", upgraded))
        self.assertEqual(fresh, 0, "a path is no content")


if __name__ == "__main__":
    unittest.main(verbosity=2)
