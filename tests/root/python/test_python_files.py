#!/usr/bin/env python3
"""Files of sandboxes and images, by dsec and dsec.aio."""
import asyncio
import io
import os
import tarfile
import unittest

from fixture import PythonTest

import dsec
import dsec.aio


def tar_of(*names, **links):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(name), 0o640
            tar.addfile(info, io.BytesIO(name.encode()))
        for name, target in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return out.getvalue()


class FilesTest(PythonTest):
    @classmethod
    def engine_start(cls):
        cls.gate = f"unix:{cls.folder}/gate"
        cls.options = (*PythonTest.options, "--tenant", f"name=blue,socket={cls.folder}/blue",
                       "--tenant", f"name=gate,socket={cls.folder}/gate,gateway")
        super().engine_start()

    def setUp(self):
        self.client = dsec.connect(self.address)
        self.addCleanup(self.client.close)
        self.sandbox = self.client.create("small")
        self.addCleanup(self.sandbox.destroy)

    def test_what_was_written_is_read(self):
        sandbox = self.sandbox
        data = os.urandom(3_000_000)
        for at, given in enumerate((data, bytearray(data), io.BytesIO(data),
                                    (data[at:at + 77777] for at in range(0, len(data), 77777)))):
            self.assertEqual(sandbox.write(f"/tmp/f{at}", given, mode=0o600).bytes, len(data))
            self.assertEqual(sandbox.read(f"/tmp/f{at}"), data)
        self.assertEqual(sandbox.stat("/tmp/f0").mode & 0o777, 0o600)
        self.assertEqual(sandbox.read("/tmp/f0", offset=1000, bytes_max=50), data[1000:1050])
        for small in (b"", b"x"):
            sandbox.write("/tmp/small", small)
            self.assertEqual(sandbox.read("/tmp/small"), small)
        sandbox.append("/tmp/small", b"yz")
        self.assertEqual(sandbox.read("/tmp/small"), b"xyz")
        with self.assertRaises(FileExistsError):
            sandbox.write("/tmp/small", b"", exclusive=True)

    def test_a_source_that_fails_writes_nothing(self):
        def broken():
            yield b"x" * 500_000
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            self.sandbox.write("/tmp/never", broken())
        self.assertFalse(self.sandbox.exists("/tmp/never"))
        with self.assertRaises(IsADirectoryError):
            self.sandbox.write("/tmp", bytes(5_000_000))

    def test_names_are_bytes_and_lists_have_all_pages(self):
        sandbox = self.sandbox
        sandbox.mkdir("/tmp/d/e/f", parents=True, mode=0o711)
        odd = [b"a\nb", b"\xff\xfe", b"-rf", "\u00e4".encode(), b"\x1b[31m"]
        for name in odd:
            sandbox.write(b"/tmp/d/" + name, name)
        rows = {os.fsencode(row.name): row for row in sandbox.list("/tmp/d")}
        self.assertEqual(sorted(rows), sorted([*odd, b"e"]))
        self.assertEqual({row.type for row in rows.values()}, {"file", "folder"})
        for name, row in rows.items():
            if name != b"e":
                self.assertEqual(sandbox.read("/tmp/d/" + row.name), name)
        made = sandbox.exec(["sh", "-c", "mkdir /tmp/many; cd /tmp/many; seq 1 5000 | xargs touch"])
        self.assertTrue(made.ok, made.stderr)
        names = [row.name for row in sandbox.list("/tmp/many")]
        self.assertEqual((len(names), names), (5000, sorted(names)))
        sandbox.rename("/tmp/many", "/tmp/more")
        self.assertFalse(sandbox.exists("/tmp/many"))
        with self.assertRaises(OSError):
            sandbox.remove("/tmp/more")
        self.assertGreaterEqual(sandbox.remove("/tmp/more", recursive=True).entries, 5000)
        with self.assertRaises(FileNotFoundError):
            next(sandbox.list("/tmp/more"))

    def test_archives_go_in_and_out_and_say_what_was_left_out(self):
        sandbox = self.sandbox
        done = sandbox.tar_in("/tmp/in/deep", tar_of("a", "b/c", "../../out", l="a"), parents=True)
        self.assertEqual([(row.name, row.reason) for row in done.left_out],
                         [("../../out", "outside")])
        self.assertEqual(done.left_out_count, 1)
        self.assertEqual(sandbox.stat("/tmp/in/deep/l", follow=False).target, "a")
        data = b"".join(piece for piece in sandbox.tar_out("/tmp/in") if isinstance(piece, bytes))
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            self.assertEqual(tar.extractfile([name for name in tar.getnames()
                                              if name.endswith("b/c")][0]).read(), b"b/c")
        with self.assertRaises(dsec.DsecError):
            sandbox.tar_in("/tmp/in", b"no archive at all" * 100)

    def test_a_watch_tells_changes_until_it_is_left(self):
        async def body():
            async with dsec.aio.connect(self.address) as client:
                sandbox = client.sandbox(self.sandbox.id)
                seen = []
                watch = sandbox.watch("/tmp")
                self.assertEqual((await anext(watch)).changes, frozenset())
                await sandbox.exec(["sh", "-c", "echo x > /tmp/new; rm /tmp/new"])
                async for row in watch:
                    seen.append((row.name, row.changes))
                    if "removed" in row.changes:
                        break
                await watch.aclose()
                self.assertIn("created", {change for _, changes in seen for change in changes})
                self.assertEqual({name for name, _ in seen}, {"new"})

        asyncio.run(body())

    def test_reading_stops_where_the_reader_does(self):
        self.sandbox.exec(["sh", "-c", "head -c 20000000 /dev/zero > /tmp/large"])
        chunks = self.sandbox.read_chunks("/tmp/large")
        self.assertLess(len(next(chunks)), 1 << 20)
        chunks.close()
        self.assertEqual(sum(map(len, self.sandbox.read_chunks("/tmp/large"))), 20_000_000)

    def test_a_gateway_acts_for_tenants_and_nobody_else_does(self):
        with dsec.connect(self.gate, tenant="blue") as blue, blue.create("small") as sandbox:
            self.assertEqual(blue.capabilities().tenant, "blue")
            self.assertTrue(sandbox.exec(["true"]).ok)
            with dsec.connect(self.gate, tenant="*") as everybody:
                rows = {row.id: row.tenant for row in everybody.list()}
                self.assertEqual(rows, {sandbox.id: "blue", self.sandbox.id: "default"})
            with self.assertRaises(dsec.DsecAbsentError):
                self.client.sandbox(sandbox.id).exec(["true"])
        with self.assertRaises(PermissionError):
            dsec.connect(self.address, tenant="blue")
        with self.assertRaises(dsec.DsecAbsentError):
            dsec.connect(self.gate, tenant="nobody")

    def test_images_come_are_used_and_go(self):
        root = io.BytesIO()
        with tarfile.open(fileobj=root, mode="w") as tar:
            for name in ("proc", "dev", "tmp", "root", "etc", "bin"):
                info = tarfile.TarInfo(name)
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            tar.add(self.folder / "root/bin/busybox", "bin/busybox")
            info = tarfile.TarInfo("bin/sh")
            info.type, info.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(info)
        seen = []
        made = self.client.image_import("mine/small:1", root.getvalue(), progress=seen.append)
        self.assertEqual((made.name, made.layers), ("mine/small:1", 1))
        self.assertTrue(made.digest.startswith("sha256:"), made)
        for progress in seen:
            self.assertIsInstance(progress, dsec.Progress)
        self.assertIn("mine/small:1", [row.name for row in self.client.image_list()])
        self.assertIn(b'"digest"', self.client.image_inspect("mine/small:1").record)
        with self.client.create("mine/small:1") as sandbox:
            self.assertEqual(sandbox.exec(["/bin/sh", "-c", "echo in"]).stdout, b"in\n")
            with self.assertRaises(dsec.DsecConflictError):
                self.client.image_remove("mine/small:1")
        self.client.image_remove("mine/small:1")
        with self.assertRaises(dsec.DsecAbsentError):
            self.client.image_inspect("mine/small:1")
        with self.assertRaises(dsec.DsecInvalidError):
            self.client.image_import("mine", b"nothing" * 1000)
        self.assertNotIn("mine", [row.name for row in self.client.image_list()])

    def test_a_cancelled_import_leaves_nothing(self):
        async def body():
            async with dsec.aio.connect(self.address) as client:
                async def slow():
                    yield tar_of("a", "b")[:1024]
                    await asyncio.sleep(60)

                task = asyncio.create_task(client.image_import("half", slow()))
                await asyncio.sleep(0.3)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertNotIn("half", [row.name for row in await client.image_list()])

        asyncio.run(body())


if __name__ == "__main__":
    unittest.main()
