"""Requests as both clients make them: option structs from Python values, and values from events.

A Request is made and checked here and sent by a link (_link.py blocking, _link_aio.py asyncio),
which frees every event after item() or done() made a value of it. Nothing here waits.
"""
from __future__ import annotations

import ctypes
import math
import os
import secrets
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dsec import _abi, news as happened, values
from dsec.errors import DsecError, DsecInvalidError, error_make
from dsec._abi import Blame, Code

T = TypeVar("T")
Text = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Data = bytes | bytearray | memoryview
RequestId = uuid.UUID | bytes


def invalid(field: str, detail: str) -> DsecInvalidError:
    made = error_make(Code.INVALID, Blame.CALLER, field, "", detail, 0, None)
    assert isinstance(made, DsecInvalidError)
    return made


# What a request is to the others of its connection: one that may last (LONG), one that does not,
# one that ends others or moves them on and never waits for them.
URGENT, SHORT, LONG = range(3)


def request_id() -> uuid.UUID:
    """An idempotency key for request_id=: asked again with it, nothing runs twice (a UUIDv7)."""
    number = time.time_ns() // 10**6 << 80 | secrets.randbits(80)
    number &= ~(0xf000 << 64 | 0xc000 << 48)
    return uuid.UUID(int=number | 0x7000 << 64 | 0x8000 << 48)


@dataclass(slots=True)
class Request(Generic[T]):
    """submit(library, connection, call) sends it; done() raises where its status is no success."""

    what: str
    submit: Callable[[_abi.Library, Any, Any], int]
    done: Callable[[_abi.Event, list[Any]], T]
    item: Callable[[_abi.Event], Any] = lambda event: None
    timeout: float | None = None
    request_id: RequestId | None = None
    once: bool = False
    weight: int = SHORT
    keep: list[Any] | None = None  # what the options point at

    def call(self, queue: int | None, tag: int) -> _abi.Call:
        made = _abi.Call()
        fill(made, timeout_ms=milliseconds("request_timeout", self.timeout), tag=tag,
             flags=_abi.DSEC_CALL_ONCE if self.once else 0)
        made.queue = queue
        if self.request_id is not None:
            raw = self.request_id.bytes if isinstance(self.request_id, uuid.UUID) \
                else self.request_id
            if len(raw) != 16:
                raise invalid("request_id", f"has {len(raw)} bytes in place of 16")
            made.request_id = (ctypes.c_uint8 * 16)(*raw)
        return made


# ---- values into structs ----

def milliseconds(field: str, value: float | None) -> int:
    """Rounded up; None is 0, the engine's default."""
    if value is None:
        return 0
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise invalid(field, f"{value!r} is no time above 0, in seconds")
    return max(1, math.ceil(value * 1000))


def whole_seconds(field: str, value: float | None) -> int:
    """A time to live: 0 is none, None the default."""
    if value is None or value == 0:
        return 0
    return math.ceil(milliseconds(field, value) / 1000)


def fill(struct: ctypes.Structure, **fields: int | None) -> None:
    """Sets size and numbers; ctypes itself would cut what is too large."""
    setattr(struct, "size", ctypes.sizeof(struct))
    for name, value in fields.items():
        if value is None:
            continue
        try:
            number = value.__index__()
        except AttributeError:
            raise invalid(name, f"{value!r} is no whole number") from None
        if not 0 <= number < 1 << 8 * getattr(type(struct), name).size:
            raise invalid(name, f"{number} is out of range")
        setattr(struct, name, number)


def c_string(field: str, value: Text | None) -> bytes | None:
    if value is None:
        return None
    raw = encoded(field, value)
    if 0 in raw:
        raise invalid(field, "has a byte 0")
    return raw


def encoded(field: str, value: Any) -> bytes:
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    try:
        return os.fsencode(value)
    except TypeError:
        raise invalid(field, f"{type(value).__name__} is neither str nor bytes") from None


def bytes_of(field: str, value: Any, keep: list[Any]) -> _abi.Bytes:
    """`keep` owns what the struct points at, until the request was sent."""
    raw = encoded(field, value)
    keep.append(raw)
    return _abi.Bytes(ctypes.cast(ctypes.c_char_p(raw), ctypes.c_void_p).value, len(raw))


def bytes_array(field: str, each: Iterable[Any], keep: list[Any]) -> Any:
    made = [bytes_of(field, value, keep) for value in each]
    keep.append((_abi.Bytes * len(made))(*made))
    return keep[-1]


def label_array(labels: Mapping[str, str] | None, keep: list[Any]) -> Any:
    made = [_abi.Label(bytes_of("labels", key, keep), bytes_of("labels", value, keep))
            for key, value in (labels or {}).items()]
    keep.append((_abi.Label * len(made))(*made))
    return keep[-1]


def environment(env: Mapping[str, str] | None) -> list[bytes]:
    made = []
    for name, value in (env or {}).items():
        raw = encoded("env", name)
        if not raw or b"=" in raw:
            raise invalid("env", f"{name!r} is no name")
        made.append(raw + b"=" + encoded("env", value))
    return made


def word(field: str, words: Mapping[int, str], value: str | None) -> int:
    if value is None:
        return 0
    for number, name in words.items():
        if name == str(value).replace("_", "-"):
            return number
    raise invalid(field, f"{value!r} is none of {', '.join(words.values())}")


def id_of(text: str) -> _abi.Id:
    number = 0
    if not isinstance(text, str) or len(text) != 26:
        raise invalid("id", f"{text!r} has not 26 characters")
    for character in text.lower():
        digit = "0123456789abcdefghjkmnpqrstvwxyz".find(character)
        if digit < 0:
            raise invalid("id", f"{character!r} is not base32")
        number = number << 5 | digit
    if number >> 128:
        raise invalid("id", "is more than 128 bits")
    return _abi.Id(number >> 64, number & values.UINT64_MAX)


def select(ids: Sequence[str] | None, labels: Mapping[str, str] | None, job: str | None,
           keep: list[Any]) -> _abi.Select:
    made = _abi.Select()
    fill(made, count=len(ids or ()), label_count=len(labels or ()))
    if ids:
        made.ids = (_abi.Id * len(ids))(*map(id_of, ids))
    if labels:
        made.labels = label_array(labels, keep)
    if job is not None:
        made.job = id_of(job)
    return made


# ---- what events say ----

def check(event: _abi.Event, what: str) -> None:
    if event.status.code != _abi.DSEC_OK:
        raise values.status_of(event.status).exception(what)


def nothing(what: str) -> Callable[[_abi.Event, list[Any]], None]:
    return lambda event, items: check(event, what)


def rows(what: str) -> Callable[[_abi.Event, list[T]], list[T]]:
    def done(event: _abi.Event, items: list[T]) -> list[T]:
        check(event, what)
        return items
    return done


def of_kind(kind: int, make: Callable[[_abi.Event], T]) -> Callable[[_abi.Event], T | None]:
    return lambda event: make(event) if event.kind == kind else None


def chunk(event: _abi.Event) -> values.Chunk | None:
    if event.kind == _abi.DSEC_EV_DATA:
        data = values.data_of(event.data, event.bytes)
        return values.Chunk(data, event.stream, event.offset)
    if event.kind == _abi.DSEC_EV_GAP:
        return values.Chunk(b"", event.stream, event.offset, event.bytes)
    return None


# ---- sandboxes ----

@dataclass(slots=True)
class Made:
    id: str
    settings: values.Settings


def made_of(event: _abi.Event) -> Made | DsecError:
    if event.status.code != _abi.DSEC_OK:
        return values.status_of(event.status).exception("create")
    return Made(values.id_text(event.subject),
                values.settings_of(values.take(_abi.Created, event.body)))


def create(image: str, count: int, *, policy: str | None, backend: str | None,
           hostname: str | None, user: str | None, job: str | None,
           labels: Mapping[str, str] | None, env: Mapping[str, str] | None, network: str | None,
           ttl: float | None, idle_ttl: float | None, on_timeout: str | None,
           on_disconnect: str | None, allow_degraded: bool, fresh_root: bool, sched_idle: bool,
           **numbers: int | None) -> Request[list[Made | DsecError]]:
    """The events of a cancelled one may be dropped: what was made meanwhile is destroyed."""
    keep: list[Any] = []
    opts = _abi.CreateOpts()
    flags = _abi.DSEC_CREATE_DESTROY_IF_CANCELLED
    for bit, on in ((_abi.DSEC_CREATE_ALLOW_DEGRADED, allow_degraded),
                    (_abi.DSEC_CREATE_FRESH_ROOT, fresh_root),
                    (_abi.DSEC_CREATE_SCHED_IDLE, sched_idle)):
        flags |= bit if on else 0
    opts.image = c_string("image", image)
    opts.policy, opts.backend = c_string("policy", policy), c_string("backend", backend)
    opts.hostname, opts.user = c_string("hostname", hostname), c_string("user", user)
    if job is not None:
        opts.job = id_of(job)
    variables = environment(env)
    if labels:
        opts.labels = label_array(labels, keep)
    if variables:
        opts.env = bytes_array("env", variables, keep)
    fill(opts, count=count, flags=flags, label_count=len(labels or ()), env_count=len(variables),
         network=word("network", _abi.NETWORKS, network),
         on_timeout=word("on_timeout", _abi.ON_TIMEOUTS, on_timeout),
         on_disconnect=word("on_disconnect", _abi.DISCONNECTS, on_disconnect),
         ttl_s=whole_seconds("ttl", ttl), idle_ttl_s=whole_seconds("idle_ttl", idle_ttl), **numbers)

    def done(event: _abi.Event, items: list[Made | DsecError]) -> list[Made | DsecError]:
        if not items:
            check(event, "create")
        return items

    return Request("create", lambda lib, d, call: lib.dsec_create(d, call, opts), done,
                   of_kind(_abi.DSEC_EV_CREATED, made_of), keep=keep)


def fork(sandbox: str, count: int) -> Request[list[Made | DsecError]]:
    named, opts = id_of(sandbox), _abi.CreateOpts()
    fill(opts, count=count)

    def done(event: _abi.Event, items: list[Made | DsecError]) -> list[Made | DsecError]:
        if not items:
            check(event, "fork")
        return items

    return Request("fork", lambda lib, d, call: lib.dsec_fork(d, call, named, opts), done,
                   of_kind(_abi.DSEC_EV_CREATED, made_of))


def destroy(ids: Sequence[str] | None = None, labels: Mapping[str, str] | None = None,
            job: str | None = None) -> Request[None]:
    keep: list[Any] = []
    opts = select(ids, labels, job, keep)
    return Request("destroy", lambda lib, d, call: lib.dsec_destroy(d, call, opts),
                   nothing("destroy"), keep=keep)


def list_sandboxes(labels: Mapping[str, str] | None, limit: int | None
                   ) -> Request[list[values.SandboxInfo]]:
    keep: list[Any] = []
    opts = _abi.ListOpts()
    fill(opts, label_count=len(labels or ()), limit=limit)
    if labels:
        opts.labels = label_array(labels, keep)
    return Request("list", lambda lib, d, call: lib.dsec_list(d, call, opts),
                   rows("list"), of_kind(_abi.DSEC_EV_ROW, values.sandbox_info), keep=keep)


def list_execs(sandbox: str) -> Request[list[values.ExecInfo]]:
    opts = _abi.ListOpts()
    fill(opts, what=_abi.DSEC_LIST_EXECS)
    opts.sandbox = id_of(sandbox)
    return Request("list", lambda lib, d, call: lib.dsec_list(d, call, opts), rows("list"),
                   of_kind(_abi.DSEC_EV_ROW, values.exec_info))


def stats(ids: Sequence[str] | None, labels: Mapping[str, str] | None, job: str | None
          ) -> Request[list[values.Usage]]:
    keep: list[Any] = []
    opts = select(ids, labels, job, keep)
    return Request("stats", lambda lib, d, call: lib.dsec_stats(d, call, opts),
                   rows("stats"), of_kind(_abi.DSEC_EV_ROW, values.usage_row), keep=keep)


def change(ids: Sequence[str] | None, select_labels: Mapping[str, str] | None, job: str | None,
           ttl: float | None, idle_ttl: float | None, on_timeout: str | None,
           labels: Mapping[str, str | None] | None) -> Request[list[str]]:
    """The ids of those that were changed. A label of None goes; times of 0 are the default."""
    keep: list[Any] = []
    selected = select(ids, select_labels, job, keep)
    opts = _abi.ChangeOpts()
    bits = 0
    for bit, given in ((_abi.DSEC_CHANGE_TTL, ttl is not None),
                       (_abi.DSEC_CHANGE_IDLE_TTL, idle_ttl is not None),
                       (_abi.DSEC_CHANGE_ON_TIMEOUT, on_timeout is not None),
                       (_abi.DSEC_CHANGE_LABELS, labels is not None)):
        bits |= bit if given else 0
    put = {key: value for key, value in (labels or {}).items() if value is not None}
    removed = [key for key, value in (labels or {}).items() if value is None]
    fill(opts, set=bits, ttl_s=whole_seconds("ttl", ttl),
         idle_ttl_s=whole_seconds("idle_ttl", idle_ttl),
         on_timeout=word("on_timeout", _abi.ON_TIMEOUTS, on_timeout), label_count=len(put),
         removed_count=len(removed))
    if put:
        opts.labels = label_array(put, keep)
    if removed:
        opts.removed = bytes_array("labels", removed, keep)
    return Request("change",
                   lambda lib, d, call: lib.dsec_change(d, call, selected, opts),
                   rows("change"),
                   of_kind(_abi.DSEC_EV_ROW, lambda event: values.id_text(event.subject)),
                   keep=keep)


def fetched(path: str, ids: Sequence[str] | None, labels: Mapping[str, str] | None,
            job: str | None) -> Request[list[str]]:
    """The ids of those whose own it is."""
    keep: list[Any] = []
    selected = select(ids, labels, job, keep)
    opts = _abi.FetchedOpts()
    fill(opts)
    opts.path = c_string("path", path)
    return Request("fetched",
                   lambda lib, d, call: lib.dsec_fetched(d, call, selected, opts),
                   rows("fetched"),
                   of_kind(_abi.DSEC_EV_ROW, lambda event: values.id_text(event.subject)),
                   keep=keep)


def inspect(sandbox: str) -> Request[values.Inspection]:
    named = id_of(sandbox)

    def done(event: _abi.Event, items: list[Any]) -> values.Inspection:
        check(event, "inspect")
        return values.inspection_of(event)

    return Request("inspect", lambda lib, d, call: lib.dsec_inspect(d, call, named), done)


def subscribe(ids: Sequence[str] | None, labels: Mapping[str, str] | None, job: str | None,
              topics: Iterable[str] | None, from_seq: int, epoch: int, window: int
              ) -> Request[None]:
    keep: list[Any] = []
    opts = _abi.SubscribeOpts()
    bits = 0
    for topic in topics or ():
        bits |= 1 << word("topics", _abi.TOPICS, topic)
    if ids or labels or job:
        keep.append(select(ids, labels, job, keep))
        opts.select = ctypes.pointer(keep[-1])
    fill(opts, topics=bits, from_seq=from_seq, epoch=epoch, window=window)
    return Request("subscribe", lambda lib, d, call: lib.dsec_subscribe(d, call, opts),
                   nothing("subscribe"), keep=keep, weight=LONG)


def news(event: _abi.Event) -> happened.News | happened.Missed | None:
    if event.kind == _abi.DSEC_EV_STATE:
        return happened.news_of(event)
    return happened.missed_of(event) if event.kind == _abi.DSEC_EV_GAP else None


def holdings() -> Request[dict[str, int | None]]:
    def done(event: _abi.Event, items: list[Any]) -> dict[str, int | None]:
        check(event, "check")
        return values.numbers_of(_abi.Holdings, event.body)

    return Request("check", lambda lib, d, call: lib.dsec_check(d, call), done)


def port(sandbox: str, number: int, wait: float | None, revoke: bool) -> Request[values.Forward]:
    named, opts = id_of(sandbox), _abi.PortOpts()
    fill(opts, port=number, wait_ms=milliseconds("wait", wait),
         flags=_abi.DSEC_PORT_REVOKE if revoke else 0)

    def done(event: _abi.Event, items: list[Any]) -> values.Forward:
        check(event, "port")
        return values.forward_of(event)

    return Request("port", lambda lib, d, call: lib.dsec_port(d, call, named, opts), done)


# ---- programs ----

@dataclass(slots=True)
class Started:
    exec: int


def exec_item(event: _abi.Event) -> Any:
    if event.kind == _abi.DSEC_EV_STARTED:
        return Started(event.exec)
    return chunk(event)


def exec_done(event: _abi.Event, items: list[Any]) -> values.Result:
    """However it ended is a result, and that it did not start; what else failed is raised."""
    result = values.result_of(event)
    if result is not None and (event.status.code == _abi.DSEC_OK
                               or result.reason == values.Reason.NOT_STARTED):
        return result
    error = values.status_of(event.status).exception("exec")
    error.result = result
    raise error


def rlimit_array(rlimits: Mapping[str, int | None | tuple[int | None, int | None]]) -> Any:
    made = []
    for name, value in rlimits.items():
        soft, hard = value if isinstance(value, tuple) else (value, value)
        row = _abi.Rlimit()
        row.resource = word("rlimits", _abi.RESOURCES, name)
        for field, number in (("soft", soft), ("hard", hard)):
            if number is not None and not 0 <= number < values.UINT64_MAX:
                raise invalid("rlimits", f"{name} {number} is out of range")
            setattr(row, field, values.UINT64_MAX if number is None else number)
        made.append(row)
    return (_abi.Rlimit * len(made))(*made)


def execute(sandbox: str, argv: Sequence[Text], flags: int, *, env: Mapping[str, str] | None,
            cwd: Text | None, user: str | None, input: Data | None, timeout: float | None,
            idle_timeout: float | None, kill_after: float | None,
            rlimits: Mapping[str, int | None | tuple[int | None, int | None]] | None,
            merge_stderr: bool, image_command: bool, **numbers: int | None
            ) -> Request[values.Result]:
    if isinstance(argv, (str, bytes, os.PathLike)):
        raise invalid("argv", 'is one string, not a sequence; for a shell: ["/bin/sh", "-c", text]')
    keep: list[Any] = []
    named, opts = id_of(sandbox), _abi.ExecOpts()
    flags |= _abi.DSEC_EXEC_MERGE if merge_stderr else 0
    flags |= _abi.DSEC_EXEC_IMAGE_COMMAND if image_command else 0
    variables = environment(env)
    opts.cwd, opts.user = c_string("cwd", cwd), c_string("user", user)
    if argv:
        opts.argv = bytes_array("argv", argv, keep)
    if variables:
        opts.env = bytes_array("env", variables, keep)
    if rlimits:
        opts.rlimits = rlimit_array(rlimits)
    if input:
        opts.input = bytes_of("input", input, keep)
    fill(opts, flags=flags, argc=len(argv), env_count=len(variables),
         rlimit_count=len(rlimits or ()), timeout_ms=milliseconds("timeout", timeout),
         idle_timeout_ms=milliseconds("idle_timeout", idle_timeout),
         kill_after_ms=milliseconds("kill_after", kill_after), **numbers)
    return Request("exec", lambda lib, d, call: lib.dsec_exec(d, call, named, opts),
                   exec_done, exec_item, keep=keep, weight=LONG)


def attach(sandbox: str, number: int, offsets: Mapping[int, int], so_far: bool,
           window_bytes: int | None) -> Request[values.Result]:
    named, opts = id_of(sandbox), _abi.AttachOpts()
    places = []
    for stream, offset in offsets.items():
        place = _abi.At()
        if not 0 <= offset <= values.UINT64_MAX:
            raise invalid("offset", f"{offset} is out of range")
        place.stream, place.offset = stream, offset
        places.append(place)
    fill(opts, exec=number, flags=_abi.DSEC_ATTACH_SO_FAR if so_far else 0,
         at_count=len(places), window_bytes=window_bytes)
    if places:
        opts.at = (_abi.At * len(places))(*places)
    return Request("attach", lambda lib, d, call: lib.dsec_attach(d, call, named, opts),
                   exec_done, exec_item, weight=LONG)


def feed(ticket: int, offset: int, data: Data) -> Request[None]:
    """No data is the end of the stream."""
    keep: list[Any] = []
    piece = bytes_of("data", data, keep)
    return Request("input", lambda lib, d, call: lib.dsec_input(d, call, ticket, offset,
                                                                piece),
                   nothing("input"), weight=URGENT, keep=keep)


def signal(sandbox: str, number: int, signum: int, everyone: bool, terminal: bool
           ) -> Request[None]:
    named = id_of(sandbox)
    if not 0 < signum < 256:
        raise invalid("signal", f"{signum} is none")
    what = int(signum) | (_abi.DSEC_SIGNAL_ALL if everyone else 0)
    what |= _abi.DSEC_SIGNAL_TERMINAL if terminal else 0
    return Request("signal", lambda lib, d, call: lib.dsec_signal(d, call, named, number, what),
                   nothing("signal"), weight=URGENT)


def resize(sandbox: str, number: int, lines: int, columns: int) -> Request[None]:
    named = id_of(sandbox)
    if not (0 < lines < 65536 and 0 < columns < 65536):
        raise invalid("resize", f"{lines} rows and {columns} columns are out of range")
    return Request("resize", lambda lib, d, call: lib.dsec_resize(d, call, named, number,
                                                                  lines << 16 | columns),
                   nothing("resize"), weight=URGENT)
