"""Requests about files of sandboxes and about images; as in _requests.py."""
from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Sequence
from typing import Any

from dsec import _abi, values
from dsec._requests import (LONG, SHORT, Data, Request, Text, bytes_array, bytes_of, c_string,
                            check, chunk, fill, id_of, invalid, of_kind, rows)
from dsec.errors import DsecError

INLINE_BYTES_MAX = 64 << 10  # what is larger follows as a stream
PIECE_BYTES = 256 << 10


def file_opts(path: Text, keep: list[Any], user: str | None, **fields: int | None) -> _abi.FileOpts:
    opts = _abi.FileOpts()
    opts.path, opts.user = bytes_of("path", path, keep), c_string("user", user)
    if not opts.path.bytes:
        raise invalid("path", "is empty")
    fill(opts, **fields)
    return opts


def file_result(event: _abi.Event, left_out: list[values.FileInfo]) -> values.FileResult:
    result = values.take(_abi.FileResult, event.body)
    return values.FileResult(result.bytes, result.entries, result.left_out, left_out)


def file_done(what: str) -> Callable[[_abi.Event, list[Any]], values.FileResult]:
    def done(event: _abi.Event, items: list[Any]) -> values.FileResult:
        check(event, what)
        return file_result(event, [row for row in items if isinstance(row, values.FileInfo)])
    return done


def file_item(event: _abi.Event) -> Any:
    return values.file_info(event) if event.kind == _abi.DSEC_EV_ROW else chunk(event)


def read(sandbox: str, path: Text, *, offset: int, bytes_max: int, tar: bool, user: str | None,
         follow: bool) -> Request[values.FileResult]:
    keep: list[Any] = []
    named = id_of(sandbox)
    flags = _abi.DSEC_FILE_TAR if tar else 0
    flags |= 0 if follow else _abi.DSEC_FILE_NO_FOLLOW
    opts = file_opts(path, keep, user, offset=offset, bytes_max=bytes_max, flags=flags)
    return Request("read", lambda lib, d, call: lib.dsec_read(d, call, named, opts),
                   file_done("read"), file_item, keep=keep, weight=LONG)


def write(sandbox: str, path: Text, data: Data | None, *, flags: int, mode: int | None,
          user: str | None, bytes_max: int = 0) -> Request[values.FileResult]:
    """data None: it follows by feed()."""
    keep: list[Any] = []
    named = id_of(sandbox)
    flags |= _abi.DSEC_FILE_MODE if mode is not None else 0
    opts = file_opts(path, keep, user, flags=flags, mode=mode or 0, bytes_max=bytes_max)
    if data is not None:
        opts.input = bytes_of("data", data, keep)
        if not opts.input.bytes:  # a pointer to nothing: empty, and not "it follows"
            keep.append(ctypes.create_string_buffer(1))
            opts.input.data = ctypes.addressof(keep[-1])
    return Request("write", lambda lib, d, call: lib.dsec_write(d, call, named, opts),
                   file_done("write"), file_item, keep=keep,
                   weight=LONG if data is None else SHORT)


def file(sandbox: str, verb: int, what: str, path: Text, *, to: Text | None = None,
         flags: int = 0, mode: int | None = None, user: str | None = None, limit: int = 0
         ) -> Request[values.FileResult]:
    keep: list[Any] = []
    named = id_of(sandbox)
    flags |= _abi.DSEC_FILE_MODE if mode is not None else 0
    opts = file_opts(path, keep, user, verb=verb, flags=flags, mode=mode or 0, limit=limit)
    if to is not None:
        opts.to = bytes_of("to", to, keep)
    return Request(what, lambda lib, d, call: lib.dsec_file(d, call, named, opts),
                   file_done(what), file_item, keep=keep,
                   weight=LONG if verb == _abi.DSEC_FILE_WATCH else SHORT)


def stat(sandbox: str, path: Text, follow: bool, user: str | None) -> Request[values.FileInfo]:
    asked = file(sandbox, _abi.DSEC_FILE_STAT, "stat", path, user=user,
                 flags=0 if follow else _abi.DSEC_FILE_NO_FOLLOW)

    def done(event: _abi.Event, items: list[Any]) -> values.FileInfo:
        check(event, "stat")
        info: values.FileInfo = items[0]
        return info

    return Request("stat", asked.submit, done, file_item, keep=asked.keep)


def page(sandbox: str, path: Text, after: Text | None, user: str | None
         ) -> Request[tuple[list[values.FileInfo], bool]]:
    """Some of the names in a folder, and whether there are more."""
    asked = file(sandbox, _abi.DSEC_FILE_LIST, "list", path, to=after, user=user)

    def done(event: _abi.Event, items: list[Any]) -> tuple[list[values.FileInfo], bool]:
        check(event, "list")
        return items, bool(values.take(_abi.FileResult, event.body).more)

    return Request("list", asked.submit, done, file_item, keep=asked.keep)


def pieces(data: Any) -> Any:
    """Bytes in pieces that fit into shared memory."""
    view = memoryview(data).cast("B")
    for at in range(0, len(view), PIECE_BYTES):
        yield bytes(view[at:at + PIECE_BYTES])


# ---- images ----

def image_opts(verb: int, name: str | None, source: str | None) -> _abi.ImageOpts:
    opts = _abi.ImageOpts()
    fill(opts, verb=verb)
    opts.name, opts.source = c_string("name", name), c_string("source", source)
    return opts


def image_import(name: str, kind: str | None, tag: str | None,
                 layer: bool) -> Request[values.ImageInfo]:
    opts = image_opts(_abi.DSEC_IMAGE_IMPORT, name, kind)
    opts.tag = c_string("tag", tag)
    fill(opts, flags=_abi.DSEC_IMAGE_LAYER if layer else 0)

    def done(event: _abi.Event, items: list[Any]) -> values.ImageInfo:
        check(event, "import")
        return values.image_info(event)

    return Request("import", lambda lib, d, call: lib.dsec_image(d, call, opts), done,
                   of_kind(_abi.DSEC_EV_PROGRESS, values.progress_of), weight=LONG)


def image_list() -> Request[list[values.ImageInfo]]:
    opts = image_opts(_abi.DSEC_IMAGE_LIST, None, None)
    return Request("images", lambda lib, d, call: lib.dsec_image(d, call, opts), rows("images"),
                   of_kind(_abi.DSEC_EV_ROW, values.image_info))


def image_inspect(name: str) -> Request[values.ImageInfo]:
    opts = image_opts(_abi.DSEC_IMAGE_INSPECT, name, None)
    record: list[bytes] = []

    def item(event: _abi.Event) -> values.ImageInfo | None:
        if event.kind == _abi.DSEC_EV_DATA:
            record.append(values.data_of(event.data, event.bytes))
        return values.image_info(event, b"".join(record)) if event.kind == _abi.DSEC_EV_ROW \
            else None

    def done(event: _abi.Event, items: list[Any]) -> values.ImageInfo:
        check(event, "image inspect")
        info: values.ImageInfo = items[0]
        return info

    return Request("image inspect", lambda lib, d, call: lib.dsec_image(d, call, opts), done, item)


def image_remove(name: str) -> Request[None]:
    opts = image_opts(_abi.DSEC_IMAGE_REMOVE, name, None)

    def done(event: _abi.Event, items: list[Any]) -> None:
        check(event, "image remove")

    return Request("image remove", lambda lib, d, call: lib.dsec_image(d, call, opts), done)


Told = Callable[[values.Progress], object]


def image_job(what: str, name: str | None, progress: Told | None, texts: Sequence[str] = (),
              flags: int = 0, sandbox: str | None = None) -> Request[Any]:
    """What takes its time and may report: the image that it made, or else the report."""
    opts = image_opts(_abi.__dict__[f"DSEC_IMAGE_{what.upper()}"], name, None)
    keep: list[Any] = []
    report: list[bytes] = []
    if texts:
        opts.layers = bytes_array("layers", texts, keep)
    if sandbox is not None:
        opts.sandbox = id_of(sandbox)
    fill(opts, layer_count=len(texts), flags=flags)

    def item(event: _abi.Event) -> None:
        if event.kind == _abi.DSEC_EV_DATA:
            report.append(values.data_of(event.data, event.bytes))
        elif event.kind == _abi.DSEC_EV_PROGRESS and progress:
            progress(values.progress_of(event))

    def done(event: _abi.Event, items: list[Any]) -> values.ImageInfo | dict[str, Any]:
        told: dict[str, Any] = json.loads(b"".join(report)) if report else {}
        try:
            check(event, f"image {what}")
        except DsecError as error:
            error.result = told
            raise
        return values.image_info(event, report=told) if event.body else told

    return Request(f"image {what}", lambda lib, d, call: lib.dsec_image(d, call, opts), done, item,
                   weight=LONG, keep=keep)
