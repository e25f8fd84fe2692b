#!/usr/bin/env python3
"""A connection belongs to the process that opened it: in a child every function says so.

The functions are those of the symbol map, their parameters those of the headers: one that is added is
tested from that day on. Ones that need no connection work in a child as anywhere.
"""
import ctypes
import errno
import os
import re
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[2]
sys.path[:0] = [str(HERE.parent / "cli"), str(TOP / "tests/check")]
from source import code_only  # noqa: E402
from symbols import mapped, whole  # noqa: E402
from test_cli_engine import BUILD, EngineFixture  # noqa: E402

# What works in a child, and why.
NEEDS_NOTHING = {
    "dsec_open": "makes a connection of the child's own",
    "dsec_id_parse": "text alone", "dsec_id_print": "text alone", "dsec_error": "text alone",
    "dsec_close": "closes what the child inherited, and nothing else",
    "dsec_event_free": "does nothing there", "dsec_queue_free": "does nothing there",
    "dsec_queue_wake": "does nothing there",
}


def functions():
    """{name: (what it returns, its first parameter)} as the headers declare them."""
    text = code_only(whole(TOP / "sdk/include/dsec/dsec.h"))
    found = re.findall(r"^(\w[\w \t]*[ *])(dsec_\w+)\s*\(([^()]*?)[,)]", text, re.M)
    return {name: (result.strip(), first.strip()) for result, name, first in found}


class ForkTest(EngineFixture):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lib = ctypes.CDLL(str(next((BUILD / "sdk").glob("libdsec.so.?"))))
        for name in ("dsec_error", "dsec_queue_wake"):
            getattr(cls.lib, name).restype = ctypes.c_char_p if name == "dsec_error" else None

    def open(self):
        class Opts(ctypes.Structure):
            _fields_ = [("size", ctypes.c_uint32), ("channels", ctypes.c_uint32),
                        ("address", ctypes.c_char_p)]

        d = ctypes.c_void_p()
        opts = Opts(ctypes.sizeof(Opts), 0, self.address.encode())
        self.assertEqual(self.lib.dsec_open(ctypes.byref(opts), ctypes.byref(d)), 0)
        return d

    def in_child(self, claim):
        """What the claim returned in a child: a short text."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            said = b"it did not return"
            try:
                said = str(claim()).encode()
            except BaseException as error:
                said = repr(error).encode()
            finally:
                os.write(writer, said)
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read().decode()
        _, status = os.waitpid(child, 0)
        return said if status == 0 else f"status {status}"

    def test_every_function_of_the_map_refuses_a_connection_of_the_parent(self):
        text = (TOP / "sdk/dsec.map").read_text()
        names, declared = {name for name, _ in mapped(text)}, functions()
        self.assertEqual(names - set(declared), set())
        self.assertGreater(len(names), 30)
        d, q = self.open(), ctypes.c_void_p()
        self.assertEqual(self.lib.dsec_queue_new(d, ctypes.byref(q)), 0)
        for name in sorted(names - set(NEEDS_NOTHING)):
            result, first = declared[name]
            given = q if "dsec_queue" in first else d
            self.assertRegex(first, r"struct dsec(_queue)? ?\*", name)
            function = getattr(self.lib, name)
            function.restype = ctypes.c_int64 if result == "int64_t" else ctypes.c_int
            # The refusal comes before anything else is looked at.
            said = self.in_child(lambda f=function, g=given: f(g, *[ctypes.c_uint64(0)] * 7))
            with self.subTest(name):
                self.assertEqual(said, str(-errno.EOWNERDEAD))
        self.lib.dsec_close(d)

    def test_what_needs_no_connection_works_in_a_child_and_the_parent_is_not_disturbed(self):
        d, q = self.open(), ctypes.c_void_p()
        self.lib.dsec_queue_new(d, ctypes.byref(q))

        def child():
            self.lib.dsec_queue_wake(q)
            self.lib.dsec_queue_free(q)
            self.lib.dsec_event_free(None)
            self.lib.dsec_close(d)
            own = self.open()
            caps = ctypes.c_void_p()
            good = self.lib.dsec_capabilities(own, ctypes.byref(caps)) == 0
            self.lib.dsec_close(own)
            return good

        self.assertEqual(self.in_child(child), "True")
        caps = ctypes.c_void_p()
        self.assertEqual(self.lib.dsec_capabilities(d, ctypes.byref(caps)), 0)
        ticket = self.lib.dsec_check
        ticket.restype = ctypes.c_int64
        event = ctypes.c_void_p()
        self.assertEqual(self.lib.dsec_wait(d, ctypes.c_int64(ticket(d, None)), 20000,
                                            ctypes.byref(event)), 0)
        self.lib.dsec_event_free(event)
        self.lib.dsec_close(d)

    def test_the_library_starts_no_thread_and_takes_no_signal(self):
        def state():
            status = Path("/proc/self/status").read_text()
            return (len(os.listdir("/proc/self/task")),
                    re.findall("^Sig(?:Blk|Ign|Cgt):.*$", status, re.M))

        before = state()
        d, q, event = self.open(), ctypes.c_void_p(), ctypes.c_void_p()
        self.assertEqual(self.lib.dsec_queue_new(d, ctypes.byref(q)), 0)
        self.assertGreater(self.lib.dsec_queue_fd(q), 0)
        self.lib.dsec_check.restype = ctypes.c_int64
        ticket = ctypes.c_int64(self.lib.dsec_check(d, None))
        self.assertEqual(self.lib.dsec_wait(d, ticket, 20000, ctypes.byref(event)), 0)
        self.assertEqual(state(), before)
        self.lib.dsec_event_free(event)
        self.lib.dsec_close(d)
        self.assertEqual(state(), before)

    def test_shared_memory_is_not_in_a_child(self):
        """MADV_DONTFORK: a child cannot touch the rings, whatever it does."""
        d = self.open()

        def rings():
            maps = Path("/proc/self/maps").read_text()
            return sum("memfd:" in line and "rw-s" in line for line in maps.splitlines())

        self.assertGreater(rings(), 0)
        self.assertEqual(self.in_child(rings), "0")
        self.lib.dsec_close(d)


if __name__ == "__main__":
    unittest.main()
