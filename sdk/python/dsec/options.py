"""Options of create and exec, by keyword. Sizes are bytes, times are seconds."""
from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from dsec._requests import RequestId, Text


CALL_OPTIONS = ("request_timeout", "request_id", "once")


class CallOptions(TypedDict, total=False):
    """Of every request."""

    request_timeout: float  # the engine gives the request up after it: DsecDeadlineError
    request_id: RequestId  # from dsec.request_id(), to ask again; else the library makes one
    once: bool  # a refusal is raised at once, also where request_timeout has time to ask again


class CreateOptions(CallOptions, total=False):
    """Of create(): what is not named is the engine's default."""

    policy: str
    backend: str
    hostname: str
    user: str
    job: str
    labels: Mapping[str, str]
    env: Mapping[str, str]  # for every exec
    network: str  # "shared" by default, "none", "private", "egress-unpoliced"
    memory_bytes: int
    swap_bytes: int
    disk_bytes: int
    inodes: int
    pids_max: int
    processes_per_s: int  # made, and ended; UNLIMITED
    cpu_weight: int
    cpu_max_permille: int  # 1000: one CPU
    io_bytes_per_s: int
    io_weight: int
    output_limit_bytes: int  # of each exec that has none of its own
    ttl: float  # destroyed after; whole seconds
    idle_ttl: float
    on_timeout: str  # "destroy"
    on_disconnect: str  # "keep", "destroy"
    allow_degraded: bool  # limits that this host cannot enforce are told, not refused
    fresh_root: bool
    sched_idle: bool


class ExecOptions(CallOptions, total=False):
    """Of exec()."""

    env: Mapping[str, str]  # over the sandbox's
    cwd: Text
    user: str
    timeout: float  # of the program with all it started: Result.reason is "timeout"
    idle_timeout: float  # without any output
    kill_after: float  # SIGTERM first, SIGKILL so long after
    rlimits: Mapping[str, int | None | tuple[int | None, int | None]]  # {"nofile": (64, 128)}
    head_bytes: int  # kept of each stream, from its beginning and its end
    tail_bytes: int
    output_limit_bytes: int  # beyond, it is killed: reason "output-limit"
    phase: int  # only in the phase of that version: else DsecConflictError
    merge_stderr: bool
    image_command: bool  # argv follows the image's entrypoint


class FunctionOptions(CallOptions, total=False):
    """Of function()."""

    cwd: Text
    user: str
    env: Mapping[str, str]  # over the image's
    policy: str  # what its calls may do; the version there is now
    isolation: str  # "fresh", "domain"
    cpu: float  # of one call: CPU time of all that it starts
    wall: float  # time by the clock
    memory_bytes: int
    disk_bytes: int
    output_bytes: int  # stdout and stderr together
    pids_max: int
    allow_degraded: bool
    image_command: bool  # argv follows the image's entrypoint


class StartOptions(ExecOptions, total=False):
    """Of start(), besides those of exec()."""

    stdin: bool  # Process.write() gives it
    tty: bool
    rows: int
    columns: int
    window_bytes: int  # sent ahead of each stream
