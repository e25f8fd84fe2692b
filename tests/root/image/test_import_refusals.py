#!/usr/bin/env python3
"""The importer refuses hostile and malformed archives, by name and reason, and leaves no image."""
import gzip
import io
import json
import os
import random
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

from importer import (ARCHIVE, AUTO, FAILED, TREE, Import, blob, config_json, directory,
                      docker_archive, entry, hard, libc, link, mounted, mounts_of_our_own, must,
                      oci_archive, oci_files, raw, sha, tar, zstd)

CANARY = b"canary"


class RefusalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        mounts_of_our_own()

    def setUp(self):
        handle, path = tempfile.mkstemp(prefix="dsec-import-canary.")
        os.write(handle, CANARY)
        os.close(handle)
        self.canary = Path(path)
        self.addCleanup(self.canary.unlink)

    def refused(self, data, reason, name=None, kind=AUTO, **limits):
        run = Import(data, kind, **limits)
        self.addCleanup(run.remove)
        self.assertEqual(run.last.get("kind"), FAILED, run.last)
        self.assertNotEqual(run.exit, 0)
        self.assertIn(reason, run.last["reason"])
        if name is not None:
            self.assertIn(name, run.last["name"])
        self.assertFalse(run.image.exists())
        self.assertEqual(self.canary.read_bytes(), CANARY)
        self.assertEqual([frame["kind"] for frame in run.frames].count(FAILED), 1)
        return run.last

    # ---- hostile names ----

    def test_dot_dot(self):
        for name in ("../x", "a/../../x", "a/..", "..", "./.."):
            self.refused(tar(entry(name, b"x")), '".."', kind=TREE)

    def test_an_absolute_name(self):
        self.refused(tar(entry(str(self.canary), b"gone")), "an absolute name", str(self.canary))

    def test_links_in_circles(self):
        self.refused(tar(link("a", "b"), link("b", "a"), entry("a/x", b"x")), "too many links",
                     "a/x")
        chain = [link(f"l{n}", f"l{n + 1}") for n in range(41)] + [directory("l41")]
        self.refused(tar(*chain, entry("l0/x", b"x")), "too many links", "l0/x")

    def test_links_that_make_a_path_too_long_or_deep(self):
        deep = "d/" * 100
        self.refused(tar(link("l", deep + "."), directory(deep), entry("l/" + deep + "x")),
                     "a path too long")
        self.refused(tar(link("l", ("n" * 250 + "/") * 11 + "."), entry("l/" + "m" * 250 + "/n/" * 5
                                                                     + "x" * 250)), "too long")

    def test_a_link_to_dev_makes_no_device(self):
        self.refused(tar(entry("f", b"x"), link("l", "f"), entry("l/x", b"x")),
                     "its parent is no directory", "f/x")
        run = Import(tar(link("l", "/dev"), entry("l/fake", b"x")))
        self.addCleanup(run.remove)
        self.assertEqual((run.exit, run.last["dropped_nodes"]), (0, 1))
        with mounted(run.image) as root:
            self.assertFalse((root / "dev/fake").exists())

    def test_a_hard_link_to_outside(self):
        self.refused(tar(hard("x", "../../../etc/shadow")), '".."', "../../../etc/shadow")
        self.refused(tar(hard("x", str(self.canary))), "an absolute name")
        self.refused(tar(hard("x", "nothing")), "a hard link to nothing", "x")
        self.refused(tar(link("out", "/etc"), hard("x", "out/shadow")), "a hard link to nothing")
        self.refused(tar(directory("d"), hard("x", "d")), "a hard link to a directory")
        self.refused(tar(entry("x"), hard("x", "x")), "a hard link to itself")
        self.refused(tar(entry("x/y"), hard("x", "x/y")), "a hard link to nothing")

    def test_a_pax_override_is_checked_as_any_name(self):
        info, _ = entry("innocent", b"x", pax_headers={"path": "../../" + self.canary.name})
        self.refused(tar((info, b"x")), '".."')
        info, _ = entry("innocent", kind=tarfile.LNKTYPE, linkname="a",
                        pax_headers={"linkpath": "../../etc/shadow"})
        self.refused(tar((info, b"")), '".."')

    def test_pax_sizes_and_owners_are_checked(self):
        info, _ = entry("big", b"x", pax_headers={"size": "99999999999999"})
        self.refused(tar((info, b"x")), "over the limit of bytes", kind=TREE)
        info, _ = entry("owned", b"x", pax_headers={"uid": "70000"})
        self.refused(tar((info, b"x")), "an owner beyond 65535", "owned")

    def test_owners_beyond_the_range(self):
        for owner in ({"uid": 65536}, {"gid": 65536}, {"uid": 2 ** 31}):
            self.refused(tar(entry("its", b"x", **owner)), "an owner beyond 65535", "its")

    def test_paths_and_names_too_long(self):
        self.refused(tar(entry("d/" * 200 + "x")), "a path too long")
        self.refused(tar(entry(("d" * 250 + "/") * 20 + "x")), "a path too long")
        self.refused(tar(entry("n" * 300)), "a name over 255 bytes")

    def test_a_parent_that_is_no_directory(self):
        self.refused(tar(entry("a", b"x"), entry("a/b", b"x")), "its parent is no directory", "a/b")

    def test_whiteouts_of_nothing(self):
        for name in (".wh.", ".wh...", "d/.wh."):
            self.refused(docker_archive(tar(entry(name))), "a whiteout of nothing")

    def test_malformed_file_capabilities(self):
        info, _ = entry("x", b"x", pax_headers={"SCHILY.xattr.security.capability": "bad"})
        self.refused(tar((info, b"x")), "file capabilities are malformed", "x")

    # ---- malformed archives ----

    def test_a_sum_that_is_wrong(self):
        self.refused(raw("x", bad_sum=True) + bytes(1024), "", kind=TREE)
        self.refused(tar(entry("ok"))[:512] + raw("x", bad_sum=True) + bytes(1024), "", kind=TREE)

    def test_sizes_of_gigabytes_that_are_not_there(self):
        self.refused(raw("x", 1 << 33) + bytes(1024), "over the limit of bytes", "x", TREE)
        self.refused(raw("x", 1 << 30) + bytes(1024), "", "x", TREE, bytes_max=1 << 40)
        self.refused(raw("x", 1 << 62) + bytes(1024), "overflow", kind=TREE)

    def test_a_gzip_that_is_cut_off(self):
        noise = random.Random(7).randbytes(300000)
        packed = gzip.compress(tar(entry("x", noise)))
        for part in (len(packed) // 2, len(packed) - 6):
            self.refused(packed[:part], "", kind=TREE)
        broken = bytearray(packed)
        broken[len(packed) // 2] ^= 0xff
        self.refused(bytes(broken), "", kind=TREE)
        self.refused(zstd(tar(entry("x", noise)))[:1000], "", kind=TREE)

    def test_a_tar_that_is_cut_off(self):
        data = tar(entry("a", b"x" * 2000), entry("b", b"x" * 2000))
        self.refused(data[:1500], "", kind=TREE)
        # Between two entries, where nothing is missing but the marker of the end.
        self.refused(data[:512 + 2048], "no end-of-archive marker", kind=TREE)

    def test_no_tar_at_all(self):
        for data in (b"", b"#!/bin/sh\n", b"\x7fELF" + bytes(5000), bytes(1024), b"x" * 100000):
            for kind in (AUTO, TREE, ARCHIVE):
                self.refused(data, "", kind=kind)

    def test_noise_never_makes_an_image(self):
        noise = random.Random(1)
        good = tar(*[entry(f"d/{n}", noise.randbytes(700)) for n in range(6)])
        for _ in range(40):
            data = bytearray(good)
            for _ in range(noise.randrange(1, 6)):
                data[noise.randrange(600)] = noise.randrange(256)
            run = Import(bytes(data), AUTO)
            self.addCleanup(run.remove)
            self.assertEqual(run.image.exists(), run.exit == 0)
            self.assertNotIn("killed", run.last.get("reason", ""))

    def test_bombs(self):
        zeros = tar(entry("x", bytes(64 << 20)))
        self.refused(gzip.compress(zeros), "over the limit of bytes", "x", TREE, bytes_max=1 << 20)
        many = tar(*[entry(f"f{n}") for n in range(300)])
        self.refused(many, "over the limit of files", files_max=299)
        with tempfile.TemporaryDirectory() as folder:
            with open(Path(folder, "hole"), "wb") as file:
                file.truncate(1 << 40)
            sparse = subprocess.run(["tar", "-C", folder, "-cS", "hole"], stdout=subprocess.PIPE,
                                    check=True, timeout=60).stdout
        self.refused(sparse, "over the limit of bytes", "hole", TREE)

    def test_gigabytes_after_the_end(self):
        self.refused(tar(entry("x")) + bytes(80 << 20), "after the archive's end", kind=TREE)

    # ---- archives of layers ----

    def test_a_manifest_that_names_files_of_the_host(self):
        config = config_json([])
        for bad in ("../../etc/passwd", "/etc/passwd", "nothing"):
            manifest = [{"Config": sha(config) + ".json", "Layers": [bad]}]
            self.refused(docker_archive(config=config, manifest=manifest),
                         "a layer that the archive does not hold", bad)
            manifest = [{"Config": bad, "Layers": []}]
            self.refused(docker_archive(config=config, manifest=manifest),
                         "a config that the archive does not hold", bad)

    def test_links_out_of_an_archive(self):
        for target in ("/etc/passwd", "../../etc/passwd"):
            self.refused(tar(link("manifest.json", target)), "a link out of the archive",
                         kind=ARCHIVE)
        self.refused(tar(link("manifest.json", "index.json"), link("index.json", "manifest.json")),
                     "no image", kind=ARCHIVE)

    def test_a_layer_with_another_digest(self):
        layer = tar(entry("x", b"x"))
        files = oci_files(layer)
        files["blobs/sha256/" + sha(layer)] = tar(entry("x", b"y"))
        self.refused(oci_archive(files), "another digest", sha(layer))
        other = docker_archive(tar(entry("x")), config=config_json([tar(entry("y"))]))
        self.refused(other, "another digest")

    def test_a_descriptor_with_another_size_or_a_strange_digest(self):
        for change, reason in (({"size": 1}, "another size"),
                               ({"digest": "sha256:../../../etc/passwd"}, "not a sha256 digest"),
                               ({"digest": "md5:00"}, "not a sha256 digest"),
                               ({"digest": "sha256:" + "0" * 64}, "does not hold"),
                               ({"digest": 7}, "without a digest")):
            files = oci_files(tar(entry("x")))
            index = json.loads(files["index.json"])
            index["manifests"][0].update(change)
            files["index.json"] = json.dumps(index).encode()
            self.refused(oci_archive(files), reason)

    def test_thousands_of_layers(self):
        layer = tar(entry("x"))
        config = config_json([layer] * 3000)
        manifest = [{"Config": "c.json", "Layers": ["l.tar"] * 3000}]
        data = tar(entry("l.tar", layer), entry("c.json", config),
                   entry("manifest.json", json.dumps(manifest).encode()))
        self.refused(data, "over the limit of layers", kind=ARCHIVE)

    def test_malformed_documents(self):
        for text in (b"", b"{", b"[]", b"[1]", b"[{}]", b'[{"Config": 1}]', b"\xff", b"[" * 500):
            self.refused(tar(entry("manifest.json", text)), "", kind=ARCHIVE)
        for text in (b"", b"[]", b'{"manifests": 1}', b'{"manifests": []}', b'{"manifests": [1]}'):
            self.refused(tar(entry("oci-layout", b"{}"), entry("index.json", text)), "",
                         kind=ARCHIVE)
        self.refused(tar(entry("manifest.json", b" " * (5 << 20))), "over 4 MiB", kind=ARCHIVE)
        self.refused(tar(entry("oci-layout", b"{}")), "no image", kind=ARCHIVE)

    def test_several_images_and_other_machines(self):
        one = [{"Config": "c", "Layers": []}, {"Config": "d", "Layers": []}]
        self.refused(docker_archive(manifest=one), "several images")
        layer = tar(entry("x"))
        config = json.dumps({"architecture": "s390x", "os": "linux"}).encode()
        self.refused(docker_archive(layer, config=config), "another machine", "s390x")
        config = json.dumps({"os": "windows"}).encode()
        self.refused(docker_archive(layer, config=config), "another system", "windows")

    def test_configs_that_nothing_could_run_with(self):
        layer = tar(entry("x"))
        for field, value, reason in (
                ("WorkingDir", "relative", "no absolute path"), ("WorkingDir", 7, "no text"),
                ("WorkingDir", "/" + "x" * 2000, "too long"), ("User", "u" * 100, "too long"),
                ("User", "a\0b", "too long"), ("Env", ["NOVALUE"], "not NAME=value"),
                ("Env", ["=x"], "not NAME=value"), ("Env", "A=1", "no list"),
                ("Env", [1], "other than texts"), ("Cmd", ["x" * 40000], "over 32 KiB"),
                ("Cmd", ["x"] * 600, "512 texts"), ("Entrypoint", {"a": 1}, "no list"),
                ("Cmd", ["a\0b"], "a NUL")):
            self.refused(docker_archive(layer, **{field: value}), reason)

    # ---- the disk ----

    def test_a_disk_full_to_its_mark_and_one_that_is_full(self):
        with tempfile.TemporaryDirectory() as folder:
            must(libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"size=16m"))
            data = tar(entry("x", random.Random(3).randbytes(12 << 20)))
            told = self.refused(data, "to its mark", folder=folder, free_min=2 << 20)
            self.assertEqual(told["error"], 28)
            self.doCleanups()
            self.setUp()
            Path(folder, "filler").write_bytes(bytes(8 << 20))
            told = self.refused(data, "No space left", folder=folder)
            self.assertEqual(told["error"], 28)
            self.doCleanups()
            must(libc.umount2(folder.encode(), 2))


if __name__ == "__main__":
    unittest.main()
