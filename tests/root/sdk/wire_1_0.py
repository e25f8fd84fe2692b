"""A client of wire 1.0, as the first engines spoke it: a copy of its numbers, not the header of today.

Nothing in here follows a change of ring.h. What an engine of today answers to it is what it will answer
to a client that was built into somebody's image years ago: see test_sdk_frozen.py.
"""
import mmap
import os
import select
import socket
import struct
import time

MAGIC = 0x474E495243455344
HELLO = struct.Struct("<QHHHHQQIII84x")
WELCOME = struct.Struct("<QHHIQQQQQQIIIIIIIIIIIIIII68x64s")
STEP = struct.Struct("<QII")
REQUEST = struct.Struct("<Q16sQQHHIQQQII4Q16x")
EVENT = struct.Struct("<QHHHHQQQQiHHII")
STATUS = struct.Struct("<IIiI32s80s")
WELCOME_FIELDS = (
    "magic major minor code features epoch clock_ms memory_bytes arena_at arena_bytes channels shards "
    "request_bytes event_bytes op_count buffer_bytes_min channel_at channel_bytes submission_entries "
    "completion_entries buffer_entries submission_at completion_at buffer_at stream_payload_max text"
).split()
EVENT_FIELDS = "ticket kind flags code blame hi lo exec offset error stream index bytes buffer".split()

RING, STREAM = 1, 2
(NOP, CANCEL, CAPABILITIES, CREATE, DESTROY, EXEC, LIST, STATS, IMAGE, CHECK, INPUT, ATTACH, SIGNAL, RESIZE,
 CREDIT, FILE, CHANGE, PORT, INSPECT) = range(19)
OPS = INSPECT + 1
REGION, STDIO = 0x100, 0x101
OK, REFUSED, INVALID, DENIED, ABSENT, CONFLICT, UNSUPPORTED, DEADLINE, CANCELLED = range(9)
DONE, CREATED, STARTED, DATA, GAP, ROW, PROGRESS = range(7)
LAST, REPLAYED, HAS_STATUS, TAIL = 1, 2, 4, 8
CAPTURE, MERGE, STREAMED, INPUT_STREAM, DETACH, TTY = 1, 2, 4, 8, 16, 32
RUNNING, EXIT, KILLED = 0, 1, 6
ALL = 1 << 8
WAIT_S = 60


class Payload:
    """A struct of the wire and what it refers to."""

    def __init__(self, layout, *values):
        self.layout, self.values, self.tail = struct.Struct("<" + layout), list(values), b""

    def place(self, data):
        at = self.layout.size + len(self.tail)
        self.tail += data
        return at, len(data)

    def ref(self, data):
        self.values += self.place(data) if data else (0, 0)
        return self

    def items(self, texts):
        packed = b"".join(struct.pack("<I", len(text)) + text for text in texts)
        self.values += (*self.place(packed), len(texts), 0)
        return self

    def add(self, *values):
        self.values += values
        return self

    def bytes(self):
        return self.layout.pack(*self.values) + self.tail


def create(image, count=1, network=0, flags=0, env=(), labels=(), ttl_s=0, size=200):
    payload = Payload("IIII10I4I4I2QQQQ6IQQ2I3Q", size, count, flags, network)
    payload.ref(image).ref(b"").ref(b"").ref(b"").ref(b"").items(env).items(labels)
    return payload.add(0, 0, 0, 0, 0, 0, 0, 0, ttl_s, 0, 0, 0, 0, 0, 0, 0, 0, 0).bytes()


def select_ids(ids):
    payload = Payload("II2I4I2Q4Q", 80, len(ids))
    payload.ref(b"".join(struct.pack("<QQ", *one) for one in ids))
    return payload.items(()).add(*[0] * 6).bytes()


def run(argv, flags=CAPTURE, env=(), cwd=b"", user=b"", size=144):
    payload = Payload("II4I4I6I2Q2I2I2HIQ2Q2Q", size, flags).items(argv).items(env)
    payload.ref(cwd).ref(user).ref(b"").add(0, 0, 0, 0).ref(b"")
    return payload.add(*((24, 80) if flags & TTY else (0, 0)), 0, 0, 0, 0, 0, 0).bytes()


def attach(flags=0, out=0, err=0):
    return struct.pack("<IIQQQ32x", 64, flags, 0, out, err)


def file(verb, path, content=b"", flags=0, limit=0):
    payload = Payload("6I8I2Q6Q", 120, verb, flags, 0, limit, 0)
    return payload.ref(path).ref(b"").ref(b"").ref(content).add(*[0] * 8).bytes()


def change(ids, ttl_s):
    payload = Payload("II2I4I2Q4QIIII4I4I4Q", 160, len(ids))
    payload.ref(b"".join(struct.pack("<QQ", *one) for one in ids))
    return payload.items(()).add(*[0] * 6, 1, ttl_s, 0, 0).items(()).items(()).add(*[0] * 4).bytes()


def listing(limit=0, what=0):
    return Payload("II2I4III3Q", 64, limit).ref(b"").items(()).add(what, 0, 0, 0, 0).bytes()


def image(verb, name=b""):
    return Payload("4I2I6Q", 72, verb, 0, 0).ref(name).add(*[0] * 6).bytes()


def port(number):
    return struct.pack("<4I32x", 48, 0, number, 0)


class Event:
    def __init__(self, entry, payload):
        for name, value in zip(EVENT_FIELDS, EVENT.unpack(entry)):
            setattr(self, name, value)
        self.subject, self.payload, self.status = (self.hi, self.lo), payload, None
        if self.flags & HAS_STATUS:
            self.payload, status = payload[:-STATUS.size], STATUS.unpack(payload[-STATUS.size:])
            self.status = [field.rstrip(b"\0").decode() if isinstance(field, bytes) else field
                           for field in status]

    def u32(self, at):
        return struct.unpack_from("<I", self.payload, at)[0]

    def u64(self, at):
        return struct.unpack_from("<Q", self.payload, at)[0]

    def text(self, at):
        """What the reference at that place of the body refers to."""
        start, size = struct.unpack_from("<II", self.payload, at)
        return self.payload[start:start + size]


class Client:
    """What both transports have in common."""

    transport = None

    def __init__(self, path, **hello):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(str(path))
        self.tickets, self.waiting = 0, {}
        fields = {"magic": MAGIC, "major": 1, "minor_min": 0, "minor_max": 0, "features": 0,
                  "arena_bytes": 0, "requests_max": 0, "channels": 0} | hello
        self.socket.sendall(HELLO.pack(
            fields["magic"], fields["major"], fields["minor_min"], fields["minor_max"], self.transport,
            fields["features"], fields["arena_bytes"], fields["requests_max"], fields["channels"], 0))
        answer, self.descriptors, _, _ = socket.recv_fds(self.socket, WELCOME.size, 16)
        answer += self.exactly(WELCOME.size - len(answer))
        self.welcome = dict(zip(WELCOME_FIELDS, WELCOME.unpack(answer)))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the engine closed the connection")
            data += piece
        return data

    def ask(self, op, payload=b"", subject=(0, 0), numbers=(), **more):
        """Sends a request; its ticket."""
        self.tickets += 1
        numbers = (*numbers, 0, 0, 0, 0)[:4]
        entry = [self.tickets, more.get("request_id", bytes(16)), *subject, op, more.get("flags", 0),
                 more.get("timeout_ms", 0), more.get("exec", 0), more.get("offset", 0), 0, len(payload), 0,
                 *numbers]
        self.submit(entry, payload)
        return self.tickets

    def next(self, ticket):
        """The next event of that request."""
        end = time.monotonic() + WAIT_S
        while not self.waiting.get(ticket):
            if time.monotonic() > end:
                raise TimeoutError(f"no event of {ticket}")
            event = self.receive()
            if event:
                self.waiting.setdefault(event.ticket, []).append(event)
        return self.waiting[ticket].pop(0)

    def rest(self, ticket):
        """All events to the last one."""
        events = [self.next(ticket)]
        while not events[-1].flags & LAST:
            events.append(self.next(ticket))
        return events

    def call(self, op, payload=b"", **more):
        return self.rest(self.ask(op, payload, **more))

    def close(self):
        self.socket.close()
        for fd in self.descriptors:
            os.close(fd)


class StreamClient(Client):
    transport = STREAM

    def submit(self, entry, payload):
        self.socket.sendall(REQUEST.pack(*entry) + payload)

    def receive(self):
        entry = self.exactly(EVENT.size)
        return Event(entry, self.exactly(struct.unpack_from("<I", entry, 56)[0]))


class RingClient(Client):
    transport = RING
    TAIL_AT, HEAD_AT, COMPLETION_TAIL_AT, COMPLETION_HEAD_AT, BUFFER_TAIL_AT = 0, 128, 256, 384, 512
    BUFFER_BYTES = 16384

    def __init__(self, path, **hello):
        super().__init__(path, **hello)
        w = self.welcome
        self.memory = None
        if w["code"]:
            return
        self.memory = mmap.mmap(self.descriptors[0], w["memory_bytes"])
        self.socket.sendall(STEP.pack(MAGIC, 1, 0))
        if STEP.unpack(self.exactly(STEP.size)) != (MAGIC, 2, 0):
            raise ConnectionError("the engine did not say go")
        self.words = memoryview(self.memory).cast("I")
        self.submitted = self.completed = self.posted = 0
        self.payload_at, self.payload_end = 0, w["arena_bytes"] // 2
        self.places = []
        for at in range(min(w["buffer_entries"], w["arena_bytes"] // 2 // self.BUFFER_BYTES)):
            self.post(self.payload_end + at * self.BUFFER_BYTES)

    def word(self, at, value=None):
        index = (self.welcome["channel_at"] + at) // 4
        if value is not None:
            self.words[index] = value & 0xFFFFFFFF
        return self.words[index]

    def put(self, ring_at, entries, stride, number, data):
        at = self.welcome["channel_at"] + ring_at + number % entries * stride
        self.memory[at:at + len(data)] = data

    def post(self, at):
        w = self.welcome
        self.put(w["buffer_at"], w["buffer_entries"], 16, self.posted,
                 struct.pack("<QII", at, self.BUFFER_BYTES, 0))
        self.places.append(at)
        self.posted += 1
        self.word(self.BUFFER_TAIL_AT, self.posted)

    def submit(self, entry, payload):
        w = self.welcome
        if payload:
            if self.payload_at + len(payload) > self.payload_end:
                self.payload_at = 0  # one at a time, and few: what was there is taken
            entry[9] = self.payload_at
            at = w["arena_at"] + self.payload_at
            self.memory[at:at + len(payload)] = payload
            self.payload_at += (len(payload) + 7) // 8 * 8
        self.put(w["submission_at"], w["submission_entries"], w["request_bytes"], self.submitted,
                 REQUEST.pack(*entry))
        self.submitted += 1
        self.word(self.TAIL_AT, self.submitted)
        os.eventfd_write(self.descriptors[1], 1)

    def receive(self):
        w = self.welcome
        if self.word(self.COMPLETION_TAIL_AT) == self.completed & 0xFFFFFFFF:
            if select.select([self.socket], [], [], 0.0005)[0] and not self.socket.recv(1):
                raise ConnectionError("the engine closed the connection")
            return None
        at = (w["channel_at"] + w["completion_at"]
              + self.completed % w["completion_entries"] * w["event_bytes"])
        entry = self.memory[at:at + EVENT.size]
        size, number = struct.unpack_from("<II", entry, 56)
        payload = b""
        if size:
            place = self.places[number]
            payload = self.memory[w["arena_at"] + place:w["arena_at"] + place + size]
            self.post(place)
        self.completed += 1
        self.word(self.COMPLETION_HEAD_AT, self.completed)
        return Event(entry, payload)

    def close(self):
        if self.memory:
            self.words.release()
            self.memory.close()
        super().close()

