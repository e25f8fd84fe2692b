"""Archives of every kind, and dsec-import run on them as the engine runs it."""
import contextlib
import ctypes
import gzip
import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
from pathlib import Path

BUILD = Path(os.environ["DSEC_BUILD"])
PROGRAM = BUILD / "engine/dsec-import"
AUTO, TREE, ARCHIVE = range(3)
PROGRESS, DONE, FAILED = 1, 2, 3
FRAME = struct.Struct("<IiIIQQQIIQQ24s80s256s72s")
FIELDS = ("kind", "error", "layers", "layers_total", "files", "bytes", "read_bytes",
          "dropped_nodes", "dropped_xattrs", "new_bytes", "shared_bytes", "step", "reason", "name", "digest")
FOOTER_BYTES = 64
CLONE_NEWNS, MS_RDONLY, MS_REC, MS_PRIVATE = 0x20000, 1, 0x4000, 0x40000
libc = ctypes.CDLL(None, use_errno=True)


def must(result):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def mounts_of_our_own():
    must(libc.unshare(CLONE_NEWNS))
    must(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))


def segments_of(image):
    """Digests of the segments that an image's table of devices names, in its order."""
    data = Path(image).read_bytes()
    count, slot = struct.unpack_from("<HH", data, 1024 + 86)
    return [data[at:at + 64].decode() for at in range(slot * 128, (slot + count) * 128, 128)]


@contextlib.contextmanager
def mounted(image, images=None):
    """The image as the kernel shows it. images: where its store is, beside it by default."""
    place = tempfile.mkdtemp(prefix="dsec-import-mount.")
    blobs = Path(images or Path(image).parent / "images", "blobs/sha256")
    devices = ",".join(f"device={blobs / digest}" for digest in segments_of(image))
    try:
        must(libc.mount(str(image).encode(), place.encode(), b"erofs", MS_RDONLY, devices.encode()))
        try:
            yield Path(place)
        finally:
            must(libc.umount2(place.encode(), 2))
    finally:
        os.rmdir(place)


def record_of(image):
    data = Path(image).read_bytes()
    magic, erofs_bytes, record_bytes = struct.unpack_from("<QQI", data, len(data) - FOOTER_BYTES)
    assert magic == 0x31474D4943455344
    return json.loads(data[erofs_bytes:erofs_bytes + record_bytes])


# ---- archives ----

def entry(name, data=b"", kind=tarfile.REGTYPE, **fields):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    info.mode = fields.pop("mode", 0o755 if kind == tarfile.DIRTYPE else 0o644)
    info.mtime = fields.pop("mtime", 1700000000)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def directory(name, **fields):
    return entry(name, kind=tarfile.DIRTYPE, **fields)


def link(name, target):
    return entry(name, kind=tarfile.SYMTYPE, linkname=target)


def hard(name, target):
    return entry(name, kind=tarfile.LNKTYPE, linkname=target)


def tar(*entries, tar_format=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tar_format) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data) if info.type == tarfile.REGTYPE else None)
    return out.getvalue()


def raw(name, size=0, kind=b"0", mode=b"0000644", bad_sum=False):
    """One header, byte by byte: what no library writes."""
    name = name if isinstance(name, bytes) else name.encode()
    octal = b"%011o" % size if size < 1 << 33 else b"\x80" + size.to_bytes(10, "big")
    head = bytearray(512)
    head[0:len(name)] = name
    head[100:107], head[108:115], head[116:123] = mode, b"0000000", b"0000000"
    head[124:124 + len(octal)], head[136:147] = octal, b"00000000000"
    head[148:156], head[156:157], head[257:265] = b" " * 8, kind, b"ustar\x0000"
    head[148:156] = b"%06o\0 " % (sum(head) + (1 if bad_sum else 0))
    return bytes(head)


def zstd(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True,
                          timeout=60).stdout


def sha(data):
    return hashlib.sha256(data).hexdigest()


def config_json(layers, **fields):
    document = {"architecture": "amd64", "os": "linux", "created": "2026-01-02T03:04:05Z",
                "config": fields,
                "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha(x) for x in layers]}}
    return json.dumps(document).encode()


def docker_archive(*layers, manifest=None, config=None, packed=lambda data: data, **fields):
    config = config if config is not None else config_json(layers, **fields)
    names = [f"{sha(layer)}/layer.tar" for layer in layers]
    if manifest is None:
        manifest = [{"Config": sha(config) + ".json", "RepoTags": ["it:latest"], "Layers": names}]
    written = dict(zip(names, (packed(layer) for layer in layers)))
    return tar(*[entry(name, data) for name, data in written.items()],
               entry(sha(config) + ".json", config),
               entry("manifest.json", json.dumps(manifest).encode()))


def blob(data, media="application/vnd.oci.image.layer.v1.tar"):
    return {"mediaType": media, "digest": "sha256:" + sha(data), "size": len(data)}


def oci_files(*layers, packed=lambda data: data, **fields):
    """The files of a layout, by name."""
    config = config_json(layers, **fields)
    blobs = [packed(layer) for layer in layers]
    manifest = json.dumps({"schemaVersion": 2, "config": blob(config),
                           "layers": [blob(data) for data in blobs]}).encode()
    index = {"schemaVersion": 2, "manifests": [
        dict(blob(manifest), platform={"architecture": "amd64", "os": "linux"})]}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
             "index.json": json.dumps(index).encode()}
    for data in (*blobs, config, manifest):
        files["blobs/sha256/" + sha(data)] = data
    return files


def oci_archive(files):
    return tar(*[entry(name, data) for name, data in files.items()])


# ---- the program ----

class Import:
    """One run: `frames`, `last` and, if it went well, `image`."""

    def __init__(self, data, kind=AUTO, bytes_max=1 << 32, free_min=0, files_max=100000,
                 layers_max=512, folder=None, tag="", flags=0, images=None):
        self.folder = Path(tempfile.mkdtemp(prefix="dsec-import-test.", dir=folder))
        self.images = images or self.folder / "images"
        self.images.mkdir(exist_ok=True)
        stream_read, self.stream = os.pipe()
        self.status, status_write = os.pipe()
        scratch, store = (os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                          for path in (self.folder, self.images))
        arguments = [str(n) for n in (kind, bytes_max, free_min, files_max, layers_max, flags,
                                      tag)]
        self.pid = os.fork()
        if self.pid == 0:
            for number, fd in enumerate((stream_read, status_write, scratch, store)):
                os.dup2(fd, 100 + number)
            for number, fd in enumerate((0, 1, 3, 4)):
                os.dup2(100 + number, fd)
            os.closerange(5, 200)
            os.execv(PROGRAM, ["dsec-import", *arguments])
        for fd in (stream_read, status_write, scratch, store):
            os.close(fd)
        self.image = self.folder / "image.erofs"
        if data is not None:
            self.feed(data)
            self.end()

    def feed(self, data):
        with contextlib.suppress(BrokenPipeError):
            view = memoryview(data)
            while view:
                view = view[os.write(self.stream, view[:65536]):]

    def close(self):
        os.close(self.stream)

    def end(self):
        self.close()
        self.take()

    def take(self):
        """What it told, and how it ended."""
        out = b""
        while piece := os.read(self.status, 65536):
            out += piece
        os.close(self.status)
        _, self.exit = os.waitpid(self.pid, 0)
        assert len(out) % FRAME.size == 0
        self.frames = [self.frame(out[at:at + FRAME.size]) for at in range(0, len(out), FRAME.size)]
        self.last = self.frames[-1] if self.frames else {}

    @staticmethod
    def frame(data):
        values = [value.rstrip(b"\0").decode(errors="replace") if isinstance(value, bytes) else value
                  for value in FRAME.unpack(data)]
        return dict(zip(FIELDS, values))

    def remove(self):
        shutil.rmtree(self.folder)
