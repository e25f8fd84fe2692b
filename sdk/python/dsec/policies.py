"""What an engine says of policies and phases."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dsec import _abi
from dsec.values import bits, seconds, take, text

__all__ = ["Phase", "Policy", "PolicyInfo", "PolicyRule"]


@dataclass(frozen=True, slots=True)
class Phase:
    """What a sandbox is in after a move, or instead of one; name "": where it began."""

    name: str
    version: int
    policy: str
    policy_version: int
    rules_unenforced: int
    killed: int
    flows_cut: int


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """levels: how this host enforces it, as "mount", "seccomp"; empty: not at all."""

    number: int
    text: str
    levels: frozenset[str]
    required: bool
    audit: bool


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """A row of a list of policies; unenforced: how many of its rules nothing enforces here.

    services_old: it has the places that services had when it was loaded.
    """

    name: str
    version: int
    extends: str
    ready_made: bool
    rules: int
    unenforced: int
    users: int
    age: float | None
    document_bytes: int
    tenant: str
    services_old: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy; phases: the policy that each brings; document: of show, else empty."""

    info: PolicyInfo
    rules: list[PolicyRule]
    phases: dict[str, str]
    document: bytes = field(repr=False)


def phase_of(event: _abi.Event) -> Phase:
    row = take(_abi.Phased, event.body)
    return Phase(text(row.name), row.version, text(row.policy_name), row.policy,
                 row.rules_unenforced, row.execs_killed, row.flows_cut)


POLICY_LEVELS = {
    _abi.DSEC_POLICY_BPF_LSM: "bpf-lsm", _abi.DSEC_POLICY_APPARMOR: "apparmor",
    _abi.DSEC_POLICY_LANDLOCK: "landlock", _abi.DSEC_POLICY_SECCOMP: "seccomp",
    _abi.DSEC_POLICY_MOUNT: "mount", _abi.DSEC_POLICY_CGROUP_BPF: "cgroup-bpf",
    _abi.DSEC_POLICY_XDP: "xdp", _abi.DSEC_POLICY_NAMESPACE: "namespace",
}


def policy_row(event: _abi.Event) -> PolicyInfo | PolicyRule | tuple[str, str] | None:
    """Of a policy, of a rule, or of a phase: its name and its policy."""
    row = take(_abi.PolicyRow, event.body)
    if row.what == _abi.DSEC_POLICY_ITSELF:
        return PolicyInfo(
            text(row.name), row.number, text(row.text),
            bool(row.flags & _abi.DSEC_POLICY_READY_MADE), row.rules, row.levels, row.users,
            seconds(row.age_ms, 1000), row.document_bytes, text(row.tenant),
            bool(row.flags & _abi.DSEC_POLICY_SERVICES_OLD))
    if row.what == _abi.DSEC_POLICY_RULE:
        return PolicyRule(row.number, text(row.text), bits(POLICY_LEVELS, row.levels),
                          bool(row.flags & _abi.DSEC_POLICY_REQUIRED),
                          bool(row.flags & _abi.DSEC_POLICY_AUDIT))
    return (text(row.name), text(row.text)) if row.what == _abi.DSEC_POLICY_PHASE else None


def policy_of(rows: list[Any], document: bytes) -> Policy:
    info, = (row for row in rows if isinstance(row, PolicyInfo))
    phases: dict[str, str] = {}
    for row in rows:
        if isinstance(row, tuple):
            phases[row[0]] = row[1]
    return Policy(info, [row for row in rows if isinstance(row, PolicyRule)], phases, document)
