"""What happened to sandboxes, as a subscription tells it."""
from __future__ import annotations

from dataclasses import dataclass

from dsec import _abi
from dsec._abi import Cause, Reason
from dsec.values import ended, id_text, labels_of, named, seconds, take, text

__all__ = ["Missed", "News", "Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """What was tried, of topics "violation" and "anomaly"; count: how often so far."""

    rule: int
    hook: int
    anomaly: str
    count: int
    argument: int
    refused: bool
    error: int
    pid: int
    process: str
    text: str


@dataclass(frozen=True, slots=True)
class News:
    """An event: of a sandbox, of a program in it (exec is not 0), or of an image (sandbox is "").
    reason, code, signal and wall are those of a program that ended, cause that of a sandbox.
    """

    topic: str
    seq: int
    epoch: int
    time: float
    sandbox: str
    exec: int
    cause: Cause
    reason: Reason | None
    code: int | None
    signal: int | None
    wall: float | None
    image: str
    labels: dict[str, str]
    unpoliced: bool
    phase: str
    phase_version: int
    violation: Violation | None


@dataclass(frozen=True, slots=True)
class Missed:
    """Events that are gone: numbers from first_seq to before next_seq, so many of which were asked
    for. exact: or else count is of all. reset: another engine, whose events begin here.
    """

    first_seq: int
    next_seq: int
    count: int
    epoch: int
    exact: bool
    reset: bool


def violation_of(row: _abi.News) -> Violation:
    anomaly = str(named(_abi.ANOMALYS, row.anomaly)) if row.topic == _abi.DSEC_TOPIC_ANOMALY else ""
    return Violation(row.rule, row.hook, anomaly, row.count, row.argument, row.verdict == 1,
                     row.error, row.pid, text(row.process), text(row.text))


def news_of(event: _abi.Event) -> News:
    row = take(_abi.News, event.body)
    over = row.topic == _abi.DSEC_TOPIC_EXEC_ENDED
    reason = named(_abi.REASONS, row.reason, Reason.END_UNKNOWN)
    code, signal = ended(reason, row.exit_code, row.signal) if over else (None, None)
    return News(
        str(named(_abi.TOPICS, row.topic)), row.seq, row.epoch, row.time_ms / 1000,
        id_text(row.sandbox) if row.sandbox.hi or row.sandbox.lo else "", row.exec,
        named(_abi.CAUSES, row.cause, Cause.NONE),
        reason if over else None, code, signal, seconds(row.wall_us, 10**6) if over else None,
        text(row.image), labels_of(row.labels, row.label_count),
        bool(row.flags & _abi.DSEC_UNPOLICED), text(row.phase), row.phase_version,
        violation_of(row) if row.topic in (_abi.DSEC_TOPIC_VIOLATION, _abi.DSEC_TOPIC_ANOMALY)
        else None)


def missed_of(event: _abi.Event) -> Missed:
    row = take(_abi.Missed, event.body)
    return Missed(row.first_seq, row.next_seq, row.count, row.epoch,
                  not row.flags & _abi.DSEC_MISSED_UNSELECTED,
                  bool(row.flags & _abi.DSEC_MISSED_RESET))
