"""Requests about policies and phases: what is asked, and what their events come to."""
from __future__ import annotations

from typing import Any

from dsec import _abi, policies, values
from dsec._requests import Request, Text, bytes_of, c_string, check, fill, id_of, nothing


def policy_opts(verb: int, name: str | None, document: Text | None, version: int | None,
                keep: list[Any]) -> _abi.PolicyOpts:
    opts = _abi.PolicyOpts()
    fill(opts, verb=verb, version=version)
    opts.name = c_string("name", name)
    if document is not None:
        opts.document = bytes_of("document", document, keep)
    return opts


def gathered(what: str, opts: _abi.PolicyOpts, keep: list[Any]) -> Request[policies.Policy]:
    """The rows of one policy, and its document; or the whole text of what is wrong with one."""
    document: list[bytes] = []
    mistake: list[bytes] = []

    def item(event: _abi.Event) -> Any:
        if event.kind == _abi.DSEC_EV_DATA:
            (mistake if event.stream == 2 else document).append(
                values.data_of(event.data, event.bytes))
        return policies.policy_row(event) if event.kind == _abi.DSEC_EV_ROW else None

    def done(event: _abi.Event, items: list[Any]) -> policies.Policy:
        if mistake:
            error = values.status_of(event.status).exception(what)
            error.add_note(b"".join(mistake).decode("utf-8", "replace"))
            raise error
        check(event, what)
        return policies.policy_of(items, b"".join(document))

    return Request(what, lambda lib, d, call: lib.dsec_policy(d, call, opts), done, item,
                   keep=keep)


def policy_check(document: Text, name: str | None) -> Request[policies.Policy]:
    keep: list[Any] = []
    return gathered("policy check",
                    policy_opts(_abi.DSEC_POLICY_CHECK, name, document, None, keep), keep)


def policy_load(document: Text, name: str | None, version: int | None
                ) -> Request[policies.Policy]:
    keep: list[Any] = []
    return gathered("policy load",
                    policy_opts(_abi.DSEC_POLICY_LOAD, name, document, version, keep), keep)


def policy_show(name: str) -> Request[policies.Policy]:
    keep: list[Any] = []
    return gathered("policy show",
                    policy_opts(_abi.DSEC_POLICY_SHOW, name, None, None, keep), keep)


def policy_list() -> Request[list[policies.PolicyInfo]]:
    opts = policy_opts(_abi.DSEC_POLICY_LIST, None, None, None, [])

    def item(event: _abi.Event) -> Any:
        return policies.policy_row(event) if event.kind == _abi.DSEC_EV_ROW else None

    def done(event: _abi.Event, items: list[Any]) -> list[policies.PolicyInfo]:
        check(event, "policies")
        return items

    return Request("policies", lambda lib, d, call: lib.dsec_policy(d, call, opts), done, item)


def policy_remove(name: str, version: int | None) -> Request[None]:
    opts = policy_opts(_abi.DSEC_POLICY_REMOVE, name, None, version, [])
    return Request("policy remove", lambda lib, d, call: lib.dsec_policy(d, call, opts),
                   nothing("policy remove"))


def phase(sandbox: str, name: str, version: int | None, policy: str | None, kill_old: bool,
          cut_flows: bool, allow_degraded: bool) -> Request[policies.Phase]:
    named, opts = id_of(sandbox), _abi.PhaseOpts()
    opts.name, opts.policy = c_string("name", name), c_string("policy", policy)
    fill(opts, version=version,
         flags=(_abi.DSEC_PHASE_KILL_OLD if kill_old else 0)
         | (_abi.DSEC_PHASE_CUT_FLOWS if cut_flows else 0)
         | (_abi.DSEC_PHASE_ALLOW_DEGRADED if allow_degraded else 0))

    def done(event: _abi.Event, items: list[Any]) -> policies.Phase:
        found = policies.phase_of(event) if event.body else None
        if event.status.code != _abi.DSEC_OK:
            error = values.status_of(event.status).exception("phase")
            error.result = found
            raise error
        assert found
        return found

    return Request("phase", lambda lib, d, call: lib.dsec_phase(d, call, named, opts), done)
