#!/usr/bin/env python3
"""The importer makes of good archives what they say, as the kernel shows it."""
import contextlib
import gzip
import json
import os
import random
import signal
import stat
import subprocess
import tarfile
import tempfile
import threading
import time
import unittest
from pathlib import Path

from importer import (ARCHIVE, AUTO, DONE, FAILED, PROGRAM, TREE, Import, blob, config_json,
                      directory, docker_archive, entry, hard, link, mounted, mounts_of_our_own, oci_archive, oci_files,
                      record_of, segments_of, sha, tar, zstd)

# A version 2 file capability, effective and permitted: CAP_NET_BIND_SERVICE.
CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")
SLOWNESS = int(os.environ.get("DSEC_TEST_SLOWNESS", "1"))
# Parts of names that programs have stumbled over.
ODD_PARTS = [b" ", b"\n", b"'\"", b"-rf", b"\\", b"%s%n", b"\x7f\x1b[0m", b"*?[]", b"$(x)`y`;", b"...", b"~",
             "\u00e9\u202e\U0001f9ea".encode(), "e\u0301".encode(), b"x" * 60, b"\t", b".wh", b"#!&|<>"]



def plain_header(name, size):
    """As tarfile's, for a hundred thousand of them."""
    head = bytearray(512)
    head[0:len(name)] = name
    head[100:107], head[108:115], head[116:123] = b"0000644", b"0000000", b"0000000"
    head[124:135], head[136:147] = b"%011o" % size, b"00000000000"
    head[148:156], head[156:157], head[257:265] = b" " * 8, b"0", b"ustar\x0000"
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def contents_below(top, name=b""):
    """Every regular file's name and bytes."""
    with os.scandir(os.path.join(top, name)) as entries:
        for there in entries:
            if there.is_dir(follow_symlinks=False):
                yield from contents_below(top, os.path.join(name, there.name))
            elif there.is_file(follow_symlinks=False):
                fd = os.open(there.path, os.O_RDONLY)
                data = b""
                while piece := os.read(fd, 16 << 20):
                    data += piece
                os.close(fd)
                yield os.path.join(name, there.name), data


def with_xattr(name, attribute, value, data=b"x"):
    """tarfile writes PAX values as UTF-8, so a binary one is written by hand."""
    record = b" SCHILY.xattr." + attribute.encode() + b"=" + value + b"\n"
    length = len(record)
    while len(str(length)) + len(record) != length:
        length = len(str(length)) + len(record)
    body = str(length).encode() + record
    info, _ = entry("PaxHeader")
    info.type, info.size = b"x", len(body)
    head = info.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512)
    file, _ = entry(name, data)
    return head + file.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


class ImportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        mounts_of_our_own()

    def good(self, data, kind=AUTO, **limits):
        run = Import(data, kind, **limits)
        self.addCleanup(run.remove)
        self.assertEqual((run.exit, run.last["kind"]), (0, DONE), run.last)
        return run

    def tree(self, data, kind=AUTO, **limits):
        image = self.good(data, kind, **limits).image
        with mounted(image) as root:
            for path in sorted(root.rglob("*")):
                yield str(path.relative_to(root)), path, path.lstat()

    def names(self, data, kind=AUTO, **options):
        return [name for name, _, _ in self.tree(data, kind, **options) if name.split("/")[0] != "dev"]

    def test_a_tar_comes_out_as_it_went_in(self):
        data = tar(directory("bin", mode=0o755), entry("bin/su", b"su", mode=0o4755, uid=0, gid=7),
                   entry("etc/motd", b"hello\n", uid=65535, gid=65535, mtime=12345.5),
                   link("bin/sh", "/etc/motd"), hard("etc/again", "etc/motd"),
                   entry("run/pipe", kind=tarfile.FIFOTYPE, mode=0o600),
                   entry("deep/" + "d/" * 60 + "name " + "n" * 200, b"far"),
                   entry("empty"), entry("caf\u00e9", b"utf-8"))
        with mounted(self.good(data, TREE).image) as root:
            su = (root / "bin/su").stat()
            self.assertEqual((su.st_mode, su.st_uid, su.st_gid), (0o104755, 0, 7))
            motd, again = (root / "etc/motd").stat(), (root / "etc/again").stat()
            self.assertEqual((motd.st_uid, motd.st_gid, motd.st_mtime), (65535, 65535, 12345.5))
            self.assertEqual((motd.st_ino, motd.st_nlink), (again.st_ino, 2))
            self.assertEqual(os.readlink(root / "bin/sh"), "/etc/motd")
            self.assertTrue(stat.S_ISFIFO((root / "run/pipe").stat().st_mode))
            deep = root / ("deep/" + "d/" * 60) / ("name " + "n" * 200)
            self.assertEqual(deep.read_bytes(), b"far")
            self.assertEqual((root / "empty").read_bytes(), b"")
            self.assertEqual((root / "caf\u00e9").read_bytes(), b"utf-8")

    def test_dev_is_ours_and_other_device_nodes_are_dropped_and_counted(self):
        device = {"kind": tarfile.CHRTYPE, "devmajor": 1, "devminor": 1}
        run = self.good(tar(directory("dev"), entry("dev/null", **device), link("dev/fd", "x"),
                            entry("dev/mem", **device), entry("mem", **device),
                            entry("sda", **dict(device, kind=tarfile.BLKTYPE)),
                            hard("null", "dev/null"), entry("dev/file", b"x"), entry("kept")))
        self.assertEqual(run.last["dropped_nodes"], 5)
        with mounted(run.image) as root:
            self.assertEqual(sorted(p.name for p in root.iterdir()), ["dev", "kept"])
            nodes = sorted(p.name for p in (root / "dev").iterdir())
            self.assertEqual(nodes, ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr",
                                     "stdin", "stdout", "tty", "urandom", "zero"])
            null = (root / "dev/null").stat()
            self.assertEqual((null.st_rdev, null.st_mode), (os.makedev(1, 3), 0o20666))
            self.assertEqual((root / "dev/shm").stat().st_mode, 0o41777)

    def test_attributes_and_capabilities_are_kept_and_others_dropped_and_counted(self):
        data = (with_xattr("ping", "security.capability", CAPABILITY) +
                with_xattr("note", "user.note", b"\0binary\xff") +
                with_xattr("over", "trusted.overlay.redirect", b"/etc") +
                with_xattr("label", "security.selinux", b"system_u") + bytes(1024))
        run = self.good(data, TREE)
        self.assertEqual(run.last["dropped_xattrs"], 2)
        with mounted(run.image) as root:
            self.assertEqual(os.getxattr(root / "ping", "security.capability"), CAPABILITY)
            self.assertEqual(os.getxattr(root / "note", "user.note"), b"\0binary\xff")
            self.assertEqual(os.listxattr(root / "over"), [])
            self.assertEqual(os.listxattr(root / "label"), [])

    def test_sparse_files_keep_their_size_and_contents(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(Path(folder, "sparse"), "wb") as file:
                file.write(b"begin")
                file.seek(5 << 20)
                file.write(b"middle")
                file.truncate(9 << 20)
            data = subprocess.run(["tar", "-C", folder, "-cS", "sparse"], stdout=subprocess.PIPE,
                                  check=True, timeout=60).stdout
            wanted = Path(folder, "sparse").read_bytes()
        self.assertLess(len(data), 1 << 20)
        with mounted(self.good(data, TREE).image) as root:
            self.assertEqual((root / "sparse").read_bytes(), wanted)

    def test_a_hundred_thousand_odd_names_and_sparse_files_come_back_whole(self):
        count, sparse = 100_000 // SLOWNESS, 200 // SLOWNESS
        pieces, wanted = [], {}
        for number in range(count):
            part = ODD_PARTS[number % len(ODD_PARTS)]
            name = b"d%03d%s/%06d%s" % (number % 997, part[:7], number, part)
            data = b"%d " % (number // 3) * (number % 37)  # some are empty, some are equal
            pieces += [plain_header(name, len(data)), data, bytes(-len(data) % 512)]
            wanted[name] = sha(data)
        with tempfile.TemporaryDirectory() as folder:
            for number in range(sparse):
                with open(Path(folder, f"sparse{number}"), "wb") as file:
                    for hole in range(number % 5):
                        file.seek((hole + 1) * (number + 1) * 5000)
                        file.write(b"%d" % number)
                    file.truncate((number % 7 + 1) << 20)
                wanted[b"sparse%d" % number] = sha(Path(folder, f"sparse{number}").read_bytes())
            pieces.append(subprocess.run(["tar", "-C", folder, "-cS", "."], stdout=subprocess.PIPE,
                                         check=True, timeout=60 * SLOWNESS).stdout)
        with mounted(self.good(b"".join(pieces), TREE, files_max=1 << 20).image) as root:
            found = {name: sha(data) for name, data in contents_below(os.fsencode(root))}
        self.assertEqual(len(found), len(wanted))
        self.assertEqual([name for name in wanted if found.get(name) != wanted[name]][:5], [])

    def test_compressed_streams_are_read(self):
        data = tar(entry("it", b"x" * 100000))
        for packed in (data, gzip.compress(data), zstd(data)):
            with mounted(self.good(packed, TREE).image) as root:
                self.assertEqual((root / "it").read_bytes(), b"x" * 100000)

    def test_later_entries_of_a_name_win_whatever_they_are(self):
        data = tar(entry("a", b"1"), entry("a", b"22"), entry("b/c", b"x"), entry("b", b"file"),
                   entry("d", b"file"), directory("d"), entry("d/e", b"x"), link("f", "a"),
                   entry("f", b"no link"))
        with mounted(self.good(data, TREE).image) as root:
            self.assertEqual((root / "a").read_bytes(), b"22")
            self.assertEqual((root / "b").read_bytes(), b"file")
            self.assertEqual((root / "d/e").read_bytes(), b"x")
            self.assertEqual((root / "f").read_bytes(), b"no link")

    def test_names_are_names_and_never_options(self):
        data = tar(entry("--checkpoint-action=exec=sh"), entry("-rf"), entry("a\nb"),
                   entry(".wh.kept"))
        self.assertEqual(self.names(data, TREE),
                         ["--checkpoint-action=exec=sh", "-rf", ".wh.kept", "a\nb"])

    # ---- layers ----

    def layers(self):
        low = tar(entry("a/keep", b"low"), entry("a/gone", b"low"), entry("a/sub/x", b"low"),
                  entry("b/x", b"low"), entry("b/y/z", b"low"), entry("c", b"low"),
                  entry("shared", b"one"), entry("again", b"low"))
        middle = tar(entry("a/.wh.gone"), entry("b/.wh..wh..opq"), entry("b/new", b"middle"),
                     entry(".wh.c"), hard("linked", "shared"), entry("again", b"middle"),
                     entry(".wh.again"), entry("a/sub/y", b"middle"), entry(".wh..wh.plnk"))
        high = tar(entry("c", b"high"), entry("a/.wh.sub"), entry("b/.wh.nothing"),
                   entry("shared", b"two"), entry("b/late/.wh..wh..opq"))
        return low, middle, high

    def check_layers(self, run):
        self.assertEqual((run.last["layers"], run.last["layers_total"]), (3, 3))
        with mounted(run.image) as root:
            def text(name):
                return (root / name).read_text()
            names = sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())
            names = [name for name in names if not name.startswith("dev/")]
            self.assertEqual(names, ["a/keep", "again", "b/new", "c", "linked", "shared"])
            self.assertEqual((text("a/keep"), text("b/new"), text("c")), ("low", "middle", "high"))
            # The link keeps what it was a link to when its layer was made.
            self.assertEqual((text("linked"), text("shared")), ("one", "two"))
            self.assertEqual(text("again"), "middle", "a whiteout hides only layers below")

    def test_whiteouts_opaque_folders_and_links_across_three_layers_docker(self):
        self.check_layers(self.good(docker_archive(*self.layers())))

    def test_whiteouts_opaque_folders_and_links_across_three_layers_oci(self):
        for packed in (lambda data: data, gzip.compress, zstd):
            self.check_layers(self.good(oci_archive(oci_files(*self.layers(), packed=packed))))

    def test_an_opaque_folder_keeps_what_its_own_layer_put_there_before_it(self):
        low, high = tar(entry("d/low")), tar(entry("d/early"), entry("d/s/deep"),
                                             entry("d/.wh..wh..opq"), entry("d/late"))
        self.assertEqual(self.names(docker_archive(low, high)),
                         ["d", "d/early", "d/late", "d/s", "d/s/deep"])

    def test_an_opaque_root_hides_all_below_but_dev(self):
        names = [n for n, _, _ in self.tree(docker_archive(
            tar(entry("old"), entry("dir/x")), tar(entry(".wh..wh..opq"), entry("new"))))]
        self.assertEqual([n for n in names if not n.startswith("dev/")], ["dev", "new"])
        self.assertIn("dev/null", names)

    def test_hard_links_between_layers_are_one_file(self):
        data = docker_archive(tar(entry("one", b"x")), tar(hard("two", "one"), hard("three", "two")))
        with mounted(self.good(data).image) as root:
            self.assertEqual((root / "one").stat().st_ino, (root / "three").stat().st_ino)
            self.assertEqual((root / "one").stat().st_nlink, 3)

    def test_ways_through_links_are_taken_inside(self):
        merged = tar(directory("usr/lib"), link("lib", "usr/lib"), entry("usr/lib/old", b"o"),
                     link("abs", "/usr/../../../usr/lib"), link("up", "../../../../tmp"),
                     link("a", "b"), link("b", "./usr/./"), link("gone", "not/there"))
        high = tar(entry("lib/x", b"x"), entry("abs/y", b"y"), entry("a/lib/z", b"z"),
                   entry("up/t", b"t"), entry("gone/n", b"n"), hard("h", "lib/x"),
                   entry("lib/.wh.old"), link("usr/lib/l", "/etc/passwd"), entry("abs/l", b"l"))
        with mounted(self.good(docker_archive(merged, high)).image) as root:
            for name, text in (("usr/lib/x", b"x"), ("usr/lib/y", b"y"), ("usr/lib/z", b"z"),
                               ("tmp/t", b"t"), ("not/there/n", b"n"), ("h", b"x"),
                               ("usr/lib/l", b"l")):
                self.assertEqual((root / name).read_bytes(), text, name)
            self.assertEqual(os.readlink(root / "lib"), "usr/lib")
            self.assertFalse((root / "usr/lib/old").exists())
            self.assertTrue((root / "h").samefile(root / "usr/lib/x"))
        # Opaque through a link; and a folder takes the place of a link, it does not follow it.
        top = tar(entry("lib/.wh..wh..opq"), entry("lib/new", b"n"), directory("a"), entry("a/in"))
        with mounted(self.good(docker_archive(merged, top)).image) as root:
            self.assertEqual(sorted(os.listdir(root / "usr/lib")), ["new"])
            self.assertEqual(os.listdir(root / "a"), ["in"])
            self.assertFalse((root / "a").is_symlink())

    def tree_of(self, run):
        """Types and flags of a layer's own tree, which no mount shows: the tree blob."""
        name, = (path for path in (run.images / "blobs/sha256").iterdir()
                 if path.read_bytes()[:8] == b"dsectree")
        return name.read_bytes()

    def test_a_layer_keeps_what_it_hides_and_gets_no_dev(self):
        data = tar(entry("app/x", b"x"), entry("app/.wh.old"), entry("lib/.wh..wh..opq"),
                   entry("gone", kind=tarfile.CHRTYPE), entry("dev/file"))
        run = self.good(data, TREE, flags=1)
        with mounted(run.image) as root:
            self.assertEqual(sorted(str(p.relative_to(root)) for p in root.rglob("*")),
                             ["app", "app/x", "lib"])
        tree = self.tree_of(run)
        for name in (b"old", b"gone", b"lib"):
            self.assertIn(name, tree)
        self.assertNotIn(b".wh.", tree)
        for name in (b"old", b"gone"):
            self.assertNotIn(name, self.tree_of(self.good(tar(entry("app/x", b"x")), TREE)))

    def test_what_two_images_share_is_stored_once(self):
        one = tar(entry("a", b"a" * 100000), entry("b", b"b" * 50000))
        two = tar(entry("other/a", b"a" * 100000), entry("c", b"c" * 20000))
        first = self.good(one)
        self.assertEqual((first.last["new_bytes"], first.last["shared_bytes"]), (150000, 0))
        second = self.good(two, images=first.images)
        self.assertEqual((second.last["new_bytes"], second.last["shared_bytes"]), (20000, 100000))
        with mounted(second.image, first.images) as root:
            self.assertEqual((root / "other/a").read_bytes(), b"a" * 100000)

    def test_a_layer_named_twice_is_applied_twice(self):
        data = docker_archive(*[tar(entry("x", b"1")), tar(entry("x", b"2")),
                                tar(entry("x", b"1"))])
        with mounted(self.good(data).image) as root:
            self.assertEqual((root / "x").read_bytes(), b"1")

    def test_an_old_docker_archive_with_a_linked_layer(self):
        low = tar(entry("x", b"1"))
        data = tar(entry("aa/layer.tar", low), link("bb/layer.tar", "../aa/layer.tar"),
                   entry("c.json", b"{}"),
                   entry("manifest.json", json.dumps([{"Config": "c.json", "Layers": [
                       "aa/layer.tar", "bb/layer.tar"]}]).encode()))
        self.assertEqual(self.good(data, ARCHIVE).last["layers"], 2)

    def test_an_archive_as_skopeo_writes_it(self):
        layer = tar(entry("x", b"1"))
        config = config_json([layer])
        data = tar(entry(f"{sha(layer)}.tar", layer), entry(f"{sha(config)}.json", config),
                   link("a" * 64 + "/layer.tar", f"../{sha(layer)}.tar"),
                   entry("a" * 64 + "/VERSION", b"1.0"),
                   entry("manifest.json", json.dumps([{
                       "Config": f"{sha(config)}.json", "Layers": [f"{sha(layer)}.tar"]}]).encode()))
        self.assertEqual(self.names(data, AUTO), ["x"])

    # ---- the config ----

    def test_the_config_is_in_the_record(self):
        config = {"User": "agent", "WorkingDir": "/srv", "Env": ["A=1", "B=x=\u00e4"],
                  "Entrypoint": ["/bin/init", "--"], "Cmd": ["serve"]}
        run = self.good(docker_archive(tar(entry("x", b"12345")), **config))
        record = record_of(run.image)
        self.assertEqual(record.pop("digest"), run.last["digest"])
        listed = json.dumps(record)
        for name in segments_of(run.image):
            self.assertIn(name, listed)
        self.assertEqual(record.pop("files"), 16)  # with /dev and the root
        record = {key: value for key, value in record.items()
                  if not key.startswith(("segment", "manifest"))}
        self.assertEqual(record, {
            "source": "docker-archive", "created": "2026-01-02T03:04:05Z", "content_bytes": 5,
            "layers": 1, "user": "agent", "cwd": "/srv", "env": ["A=1", "B=x=\u00e4"],
            "entrypoint": ["/bin/init", "--"], "cmd": ["serve"]})
        size = run.image.stat().st_size
        self.assertEqual(run.last["digest"], "sha256:" + sha(run.image.read_bytes()[:size // 4096
                                                                                   * 4096]))

    def tagged(self, *tags):
        """A layout with an image for each tag; the tag is the name of its only file."""
        files, manifests = {}, []
        for tag in tags:
            files.update(oci_files(tar(entry(tag))))
            one = json.loads(files["index.json"])["manifests"][0]
            manifests.append(dict(one, annotations={"org.opencontainers.image.ref.name": tag}))
        files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
        return files, manifests

    def test_one_of_several_tags_is_taken_where_it_is_asked_for(self):
        files, manifests = self.tagged("v1", "repo/it:v2")
        for tag, name in (("v1", "v1"), ("v2", "repo"), ("repo/it:v2", "repo")):
            self.assertEqual(self.names(oci_archive(files), tag=tag)[0], name)
        # One image under two tags is one image.
        also = dict(manifests[0], annotations={"org.opencontainers.image.ref.name": "latest"})
        index = {"schemaVersion": 2, "manifests": [manifests[0], also]}
        files["index.json"] = json.dumps(index).encode()
        self.assertEqual(self.names(oci_archive(files)), ["v1"])
        layers = [tar(entry("one")), tar(entry("two"))]
        names = ["1.tar", "2.tar"]
        manifest = [{"Config": "c", "RepoTags": [tag], "Layers": [name]}
                    for tag, name in zip(("it:one", "it:two"), names)]
        data = tar(*[entry(name, layer) for name, layer in zip(names, layers)], entry("c", b"{}"),
                   entry("manifest.json", json.dumps(manifest).encode()))
        self.assertEqual(self.names(data, ARCHIVE, tag="it:two"), ["two"])
        self.assertEqual(self.names(data, ARCHIVE, tag="one"), ["one"])

    def test_tags_that_do_not_choose_one_are_refused_with_those_there_are(self):
        files, _ = self.tagged("v1", "v2")
        for tag, reason, name in (("", "several images, ask for a tag", "v1, v2"),
                                  ("v3", "no image has that tag", "v1, v2"),
                                  ("1", "no image has that tag", "v1, v2")):
            self.refuses(oci_archive(files), reason, name, tag=tag)
        self.refuses(oci_archive(oci_files(tar(entry("x")))), "no image has a tag", "v1", tag="v1")
        self.refuses(tar(entry("x")), "has no tags", "v1", tag="v1")

    def refuses(self, data, reason, name, **options):
        run = Import(data, **options)
        self.addCleanup(run.remove)
        self.assertEqual(run.last["kind"], FAILED, run.last)
        self.assertIn(reason, run.last["reason"])
        self.assertEqual(run.last["name"], name)

    def test_one_of_several_platforms_is_chosen(self):
        layer = tar(entry("x"))
        files = oci_files(layer)
        ours = json.loads(files["index.json"])["manifests"][0]
        inner = json.dumps({"schemaVersion": 2, "manifests": [
            dict(ours, platform={"architecture": "s390x", "os": "linux"}), ours,
            dict(ours, platform={"architecture": "unknown", "os": "unknown"})]}).encode()
        files["blobs/sha256/" + sha(inner)] = inner
        outer = {"schemaVersion": 2, "manifests": [blob(inner)]}
        files["index.json"] = json.dumps(outer).encode()
        self.assertEqual(self.names(oci_archive(files)), ["x"])

    def test_the_same_input_gives_the_same_bytes(self):
        data = docker_archive(*self.layers(), Env=["A=1"])
        first = self.good(data)
        time.sleep(1.1)  # times of ours would differ
        self.assertEqual(first.image.read_bytes(), self.good(data).image.read_bytes())

    # ---- ends ----

    def test_killed_importers_leave_no_process(self):
        run = Import(None, TREE)
        self.addCleanup(run.remove)
        run.feed(tar(entry("x", b"x" * 100000))[:50000])
        deadline = time.monotonic() + 10
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        while not children.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        unpacker = int(children.read_text())
        os.kill(run.pid, signal.SIGKILL)
        run.end()
        self.assertEqual(os.waitstatus_to_exitcode(run.exit), -signal.SIGKILL)
        while Path(f"/proc/{unpacker}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(Path(f"/proc/{unpacker}").exists())
        self.assertFalse(run.image.exists())

    def killed(self, data, images, process, after_s):
        """An import whose supervisor (0) or other process (1) is killed then, if it lives."""
        run = Import(None, TREE, images=images)
        self.addCleanup(run.remove)
        feeder = threading.Thread(target=lambda: (run.feed(data), run.close()))
        feeder.start()
        time.sleep(after_s)
        with contextlib.suppress(OSError, IndexError):
            children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
            os.kill([run.pid, *map(int, children)][process], signal.SIGKILL)
        run.take()
        feeder.join()
        return run

    def test_kills_at_any_moment_leave_no_half_image_and_no_half_blob(self):
        noise = random.Random(11)
        data = tar(*[entry(f"f{n}", noise.randbytes(noise.randrange(100000))) for n in range(40)])
        images = self.good(tar(entry("x"))).images
        began, killed = time.monotonic(), 0
        self.good(data)
        lasts = time.monotonic() - began
        for number in range(16):
            run = self.killed(data, images, number % 2, noise.random() * lasts)
            killed += run.exit != 0
            self.assertTrue(run.image.exists() or run.exit != 0)
            if run.image.exists():  # whole, also where the last word was not said
                with mounted(run.image, images) as root:
                    self.assertEqual(len(list(root.glob("f*"))), 40)
            for path in (images / "blobs/sha256").iterdir():
                self.assertEqual(sha(path.read_bytes()), path.name)
        self.assertGreater(killed, 0)
        with mounted(self.good(data, images=images).image, images) as root:
            self.assertEqual(len(list(root.glob("f*"))), 40)

    def test_the_unpacker_holds_next_to_nothing(self):
        run = Import(None, TREE)
        self.addCleanup(run.remove)
        run.feed(tar(entry("x", b"x" * 100000))[:50000])
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if children.read_text():
                status = Path(f"/proc/{children.read_text().strip()}/status").read_text()
                if "Seccomp:\t2" in status:
                    break
            time.sleep(0.01)
        unpacker = Path(f"/proc/{children.read_text().strip()}")
        fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
        self.assertEqual(int(fields["CapEff"], 16), 0)
        self.assertEqual(fields["CapBnd"], fields["CapEff"])
        self.assertEqual((fields["NoNewPrivs"], fields["Seccomp"]), ("1", "2"))
        inside = sorted(os.listdir(unpacker / "root"))
        self.assertEqual(inside, ["blobs", "raw", "tree"])
        held = sorted(os.readlink(path) for path in (unpacker / "fd").iterdir())
        files = {path for path in held if path.startswith("/")} - {"/dev/null"}
        self.assertEqual(files, {f"/scratch/work/{name}" for name in ("blobs", "raw", "tree")})
        self.assertNotEqual(os.readlink(unpacker / "ns/net"), os.readlink("/proc/self/ns/net"))
        run.end()
        self.assertEqual(run.last["kind"], FAILED)

    def test_sweep_empties_a_directory_and_follows_no_link(self):
        with tempfile.TemporaryDirectory() as folder:
            kept, scratch = Path(folder, "kept"), Path(folder, "scratch")
            kept.write_text("kept")
            (scratch / "a/b/c").mkdir(parents=True)
            (scratch / "a/file").write_text("x")
            (scratch / "out").symlink_to(folder)
            fd = os.open(scratch, os.O_RDONLY)
            pid = os.fork()
            if pid == 0:
                os.dup2(fd, 100)
                os.dup2(100, 3)
                os.execv(PROGRAM, ["dsec-import", "sweep"])
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            os.close(fd)
            self.assertEqual(list(scratch.iterdir()), [])
            self.assertEqual(kept.read_text(), "kept")


if __name__ == "__main__":
    unittest.main()
