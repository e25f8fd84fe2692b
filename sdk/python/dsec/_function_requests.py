"""Requests about functions and their calls; as in _requests.py."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsec import _abi, values
from dsec._requests import (LONG, Data, Request, Text, bytes_array, c_string, check, encoded,
                            environment, fill, id_of, invalid, milliseconds, of_kind, rows, word)
from dsec.errors import DsecError


def register(name: str, image: str, argv: Sequence[Text], *, cwd: Text | None, user: str | None,
             env: Mapping[str, str] | None, policy: str | None,
             isolation: str | None, cpu: float | None,
             wall: float | None, allow_degraded: bool, image_command: bool, **numbers: int | None
             ) -> Request[str]:
    if isinstance(argv, (str, bytes)):
        raise invalid("argv", "is one string, not a sequence")
    keep: list[Any] = []
    opts = _abi.FunctionOpts()
    variables = environment(env)
    flags = _abi.DSEC_FUNCTION_ALLOW_DEGRADED if allow_degraded else 0
    flags |= _abi.DSEC_FUNCTION_IMAGE_COMMAND if image_command else 0
    opts.name, opts.image = c_string("name", name), c_string("image", image)
    opts.cwd, opts.user = c_string("cwd", cwd), c_string("user", user)
    opts.policy = c_string("policy", policy)
    if argv:
        opts.argv = bytes_array("argv", argv, keep)
    if variables:
        opts.env = bytes_array("env", variables, keep)
    fill(opts, verb=_abi.DSEC_FUNCTION_REGISTER, flags=flags, argc=len(argv),
         env_count=len(variables), isolation=word("isolation", _abi.ISOLATIONS, isolation),
         cpu_ms=milliseconds("cpu", cpu), wall_ms=milliseconds("wall", wall), **numbers)

    def done(event: _abi.Event, items: list[Any]) -> str:
        check(event, "register")
        return values.id_text(event.subject)

    return Request("register", lambda lib, d, call: lib.dsec_function(d, call, opts), done,
                   keep=keep)


def function_info(event: _abi.Event) -> values.FunctionInfo:
    row = values.take(_abi.FunctionRow, event.body)
    argv = [values.data_of(row.argv[at].data, row.argv[at].bytes) for at in range(row.argc)]
    return values.FunctionInfo(
        values.id_text(row.id), values.text(row.name), values.text(row.image), argv,
        str(values.named(_abi.ISOLATIONS, row.isolation)), row.cpu_ms / 1000 or None,
        row.wall_ms / 1000, row.memory_bytes or None, row.disk_bytes, row.output_bytes,
        row.pids_max, values.bits(_abi.LIMITS, row.unenforced), row.age_ms / 1000)


def functions() -> Request[list[values.FunctionInfo]]:
    opts = _abi.FunctionOpts()
    fill(opts, verb=_abi.DSEC_FUNCTION_LIST)
    return Request("functions", lambda lib, d, call: lib.dsec_function(d, call, opts),
                   rows("functions"), of_kind(_abi.DSEC_EV_ROW, function_info))


def remove(function: str) -> Request[None]:
    opts = _abi.FunctionOpts()
    fill(opts, verb=_abi.DSEC_FUNCTION_REMOVE)
    opts.id = id_of(function)

    def done(event: _abi.Event, items: list[Any]) -> None:
        check(event, "remove")

    return Request("remove", lambda lib, d, call: lib.dsec_function(d, call, opts), done)


# ---- calls ----

@dataclass(slots=True)
class Piece:
    index: int
    stream: int
    data: bytes


@dataclass(slots=True)
class Ended:
    index: int
    called: _abi.Called | None
    status: values.Status


def ended(event: _abi.Event) -> Ended:
    called = values.take(_abi.Called, event.body) if event.body else None
    return Ended(event.index, called, values.status_of(event.status))


def call_item(event: _abi.Event) -> Piece | Ended | None:
    if event.kind == _abi.DSEC_EV_DATA:
        return Piece(event.index, event.stream, values.data_of(event.data, event.bytes))
    return ended(event) if event.kind == _abi.DSEC_EV_DONE else None


def called_of(end: Ended, out: bytes, err: bytes) -> values.Called | DsecError:
    called = end.called
    if called is None:
        return end.status.exception("call")
    reason = values.named(_abi.REASONS, called.reason, values.Reason.END_UNKNOWN)
    verdict = values.named(_abi.VERDICTS, called.verdict, values.Verdict.IE)
    missing = called.stdout_bytes + called.stderr_bytes - len(out) - len(err)
    return values.Called(
        verdict, reason,
        *values.ended(reason, called.exit_code, called.signal),
        values.seconds(called.cpu_us, 10**6), values.seconds(called.wall_us, 10**6),
        values.known(called.memory_peak_bytes), out, err, end.status,
        missing > 0 or verdict == values.Verdict.OLE)


def invoke(function: str, inputs: Sequence[Data]) -> Request[list[values.Called | DsecError]]:
    """In the order of the inputs, whatever the order in which they end."""
    keep: list[Any] = []
    named, count = id_of(function), len(inputs)
    if isinstance(inputs, (str, bytes, bytearray, memoryview)):
        raise invalid("inputs", "is one input, not a sequence")
    given = bytes_array("inputs", [encoded("inputs", data) for data in inputs], keep)

    def done(event: _abi.Event, items: list[Any]) -> list[values.Called | DsecError]:
        last = ended(event)
        if count == 1:
            items = [*items, last]
        ends = {item.index: item for item in items if isinstance(item, Ended)}
        if not ends:
            check(event, "call")
        output: dict[tuple[int, int], list[bytes]] = {}
        for item in items:
            if isinstance(item, Piece):
                output.setdefault((item.index, item.stream), []).append(item.data)
        return [called_of(ends.get(at, last), b"".join(output.get((at, 1), [])),
                          b"".join(output.get((at, 2), []))) for at in range(count)]

    return Request("call", lambda lib, d, call: lib.dsec_invoke(d, call, named, given, count),
                   done, call_item, keep=keep, weight=LONG)
