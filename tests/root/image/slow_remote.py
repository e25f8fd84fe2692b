"""A file system of one flat folder that answers reads when it is allowed to: FUSE, by hand."""
import os
import struct
import threading

from importer import libc, must

HEADER = struct.Struct("<IIQQIIIHH")
OUT = struct.Struct("<IiQ")
LOOKUP, FORGET, GETATTR, OPEN, READ, INIT, OPENDIR = 1, 2, 3, 14, 15, 26, 27
STATFS, RELEASE, INTERRUPT, BATCH_FORGET, RELEASEDIR = 17, 18, 36, 42, 29
ENOENT, ENOSYS = 2, 38


class SlowRemote:
    """Mounted at `place`; what it has is in `source`."""

    def __init__(self, source, place):
        self.source, self.place = source, place
        self.names, self.held, self.gate = {}, [], threading.Event()
        self.gate.set()
        self.lock, self.waiting = threading.Lock(), threading.Event()
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        place.mkdir(parents=True, exist_ok=True)
        must(libc.mount(b"slow", str(place).encode(), b"fuse", 0,
                        f"fd={self.fd},rootmode=40000,user_id=0,group_id=0".encode()))
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def shut(self):
        """Reads are answered no more."""
        self.waiting.clear()
        self.gate.clear()

    def open(self):
        with self.lock:
            self.gate.set()
            held, self.held = self.held, []
        for unique, body, node in held:
            self.read(unique, body, node)

    def close(self):
        """It is gone, whoever waits."""
        libc.umount2(str(self.place).encode(), 2)
        self.open()
        self.thread.join(timeout=10)
        os.close(self.fd)

    def answer(self, unique, data=b"", error=0):
        try:
            os.write(self.fd, OUT.pack(OUT.size + len(data), -error, unique) + data)
        except OSError:
            pass  # who asked has gone

    def attributes(self, node):
        if node == 1:
            size, mode = 0, 0o40755
        else:
            size, mode = (self.source / self.names[node]).stat().st_size, 0o100644
        return struct.pack("<QQQQQQIIIIIIIIII", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode,
                           1, 0, 0, 0, 4096, 0)

    def lookup(self, unique, name):
        if not (self.source / name).exists():
            self.answer(unique, error=ENOENT)
            return
        node = next((n for n, known in self.names.items() if known == name), len(self.names) + 2)
        self.names[node] = name
        self.answer(unique, struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + self.attributes(node))

    def read(self, unique, body, node):
        _, offset, size = struct.unpack_from("<QQI", body)
        with open(self.source / self.names[node], "rb") as file:
            self.answer(unique, os.pread(file.fileno(), size, offset))

    def take(self, opcode, unique, node, body):
        if opcode == INIT:
            self.answer(unique, struct.pack("<IIIIHHIIHHIIHH", 7, 31, 131072, 1, 64, 48, 131072, 1,
                                            32, 0, 0, 0, 0, 0).ljust(64, b"\0"))
        elif opcode == LOOKUP:
            self.lookup(unique, body.split(b"\0")[0].decode())
        elif opcode == GETATTR:
            self.answer(unique, struct.pack("<QII", 0, 0, 0) + self.attributes(node))
        elif opcode in (OPEN, OPENDIR):
            self.answer(unique, struct.pack("<QII", node, 1, 0))
        elif opcode == READ:
            with self.lock:
                if not self.gate.is_set():
                    self.held.append((unique, body, node))
                    self.waiting.set()
                    return
            self.read(unique, body, node)
        elif opcode in (RELEASE, RELEASEDIR):
            self.answer(unique)
        elif opcode not in (FORGET, BATCH_FORGET, INTERRUPT):
            self.answer(unique, error=ENOSYS)

    def serve(self):
        while True:
            try:
                request = os.read(self.fd, 1 << 18)
            except OSError as error:
                if error.errno in (2, 4):
                    continue
                return
            _, opcode, unique, node, *_ = HEADER.unpack_from(request)
            self.take(opcode, unique, node, request[HEADER.size:])
