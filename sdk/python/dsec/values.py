"""What requests give back. Made from libdsec's structs while those live; plain values afterwards.

Sizes are bytes, times are seconds. None: not measured on this host, or not set.
"""
from __future__ import annotations

import builtins
import ctypes
import ipaddress
import os
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dsec import _abi
from dsec._abi import (Anomaly, Blame, Cause, Code, FileChange, FileReason, FileType, Limit,
                       Reason, State, Topic, Verdict)
from dsec.errors import DsecError, error_make

UINT64_MAX = 2**64 - 1
T = TypeVar("T", bound=ctypes.Structure)

__all__ = [
    "Anomaly", "Blame", "Called", "Capabilities", "Cause", "Chunk", "Code", "Egress",
    "ExecInfo", "FileChange", "FileInfo", "FileReason", "FileResult", "FileType", "Flow",
    "Forward", "FunctionInfo", "ImageInfo", "Inspection", "Limit", "Output", "Progress",
    "Reason", "Result", "SandboxInfo", "Settings", "State", "Status", "Topic", "Usage",
    "Verdict",
]


@dataclass(frozen=True, slots=True)
class Status:
    """How a request, or the start of a program, ended."""

    code: Code
    blame: Blame
    error: int
    step: str
    detail: str
    retry_after: float | None

    def exception(self, what: str) -> DsecError:
        """What would be raised of it; what: which request."""
        return error_make(self.code, self.blame, what, self.step, self.detail, self.error,
                          self.retry_after)


@dataclass(frozen=True, slots=True)
class Output:
    """What is kept of a stream: its beginning, its end, and how much the program wrote."""

    head: bytes = b""
    tail: bytes = b""
    total_bytes: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """How a program ended, whatever its exit code. status: why it did not start, where it did not.

    code: the exit code (126, 127: not started), or None; signal: the signal's number, or None.
    processes_killed: by the engine, to end it; None: nobody counted.
    """

    reason: Reason
    code: int | None
    signal: int | None
    exec: int
    cpu: float | None
    wall: float | None
    memory_peak_bytes: int | None
    memory_limit_bytes: int | None
    unpoliced: bool
    status: Status
    outputs: dict[int, Output] = field(repr=False)
    phase_version: int
    tainted: frozenset[str]
    processes_killed: int | None

    def output(self, stream: int) -> Output:
        """What is kept of a stream: 1 is stdout, 2 is stderr."""
        return self.outputs.get(stream, Output())

    @property
    def stdout(self) -> bytes:
        """What is kept of it: all, unless truncated."""
        return self.output(1).head + self.output(1).tail

    @property
    def stderr(self) -> bytes:
        """As stdout."""
        return self.output(2).head + self.output(2).tail

    @property
    def truncated(self) -> bool:
        """Whether bytes between head and tail of any stream are gone: see outputs."""
        return any(output.truncated for output in self.outputs.values())

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with 0."""
        return self.reason == Reason.EXIT and self.code == 0


class Chunk(bytes):
    """Bytes of a stream: 1 stdout, 2 stderr. lost: so many before them are gone."""

    stream: int
    offset: int
    lost: int

    def __new__(cls, data: bytes, stream: int, offset: int, lost: int = 0) -> Chunk:
        made = super().__new__(cls, data)
        made.stream, made.offset, made.lost = stream, offset, lost
        return made


@dataclass(frozen=True, slots=True)
class Settings:
    """A sandbox's settings in force. unenforced: those of them that this host cannot enforce.

    network_why: "asked", "default", "operator", "policy", or what this host lacks for "shared":
    "no-programs", "no-abstract". network_scope: whose sandboxes are in its namespace, "sandbox",
    "job", "tenant", "node".
    """

    network: str
    network_why: str
    network_scope: str
    memory_bytes: int
    swap_bytes: int
    disk_bytes: int
    inodes: int
    pids_max: int
    processes_per_s: int | None
    cpu_weight: int
    cpu_max_permille: int
    io_bytes_per_s: int
    io_weight: int
    output_limit_bytes: int
    ttl: int
    idle_ttl: int
    destroy_on_disconnect: bool
    unenforced: frozenset[str]
    reused: bool
    flags: int
    policy_version: int
    rules_unenforced: int


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """A row of a list."""

    id: str
    state: str
    image: str
    labels: dict[str, str]
    network: str
    age: float
    idle: float
    ttl: float | None
    execs_running: int
    execs_total: int
    tenant: str
    phase: str
    phase_version: int
    tainted: frozenset[str]
    fork_of: str | None


@dataclass(frozen=True, slots=True)
class ExecInfo:
    """A program that runs in a sandbox, or that is over and kept."""

    sandbox: str
    exec: int
    reason: Reason
    code: int | None
    signal: int | None
    age: float
    wall: float | None
    argv: list[bytes]
    env: list[bytes]
    cwd: str
    user: str
    stdout_bytes: int
    stderr_bytes: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """What a sandbox uses now."""

    id: str
    processes: int
    cpu: float | None
    memory_bytes: int | None
    memory_peak_bytes: int | None
    disk_bytes: int | None
    inodes: int | None
    io_read_bytes: int | None
    io_written_bytes: int | None
    execs_running: int
    execs_total: int
    throttles: int  # how often it was frozen: it made processes too fast
    throttled: float


@dataclass(frozen=True, slots=True)
class Flow:
    """How much went to one place, and the number of the rule of its policy that allows it."""

    address: str
    port: int
    protocol: str
    rule: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Egress:
    """What went out by a policy's way out. flows: where most of it went, the most first."""

    sent_bytes: int
    connections: int
    refused: int
    dropped: int
    capped: int
    flows: list[Flow]


@dataclass(frozen=True, slots=True)
class Inspection:
    """One sandbox as it is now, or why it ended."""

    id: str
    state: str
    cause: Cause
    ended: float | None
    age: float
    idle: float
    ttl: float | None
    execs_running: int
    execs_total: int
    oom_kills: int | None
    usage: Usage
    settings: Settings
    image: str
    hostname: str
    user: str
    labels: dict[str, str]
    policy: str
    phase: str
    phase_version: int
    tainted: frozenset[str]
    egress: Egress
    fork_of: str | None


@dataclass(frozen=True, slots=True)
class FileInfo:
    """An entry of a folder; of a watch, with changes; of an archive, with why it was left out."""

    name: str
    type: FileType
    mode: int
    uid: int
    gid: int
    bytes: int
    disk_bytes: int
    links: int
    mtime: float
    target: str
    changes: frozenset[str]
    reason: str
    error: int


@dataclass(frozen=True, slots=True)
class FileResult:
    """What was written, removed or unpacked. left_out: of an archive, with why (at most 100)."""

    bytes: int
    entries: int
    left_out_count: int
    left_out: list[FileInfo]


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """A function, with the limits in force. unenforced: those this host cannot enforce."""

    id: str
    name: str
    image: str
    argv: list[bytes]
    isolation: str
    cpu: float | None
    wall: float
    memory_bytes: int | None
    disk_bytes: int
    output_bytes: int
    pids_max: int
    unenforced: frozenset[str]
    age: float


@dataclass(frozen=True, slots=True)
class Called:
    """What became of a call. verdict: ok, tle, mle, re, ole, or ie, which status explains."""

    verdict: Verdict
    reason: Reason
    code: int | None
    signal: int | None
    cpu: float | None
    wall: float | None
    memory_peak_bytes: int | None
    stdout: bytes
    stderr: bytes
    status: Status
    truncated: bool  # it wrote more: than it may (ole), or than is kept for who asks again


@dataclass(frozen=True, slots=True)
class Forward:
    """A way to a port of a sandbox: connect to the address, send the token and a newline."""

    port: int
    family: int
    address: str
    token: str


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image, as the engine has it; None: not known of this one."""

    name: str
    digest: str
    source: str
    created: str
    users: int | None
    bytes: int | None
    content_bytes: int | None
    files: int | None
    layers: int
    age: float | None
    dropped_nodes: int
    dropped_xattrs: int
    record: builtins.bytes = b""
    new_bytes: int | None = None
    shared_bytes: int | None = None
    report: dict[str, Any] | None = None
    segment_bytes: int | None = None
    local_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import, or another job on images, is. layers_total 0: not known yet."""

    layers: int
    layers_total: int
    bytes: int
    files: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine is and can do. Limits are the connection's own."""

    version: str
    kernel: str
    shards: int
    features: frozenset[str]
    unenforced: frozenset[str]
    sandboxes_max: int
    execs_max: int
    requests_max: int
    clients_max: int
    argument_bytes_max: int
    output_bytes_max: int
    transport: str
    epoch: int
    tenant: str


# ---- from structs ----

def take(kind: type[T], address: int | None) -> T:
    """A copy of a struct; zeros for what an older library does not know."""
    made = kind()
    if address:
        size = ctypes.c_uint32.from_address(address).value
        ctypes.memmove(ctypes.byref(made), address, min(size, ctypes.sizeof(kind)))
    return made


def data_of(address: int | None, count: int) -> bytes:
    return ctypes.string_at(address, count) if address and count else b""


def text(value: _abi.Bytes) -> str:
    """Names are bytes: what is no UTF-8 survives as os.fsencode() has it."""
    return os.fsdecode(data_of(value.data, value.bytes))


def known(number: int) -> int | None:
    return None if number == UINT64_MAX else number


def seconds(number: int, unit: int) -> float | None:
    return None if number == UINT64_MAX else number / unit


def named(words: dict[int, Any], number: int, otherwise: Any = None) -> Any:
    return words.get(number, f"unknown-{number}" if otherwise is None else otherwise)


def bits(words: dict[int, Any], value: int) -> frozenset[str]:
    return frozenset(str(named(words, 1 << at)) for at in range(64) if value >> at & 1)


def id_text(value: _abi.Id) -> str:
    """Crockford's base32, as dsec_id_print() has it."""
    number = value.hi << 64 | value.lo
    return "".join("0123456789abcdefghjkmnpqrstvwxyz"[number >> shift & 31]
                   for shift in range(125, -1, -5))


def labels_of(pointer: Any, count: int) -> dict[str, str]:
    return {text(pointer[at].key): text(pointer[at].value) for at in range(count)}


def status_of(status: _abi.Status) -> Status:
    retry = status.retry_after_ms
    return Status(named(_abi.CODES, status.code, Code.FAILED),
                  named(_abi.BLAMES, status.blame, Blame.PLATFORM), status.error,
                  status.step.decode("utf-8", "replace"), status.detail.decode("utf-8", "replace"),
                  retry / 1000 if retry else None)


def ended(reason: Reason, code: int, signal: int) -> tuple[int | None, int | None]:
    """Exit code and signal, where there is one."""
    with_code = reason in (Reason.EXIT, Reason.NOT_STARTED)
    return (code if with_code else None, signal if signal > 0 else None)


def result_of(event: _abi.Event) -> Result | None:
    if not event.body:
        return None
    result = take(_abi.Result, event.body)
    reason = named(_abi.REASONS, result.reason, Reason.END_UNKNOWN)
    outputs = {}
    for at in range(result.output_count):
        output = result.outputs[at]
        outputs[output.stream] = Output(
            data_of(output.head.data, output.head.bytes),
            data_of(output.tail.data, output.tail.bytes), output.total_bytes,
            bool(output.truncated))
    return Result(reason, *ended(reason, result.exit_code, result.signal), result.exec,
                  seconds(result.cpu_us, 10**6), seconds(result.wall_us, 10**6),
                  known(result.memory_peak_bytes), result.memory_limit_bytes or None,
                  bool(result.flags & _abi.DSEC_RESULT_UNPOLICED), status_of(event.status), outputs,
                  result.phase, anomalies(result.tainted),
                  None if result.processes_killed == 2**32 - 1 else result.processes_killed)


def settings_of(created: _abi.Created) -> Settings:
    return Settings(
        str(named(_abi.NETWORKS, created.network)),
        str(named(_abi.NETWORK_WHYS, created.network_why)),
        str(named(_abi.NETWORK_SCOPES, created.network_scope)), created.memory_bytes,
        created.swap_bytes, created.disk_bytes, created.inodes, created.pids_max,
        created.processes_per_s or None, created.cpu_weight, created.cpu_max_permille,
        created.io_bytes_per_s, created.io_weight, created.output_limit_bytes, created.ttl_s,
        created.idle_ttl_s, created.on_disconnect == _abi.DSEC_DISCONNECT_DESTROY,
        bits(_abi.LIMITS, created.unenforced), bool(created.reused), created.flags,
        created.policy, created.rules_unenforced)


def sandbox_info(event: _abi.Event) -> SandboxInfo:
    row = take(_abi.Row, event.body)
    return SandboxInfo(
        id_text(row.id), str(named(_abi.STATES, row.state)), text(row.image),
        labels_of(row.labels, row.label_count), str(named(_abi.NETWORKS, row.network)),
        row.age_ms / 1000, row.idle_ms / 1000, seconds(row.ttl_ms, 1000), row.execs_running,
        row.execs_total, text(row.tenant), text(row.phase), row.phase_version,
        anomalies(row.tainted),
        id_text(row.fork_of) if row.fork_of.hi or row.fork_of.lo else None)


def exec_info(event: _abi.Event) -> ExecInfo:
    row = take(_abi.ExecRow, event.body)
    reason = named(_abi.REASONS, row.reason, Reason.END_UNKNOWN)

    def texts(pointer: Any, count: int) -> list[bytes]:
        return [data_of(pointer[at].data, pointer[at].bytes) for at in range(count)]

    return ExecInfo(
        id_text(row.sandbox), row.exec, reason, *ended(reason, row.exit_code, row.signal),
        row.age_ms / 1000, seconds(row.wall_us, 10**6), texts(row.argv, row.argc),
        texts(row.env, row.env_count), text(row.cwd), text(row.user), row.stdout_bytes,
        row.stderr_bytes, bool(row.truncated))


def usage_of(row: Any) -> Usage:
    """From a struct of stats, or of an inspection, which lacks what disks were asked for."""
    return Usage(id_text(row.id), row.processes, seconds(row.cpu_us, 10**6),
                 known(row.memory_bytes), known(row.memory_peak_bytes), known(row.disk_bytes),
                 known(row.inodes), known(getattr(row, "io_read_bytes", UINT64_MAX)),
                 known(getattr(row, "io_written_bytes", UINT64_MAX)), row.execs_running,
                 row.execs_total, getattr(row, "throttles", 0),
                 getattr(row, "throttled_us", 0) / 10**6)


def usage_row(event: _abi.Event) -> Usage:
    return usage_of(take(_abi.Usage, event.body))


def inspection_of(event: _abi.Event) -> Inspection:
    row = take(_abi.Inspected, event.body)
    state = str(named(_abi.STATES, row.state))
    return Inspection(
        id_text(row.id), state, named(_abi.CAUSES, row.cause, Cause.NONE),
        row.ended_ms / 1000 if state == State.ENDED else None, row.age_ms / 1000,
        row.idle_ms / 1000, seconds(row.ttl_ms, 1000), row.execs_running, row.execs_total,
        known(row.oom_kills), usage_of(row), settings_of(row.settings), text(row.image),
        text(row.hostname), text(row.user), labels_of(row.labels, row.label_count),
        text(row.policy), text(row.phase), row.phase_version, anomalies(row.tainted),
        egress_of(row.egress),
        id_text(row.fork_of) if row.fork_of.hi or row.fork_of.lo else None)


def egress_of(row: Any) -> Egress:
    return Egress(row.sent_bytes, row.connections, row.refused, row.dropped, row.capped,
                  [flow_of(flow) for flow in row.flows[:row.flow_count]])


def flow_of(row: Any) -> Flow:
    address = ipaddress.IPv6Address(bytes(row.address))
    return Flow(str(address.ipv4_mapped or address), row.port,
                "tcp" if row.protocol == 6 else "udp", row.rule, row.bytes)


def file_info(event: _abi.Event) -> FileInfo:
    row = take(_abi.FileRow, event.body)
    return FileInfo(
        text(row.name), named(_abi.FILE_TYPES, row.type, FileType.OTHER), row.mode, row.uid,
        row.gid, row.bytes, row.disk_bytes, row.links, row.mtime_ns / 10**9, text(row.target),
        bits(_abi.FILE_CHANGES, row.change), str(named(_abi.FILE_REASONS, row.reason)), row.error)


def anomalies(mask: int) -> frozenset[str]:
    """Names of rules in a mask of bits 1 << number."""
    return frozenset(str(named(_abi.ANOMALYS, at)) for at in range(32) if mask >> at & 1)


def forward_of(event: _abi.Event) -> Forward:
    row = take(_abi.Forward, event.body)
    return Forward(row.port, row.family, row.address.decode(), row.token.decode())


def image_info(event: _abi.Event, record: bytes = b"",
               report: dict[str, Any] | None = None) -> ImageInfo:
    row = take(_abi.ImageRow, event.body)
    return ImageInfo(
        text(row.name), text(row.digest), text(row.source), text(row.created),
        None if row.users == 2**32 - 1 else row.users,
        known(row.bytes), known(row.content_bytes), known(row.files), row.layers,
        seconds(row.age_ms, 1000), row.dropped_nodes, row.dropped_xattrs, record,
        known(row.new_bytes), known(row.shared_bytes), report,
        known(row.segment_bytes), known(row.local_bytes))


def progress_of(event: _abi.Event) -> Progress:
    row = take(_abi.Progress, event.body)
    return Progress(row.layers, row.layers_total, row.bytes, row.files, row.read_bytes)


def numbers_of(kind: type[T], address: int | None) -> dict[str, int | None]:
    """All of a struct of plain numbers."""
    row = take(kind, address)
    return {entry[0]: known(getattr(row, entry[0])) for entry in row._fields_[1:]}


def capabilities_of(address: int) -> Capabilities:
    caps = take(_abi.Caps, address)
    return Capabilities(
        caps.version.decode("utf-8", "replace"), caps.kernel.decode("utf-8", "replace"),
        caps.shards, bits(_abi.FEATURES, caps.features), bits(_abi.LIMITS, caps.unenforced),
        caps.sandboxes_max, caps.execs_max, caps.requests_max, caps.clients_max,
        caps.argument_bytes_max, caps.output_bytes_max,
        str(named(_abi.TRANSPORTS, caps.transport)), caps.epoch,
        caps.tenant.decode("utf-8", "replace"))
