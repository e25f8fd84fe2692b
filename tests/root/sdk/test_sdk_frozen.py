#!/usr/bin/env python3
"""An old client, a new engine: whoever speaks wire 1.0 (wire_1_0.py) is served by the engine of today.

Every op of 1.0, over both transports. A client of 1.0 reads the fields it knows and no others, so bodies
may be longer here; what it knows must lie where it lay.
"""
import os
import struct
import sys
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli")]
import wire_1_0 as wire  # noqa: E402
from test_cli_engine import PROGRAM, EngineFixture  # noqa: E402

P = PROGRAM.encode()


class FrozenTest:
    """The claims, for each transport."""

    client = None

    def setUp(self):
        super().setUp()
        self.c = self.client(self.socket)
        self.addCleanup(self.c.close)

    def last(self, op, payload=b"", **more):
        return self.c.call(op, payload, **more)[-1]

    def made(self, **more):
        events = self.c.call(wire.CREATE, wire.create(b"small", **more))
        self.assertEqual([(e.kind, e.code) for e in events], [(wire.CREATED, 0), (wire.DONE, 0)],
                         events[0].status)
        return events[0]

    def test_the_welcome_is_as_it_was(self):
        w = self.c.welcome
        self.assertEqual((w["magic"], w["major"], w["minor"], w["code"]), (wire.MAGIC, 1, 0, 0))
        self.assertGreaterEqual(w["op_count"], wire.OPS)
        self.assertEqual(w["shards"], 2)
        if self.client is wire.RingClient:
            self.assertGreaterEqual(w["request_bytes"], 128)
            self.assertGreaterEqual(w["event_bytes"], 64)
        for hello, versions in (
            ({"major": 2}, b"this engine speaks 1.0, the client 2.0 to 2.0\0"),
            ({"minor_min": 7, "minor_max": 9}, b"this engine speaks 1.0, the client 1.7 to 1.9\0"),
        ):
            refused = self.client(self.socket, **hello)
            self.assertEqual(refused.welcome["code"], wire.UNSUPPORTED)
            self.assertTrue(refused.welcome["text"].startswith(versions), refused.welcome["text"])
            refused.close()
        newer = self.client(self.socket, minor_max=9)
        self.assertEqual((newer.welcome["code"], newer.welcome["minor"]), (0, 0))
        newer.close()

    def test_requests_without_a_sandbox(self):
        self.assertEqual(self.last(wire.NOP).code, 0)
        caps = self.last(wire.CAPABILITIES)
        self.assertEqual((caps.code, caps.u32(4), caps.u64(16)), (0, 2, self.c.welcome["epoch"]))
        check = self.last(wire.CHECK)
        self.assertEqual((check.code, check.u64(8)), (0, 0))
        rows = self.c.call(wire.IMAGE, wire.image(2))
        self.assertEqual([e.text(56) for e in rows[:-1]], [b"small"])
        self.assertEqual(self.last(wire.IMAGE, wire.image(3, b"nonesuch")).code, wire.ABSENT)

    def test_a_sandbox_lives(self):
        made = self.made(env=[b"A=b"], labels=[b"k", b"v"], ttl_s=7200)
        self.assertEqual((made.u32(4), made.u32(44)), (1, 7200))
        row = self.c.call(wire.LIST, wire.listing())[0]
        self.assertEqual((row.kind, row.u32(4), row.text(64)), (wire.ROW, 2, b"small"))
        self.assertEqual(struct.unpack_from("<QQ", row.payload, 8), made.subject)
        stats = self.c.call(wire.STATS, wire.select_ids([made.subject]))[0]
        self.assertEqual((stats.kind, stats.u32(4)), (wire.ROW, 1))
        changed = self.c.call(wire.CHANGE, wire.change([made.subject], 300))
        self.assertEqual((changed[0].kind, changed[0].subject, changed[-1].code),
                         (wire.ROW, made.subject, 0))
        inspected = self.last(wire.INSPECT, subject=made.subject)
        self.assertEqual((inspected.u32(4), inspected.u32(128 + 44)), (2, 300))
        self.assertEqual(self.last(wire.DESTROY, subject=made.subject).code, 0)
        self.assertEqual(self.last(wire.DESTROY, wire.select_ids([made.subject])).code, 0)
        self.assertEqual(len(self.c.call(wire.LIST, wire.listing())), 1)

    def test_a_program_runs_and_its_result_is_where_it_was(self):
        made = self.made(env=[b"A=b"])
        events = self.c.call(wire.EXEC, wire.run([P, b"show", b"x"], cwd=b"/tmp", user=b"7:8"),
                             subject=made.subject)
        kinds = [(e.kind, e.stream) for e in events]
        self.assertEqual(kinds, [(wire.STARTED, 0), (wire.DATA, 1), (wire.DATA, 2), (wire.DONE, 0)])
        self.assertEqual((events[1].payload, events[2].payload), (b"x|b|/tmp|7|8\n", b"to stderr\n"))
        end = events[-1]
        self.assertEqual((end.code, end.u32(4), end.u32(8), end.exec), (0, wire.EXIT, 0, 1))
        self.assertEqual(struct.unpack_from("<IIQQQ", end.payload, 48), (1, 0, 13, 13, 0))
        absent = self.last(wire.EXEC, wire.run([b"/nonesuch"]), subject=made.subject)
        self.assertEqual((absent.u32(4), absent.u32(8)), (7, 127))
        self.assertEqual(absent.status[4], "argv0")

    def test_streams_go_in_and_out_by_offset_and_credit(self):
        made, data = self.made(), os.urandom(100_000)
        ticket = self.c.ask(wire.EXEC, wire.run([P, b"copy"], wire.STREAMED | wire.INPUT_STREAM),
                            subject=made.subject)
        got, sent, inputs = b"", 0, []
        self.assertEqual(self.c.next(ticket).kind, wire.STARTED)
        while True:
            if sent <= len(data) and (not inputs or self.c.waiting.get(inputs[-1])):
                piece = data[sent:sent + 9000]
                inputs.append(self.c.ask(wire.INPUT, piece, numbers=[ticket], offset=sent))
                sent += len(piece) or len(data) + 1
            event = self.c.next(ticket) if self.c.waiting.get(ticket) else self.turn()
            if not event:
                continue
            if event.flags & wire.LAST:
                break
            self.assertEqual((event.kind, event.stream, event.offset), (wire.DATA, 1, len(got)))
            got += event.payload
            self.c.ask(wire.CREDIT, numbers=[ticket, 1, len(got)])
        self.assertEqual((event.code, event.u32(4), got == data), (0, wire.EXIT, True))
        self.assertEqual({self.c.rest(one)[-1].code for one in inputs}, {0})

    def turn(self):
        """Whatever comes is put where it belongs."""
        event = self.c.receive()
        if event:
            self.c.waiting.setdefault(event.ticket, []).append(event)

    def test_detached_programs_terminals_and_signals(self):
        made = self.made()
        asked = {"subject": made.subject}
        end = self.last(wire.EXEC, wire.run([P, b"slow", b"0"], wire.DETACH), **asked)
        self.assertEqual((end.code, end.u32(4), end.exec), (0, wire.RUNNING, 1))
        self.c.call(wire.ATTACH, wire.attach(), exec=1, **asked)  # until it ended
        events = self.c.call(wire.ATTACH, wire.attach(out=2), exec=1, **asked)
        out = [e for e in events if e.kind == wire.DATA]
        self.assertEqual([(e.kind, e.offset, e.code, e.status) for e in events[:2]],
                         [(wire.STARTED, 0, 0, None), (wire.DATA, 2, 0, None)])
        self.assertEqual(b"".join(e.payload for e in out), b"gun\nended\n")
        self.assertEqual((events[-1].u32(4), events[-1].u32(8)), (wire.EXIT, 7))
        self.last(wire.EXEC, wire.run([P, b"terminal"], wire.DETACH | wire.TTY), **asked)
        ticket = self.c.ask(wire.ATTACH, wire.attach(), exec=2, **asked)
        self.until(ticket, b"24x80")
        self.assertEqual(self.last(wire.RESIZE, exec=2, numbers=[31, 99], **asked).code, 0)
        self.until(ticket, b"31x99")
        rows = self.c.call(wire.LIST, wire.listing(what=1), **asked)[:-1]
        self.assertEqual([(r.u64(24), r.u32(4)) for r in rows], [(1, wire.EXIT), (2, wire.RUNNING)])
        self.assertEqual(self.last(wire.SIGNAL, exec=2, numbers=[9, wire.ALL], **asked).code, 0)
        end = self.c.rest(ticket)[-1]
        self.assertEqual((end.u32(4), end.u32(12)), (wire.KILLED, 9))
        self.assertEqual(self.last(wire.SIGNAL, exec=2, numbers=[9], **asked).code, wire.CONFLICT)

    def until(self, ticket, text):
        seen, end = b"", time.monotonic() + wire.WAIT_S
        while text not in seen and time.monotonic() < end:
            event = self.c.next(ticket)
            self.assertFalse(event.flags & wire.LAST, seen)
            seen += event.payload if event.kind == wire.DATA else b""
        self.assertIn(text, seen)

    def test_files_and_ports(self):
        made = self.made(network=2)
        asked = {"subject": made.subject}
        written = self.last(wire.FILE, wire.file(2, b"/tmp/f", b"content"), **asked)
        self.assertEqual((written.code, written.u64(8)), (0, 7))
        events = self.c.call(wire.FILE, wire.file(1, b"/tmp/f"), **asked)
        self.assertEqual([(e.kind, e.stream, e.payload) for e in events[:-1]],
                         [(wire.DATA, 1, b"content")])
        row = self.c.call(wire.FILE, wire.file(4, b"/tmp"), **asked)[0]
        self.assertEqual((row.u32(4), row.u64(40), row.text(64)), (1, 7, b"f"))
        end = self.last(wire.FILE, wire.file(1, b"/none"), **asked)
        self.assertEqual((end.error, end.status[4]), (2, "file.open"))
        end = self.last(wire.PORT, wire.port(80), **asked)
        self.assertEqual((end.code, end.u32(8)), (0, 80))
        self.assertTrue(end.payload[16:].startswith(b"127.0.0.1:"))

    def test_a_cancelled_request_ends_as_such(self):
        made = self.made()
        ticket = self.c.ask(wire.EXEC, wire.run([P, b"sleep"], wire.STREAMED), subject=made.subject)
        self.assertEqual(self.c.next(ticket).kind, wire.STARTED)
        self.assertEqual(self.last(wire.CANCEL, numbers=[ticket]).code, 0)
        self.assertEqual(self.c.rest(ticket)[-1].code, wire.CANCELLED)

    def test_the_same_request_id_is_answered_from_the_record(self):
        now = self.c.welcome["clock_ms"]
        name = now.to_bytes(6, "big") + b"\x70" + os.urandom(1) + b"\x80" + os.urandom(7)
        first = self.c.call(wire.CREATE, wire.create(b"small"), request_id=name)[0]
        again = self.c.call(wire.CREATE, wire.create(b"small"), request_id=name)
        self.assertEqual((again[0].subject, again[-1].code), (first.subject, 0))
        self.assertTrue(again[-1].flags & wire.REPLAYED)
        other = self.last(wire.EXEC, wire.run([P]), subject=first.subject, request_id=name)
        self.assertEqual(other.code, wire.CONFLICT)

    def test_what_is_unknown_is_answered_and_cuts_nobody_off(self):
        made = self.made()
        for op in (wire.REGION, wire.STDIO, 255, 4000, 65535):
            self.assertEqual(self.last(op).code, wire.UNSUPPORTED, op)
        self.assertEqual(self.last(wire.NOP, flags=1 << 15).code, wire.INVALID)
        self.assertEqual(self.last(wire.CREATE, wire.create(b"small", flags=1 << 31)).code, wire.INVALID)
        self.assertEqual(self.last(wire.EXEC, wire.run([P], 1 << 31), subject=made.subject).code,
                         wire.INVALID)
        body = wire.create(b"", size=200 + 64)
        for tail, code in ((bytes(64), wire.ABSENT), (bytes(63) + b"\1", wire.INVALID)):
            # Its image stands behind the tail.
            longer = bytearray(body + tail + b"nonesuch")
            struct.pack_into("<II", longer, 16, 264, 8)
            self.assertEqual(self.last(wire.CREATE, bytes(longer)).code, code)
        # An older client's struct is shorter: what it does not have is the default.
        shorter = bytearray(struct.pack("<IIIIII", 24, 1, 0, 0, 24, 5) + b"small")
        self.assertEqual(self.c.call(wire.CREATE, bytes(shorter))[0].code, 0)
        self.assertEqual(self.last(wire.NOP).code, 0)


class FrozenStreamTest(FrozenTest, EngineFixture):
    client = wire.StreamClient


class FrozenRingTest(FrozenTest, EngineFixture):
    client = wire.RingClient


if __name__ == "__main__":
    unittest.main()
