#!/usr/bin/env python3
"""Tars that no tool writes: each is refused by reason, and by its entry where it has one."""
import unittest

from importer import (DONE, FAILED, TREE, Import, directory, entry, hard, link, mounted,
                      mounts_of_our_own, raw, tar)

END = bytes(1024)


def whole(data):
    return data + bytes(-len(data) % 512)


def record(key, value):
    text = b" " + key.encode() + b"=" + value + b"\n"
    length = len(text)
    while len(str(length)) + len(text) != length:
        length = len(str(length)) + len(text)
    return str(length).encode() + text


def pax(*records, after=raw("it", 1) + whole(b"x")):
    body = b"".join(records)
    return raw("PaxHeader", len(body), kind=b"x") + whole(body) + after + END


def with_field(header, at, value):
    head = bytearray(header)
    head[at:at + len(value)] = value
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + END


def long_name(kind, size, body, after=raw("x")):
    return raw("././@LongLink", size, kind=kind) + body + after + END


def sparse(version, map_text, size=b"100", name=b"sp", data=20):
    major, minor = version.encode().split(b".")
    what = [record("GNU.sparse.major", major), record("GNU.sparse.minor", minor),
            record("GNU.sparse.name", name)]
    if version == "1.0":
        body = whole(map_text) + b"y" * data
        return pax(*what, record("GNU.sparse.realsize", size),
                   after=raw("x", len(body)) + whole(body))
    return pax(*what, record("GNU.sparse.size", size), record("GNU.sparse.map", map_text),
               after=raw("x", data) + whole(b"y" * data))


# What it is: the tar, words of the reason, the end of the entry's name.
CASES = {
    "a record without a length": (pax(b"xx path=x\n"), "malformed pax", "it"),
    "a record of no bytes": (pax(b"0 path=x\n"), "malformed pax", "it"),
    "a record longer than the header": (pax(b"999 path=x\n"), "malformed pax", "it"),
    "a record shorter than it is": (pax(b"5 path=x\n"), "malformed pax", "it"),
    "a record without =": (pax(b"7 path\n"), "pax", "it"),
    "a record whose length overflows": (pax(b"9" * 20 + b" path=x\n"), "Rejecting pax", "it"),
    "a header of a gigabyte": (raw("PaxHeader", 1 << 30, kind=b"x") + END, "too large", ""),
    "a header of nothing": (pax(record("path", b"x"), after=b""), "Damaged", ""),
    "a negative pax size": (pax(record("size", b"-1")), "negative", ""),
    "a pax size that overflows": (pax(record("size", b"9" * 23)), "overflow", ""),
    "the largest pax size": (pax(record("size", b"9223372036854775807")), "overflow", ""),
    "a pax owner beyond": (pax(record("uid", b"70000")), "an owner beyond 65535", "it"),
    "a negative pax owner": (pax(record("uid", b"-5")), "an owner beyond 65535", "it"),
    "a pax owner that overflows": (pax(record("gid", b"9" * 20)), "an owner beyond 65535", "it"),
    "a pax path out": (pax(record("path", b"../x")), 'a name with ".."', "../x"),
    "an absolute pax path": (pax(record("path", b"/etc/x")), "an absolute name", "/etc/x"),
    "a link that is too long": (pax(record("linkpath", b"a" * 5000), after=raw("l", kind=b"2")),
                                "an impossible target", "l"),
    "a long name without an entry": (long_name(b"L", 300, whole(b"n" * 300), b""), "Damaged", ""),
    "a long name that is cut off": (long_name(b"L", 300, b"n" * 200, b"")[:-1024], "damaged", ""),
    "a name of 100000 bytes": (long_name(b"L", 100000, whole(b"n" * 100000)), "over 255", "nnnn"),
    "a name of gigabytes": (long_name(b"L", 1 << 32, END), "too large", ""),
    "a long name out": (long_name(b"L", 12, whole(b"../../../etc")), 'a name with ".."', "etc"),
    "a long link": (long_name(b"K", 5000, whole(b"n" * 5000), raw("x", kind=b"2")),
                    "an impossible target", "x"),
    "a negative size": (with_field(raw("x"), 124, b"\xff" * 12), "negative", ""),
    "the least size": (with_field(raw("x"), 124, b"\xff" + bytes(11)), "negative", ""),
    "the largest size": (with_field(raw("x"), 124, b"\x80" + b"\xff" * 11), "overflow", ""),
    "a size that is no number": (with_field(raw("x"), 124, b"z" * 11 + b"\0"), "Unrecognized", ""),
    "a negative owner": (with_field(raw("x"), 108, b"\xff" * 8), "an owner beyond 65535", "x"),
    "no name": (raw("") + END, "without a name", ""),
    "a hard link to nothing": (with_field(raw("x", kind=b"1"), 157, b"y"), "to nothing", "x"),
    "a hard link without a name": (raw("x", kind=b"1") + END, "unknown kind", "x"),
    "a hard link out": (with_field(raw("x", kind=b"1"), 157, b"../y"), 'a name with ".."', "../y"),
    "a hard link to itself": (raw("x") + with_field(raw("x", kind=b"1"), 157, b"x"), "to itself",
                              "x"),
    "a link to no name": (raw("x", kind=b"2") + END, "an impossible target", "x"),
    "one volume of several": (raw("x", 512, kind=b"M") + END, "unknown kind", "x"),
    "parts over each other": (sparse("1.0", b"2\n0\n10\n5\n10\n"), "over each other", "sp"),
    "parts out of order": (sparse("1.0", b"2\n50\n10\n0\n10\n"), "over each other", "sp"),
    "parts behind the end": (sparse("1.0", b"2\n0\n10\n1000\n10\n"), "", "sp"),
    "more parts than can be": (sparse("1.0", b"99999999999\n"), "", ""),
    "a negative part": (sparse("1.0", b"1\n-5\n20\n"), "", ""),
    "an old map over itself": (sparse("0.1", b"0,10,5,10"), "", "sp"),
    "an old map behind the end": (sparse("0.1", b"0,10,1000,10"), "", "sp"),
    "an old map with a negative part": (sparse("0.1", b"-5,10"), "", "sp"),
    "a sparse name out": (sparse("1.0", b"1\n0\n5\n", b"5", b"../sp", 5), 'a name with ".."', "sp"),
    "a negative sparse size": (sparse("1.0", b"1\n0\n5\n", b"-5", data=5), "a negative size", "sp"),
}


class MalformedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        mounts_of_our_own()

    def run_on(self, data):
        run = Import(data, TREE)
        self.addCleanup(run.remove)
        return run

    def check_refused(self, data, reason="", name=""):
        run = self.run_on(data)
        self.assertEqual(run.last.get("kind"), FAILED, run.last)
        self.assertNotEqual(run.exit, 0)
        self.assertNotIn("killed", run.last["reason"])
        self.assertTrue(run.last["reason"])
        self.assertIn(reason, run.last["reason"])
        self.assertTrue(run.last["name"].endswith(name), run.last)
        self.assertFalse(run.image.exists())
        self.assertEqual(list(run.images.iterdir()), [], "nothing is in the store")

    def test_each_is_refused_by_entry_and_reason(self):
        for what, (data, reason, name) in CASES.items():
            with self.subTest(what):
                self.check_refused(data, reason, name)

    def test_a_tar_cut_off_at_any_block_is_refused(self):
        good = tar(directory("d"), entry("d/f", b"x" * 1500), link("l", "d"), hard("h", "d/f"),
                   entry("n" * 150, b"y"))
        last = len(good.rstrip(b"\0")) + 511 & -512  # then come blocks of the end's marker
        for cut in range(512, last + 1, 512):
            with self.subTest(cut):
                self.check_refused(good[:cut])
        self.assertEqual(self.run_on(good[:last + 1024]).last["kind"], DONE)

    def test_a_nul_ends_a_name_and_the_last_of_one_name_counts(self):
        data = (raw(b"a\0b") + pax(record("path", b"c\0d"))[:-1024] +
                tar(entry("a", b"12"), entry("a", b"123")))
        run = self.run_on(data)
        self.assertEqual(run.last["kind"], DONE, run.last)
        with mounted(run.image) as root:
            self.assertEqual(sorted(path.name for path in root.iterdir()), ["a", "c", "dev"])
            self.assertEqual((root / "a").read_bytes(), b"123")


if __name__ == "__main__":
    unittest.main()
