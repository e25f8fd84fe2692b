"""A connection to an engine."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, List, Unpack

from dsec import _abi, _file_requests, _function_requests, _policy_requests, _requests, values
from dsec._function_aio import Function
from dsec._link_aio import Exchange, Link
from dsec._process_aio import finish, upload
from dsec._requests import Data, Made, Request, Text
from dsec._sandbox_aio import Sandbox, with_options
from dsec._subscription_aio import Subscription
from dsec.errors import DsecError
from dsec.options import (CALL_OPTIONS, CallOptions, CreateOptions, ExecOptions,
                          FunctionOptions)
from dsec.policies import Policy, PolicyInfo
from dsec.values import Capabilities, FunctionInfo, ImageInfo, Progress, Result, SandboxInfo, Usage

END_S = 5.0
CREATE_DEFAULTS: dict[str, Any] = {
    "policy": None, "backend": None, "hostname": None, "user": None, "job": None, "labels": None,
    "env": None, "network": None, "ttl": None, "idle_ttl": None, "on_timeout": None,
    "on_disconnect": None, "allow_degraded": False, "fresh_root": False, "sched_idle": False,
}

FUNCTION_DEFAULTS: dict[str, Any] = {
    "cwd": None, "user": None, "env": None, "policy": None, "isolation": None, "cpu": None,
    "wall": None,
    "allow_degraded": False, "image_command": False,
}


def connect(address: str | None = None, *, token: str | None = None, tenant: str | None = None,
            images: str | None = None, arena_bytes: int = 0, requests_max: int = 512,
            connect_timeout: float | None = None, reconnect_timeout: float | None = None) -> Client:
    """Connects; None: $DSEC_ADDRESS, and without it unix:/run/dsec.sock; "private:": a new engine.

    tenant: of a gateway: for whom it acts; "*": it sees all and makes nothing.
    requests_max: how many may be under way, as far as the engine allows; more wait here.
    reconnect_timeout: how long to try when the engine went; 0: never. With asyncio the greeting, a
    few milliseconds, is waited for at once, and at most connect_timeout (10 s).
    """
    return Client(Link(address=address, token=token, tenant=tenant, images=images,
                       arena_bytes=arena_bytes, requests_max=requests_max,
                       connect_timeout=connect_timeout, reconnect_timeout=reconnect_timeout))


class Client:
    """A connection. Leaving its context closes it; sandboxes stay, but for on_disconnect."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection, and sandboxes of destroy_on_disconnect; as often as you like."""
        await self._link.close()

    def capabilities(self) -> Capabilities:
        """What the engine is and can do, as it said when this connection began."""
        address = ctypes.c_void_p()
        handle = self._link.enter()
        try:
            r = self._link.library.dsec_capabilities(handle, ctypes.byref(address))
            if r < 0:
                raise self._link.library.fail(r, "capabilities")
            return values.capabilities_of(address.value or 0)
        finally:
            self._link.leave()

    # ---- sandboxes ----

    async def create(self, image: str, **options: Unpack[CreateOptions]) -> Sandbox:
        """A sandbox. Use it as a context to have it destroyed."""
        made, = await self.create_many(1, image, **options)
        if isinstance(made, DsecError):
            raise made
        return made

    async def create_many(self, count: int, image: str, **options: Unpack[CreateOptions]
                          ) -> List[Sandbox | DsecError]:
        """So many alike in one request: each is a sandbox, or what was in its way.

        Whoever gives up destroys those that were made.
        """
        given: dict[str, Any] = {**CREATE_DEFAULTS, **options}
        for name in CALL_OPTIONS:
            given.pop(name, None)
        request = with_options(_requests.create(image, count, **given), options)
        exchange = await self._link.begin(request)
        items: list[Made | DsecError] = []
        try:
            while event := await exchange.next(lambda event: True):
                items.append(request.item(event.struct))
                event.free()
            assert exchange.last
            made = request.done(exchange.last.struct, items)
        except BaseException:
            await self._link.settle(partial(self._undo, exchange, request, items))
            raise
        exchange.close()
        return [Sandbox(self._link, one.id, one.settings) if isinstance(one, Made) else one
                for one in made]

    async def _undo(self, exchange: Exchange, request: Request[Any],
                    items: list[Made | DsecError]) -> None:
        """Cancels a create, and destroys what was faster."""
        try:
            exchange.cancel()
            while event := await exchange.next(lambda event: True, END_S):
                items.append(request.item(event.struct))
                event.free()
            made = [one.id for one in items if isinstance(one, Made)]
            if made:
                await finish(self._link, _requests.destroy(made))
        except DsecError:
            pass  # what cannot be reached is not there any more, or goes by its ttl
        finally:
            exchange.close()

    def sandbox(self, id: str) -> Sandbox:
        """One that is there, by its id; nothing is asked yet."""
        return Sandbox(self._link, id)

    async def run(self, image: str, argv: Sequence[Text], *, input: Data | None = None,
                  create: CreateOptions | None = None, **options: Unpack[ExecOptions]) -> Result:
        """A program in a sandbox of its own, which goes with it."""
        async with await self.create(image, **(create or {})) as sandbox:
            return await sandbox.exec(argv, input=input, **options)

    async def list(self, *, labels: Mapping[str, str] | None = None, limit: int | None = None
                   ) -> List[SandboxInfo]:
        """Those that have every label, in the order of their ids."""
        rows: list[SandboxInfo] = await finish(self._link, _requests.list_sandboxes(labels, limit))
        return rows

    async def destroy(self, ids: Sequence[str] | None = None, *,
                      labels: Mapping[str, str] | None = None, job: str | None = None) -> None:
        """Those named, or all that have every label. Nothing named is an error, not everything."""
        await finish(self._link, _requests.destroy(ids, labels, job))

    async def stats(self, ids: Sequence[str] | None = None, *,
                    labels: Mapping[str, str] | None = None, job: str | None = None) -> List[Usage]:
        """What sandboxes use now, read when asked: of these ids, or of all with these labels."""
        rows: list[Usage] = await finish(self._link, _requests.stats(ids, labels, job))
        return rows

    async def change(self, ids: Sequence[str] | None = None, *,
                     where: Mapping[str, str] | None = None, job: str | None = None,
                     ttl: float | None = None, idle_ttl: float | None = None,
                     on_timeout: str | None = None,
                     labels: Mapping[str, str | None] | None = None) -> List[str]:
        """Sandbox.change() for those named, or with the labels `where`: the ids of the changed."""
        changed: list[str] = await finish(self._link, _requests.change(
            ids, where, job, ttl, idle_ttl, on_timeout, labels))
        return changed

    async def fetched(self, path: str, ids: Sequence[str] | None = None, *,
                      where: Mapping[str, str] | None = None, job: str | None = None) -> List[str]:
        """Of who serves packages: these were seen to fetch that; the ids of those whose own it is.

        A sandbox's own is what its label task.repository names: the anomaly proxy-own-repository.
        """
        own: list[str] = await finish(self._link, _requests.fetched(path, ids, where, job))
        return own

    async def subscribe(self, *, topics: Iterable[str] | None = None,
                        ids: Sequence[str] | None = None,
                        labels: Mapping[str, str] | None = None, job: str | None = None,
                        from_seq: int = 0, epoch: int = 0, window: int = 0) -> Subscription:
        """What happens from now on, or from a number on (with the epoch of its engine).

        topics: "creating", "running", "destroying", "quarantined", "ended", "exec-started",
        "phase", "exec-ended", "image-imported", "image-replaced", "image-removed", "violation",
        "anomaly"; None: all. Of sandboxes named, or with every label; else of all, and of images.
        """
        request = _requests.subscribe(ids, labels, job, topics, from_seq, epoch, window)
        return await Subscription(self._link).begin(request)

    async def check(self) -> dict[str, int | None]:
        """The engine's own account of what it holds. None: not told to this tenant."""
        held: dict[str, int | None] = await finish(self._link, _requests.holdings())
        return held

    # ---- functions ----

    async def register(self, name: str, image: str, argv: Sequence[Text],
                       **options: Unpack[FunctionOptions]) -> Function:
        """A program and its limits, to be called often. The same again is the same function."""
        given: dict[str, Any] = {**FUNCTION_DEFAULTS, **options}
        for option in CALL_OPTIONS:
            given.pop(option, None)
        request = _function_requests.register(name, image, argv, **given)
        return Function(self._link, await finish(self._link, with_options(request, options)))

    def function(self, id: str) -> Function:
        """One that is registered, by its id; nothing is asked yet."""
        return Function(self._link, id)

    async def functions(self) -> List[FunctionInfo]:
        """The functions there are."""
        found: List[FunctionInfo] = await finish(self._link, _function_requests.functions())
        return found

    # ---- policies ----

    async def policy_check(self, document: Text, *, name: str | None = None) -> Policy:
        """Is it right, and what does it say; nothing is kept. DsecInvalidError: where it is not."""
        found: Policy = await finish(self._link, _policy_requests.policy_check(document, name))
        return found

    async def policy_load(self, document: Text, *, name: str | None = None,
                          version: int | None = None, **options: Unpack[CallOptions]) -> Policy:
        """There under its name from now on, as a new version; version: only over that one."""
        found: Policy = await finish(self._link, with_options(
            _policy_requests.policy_load(document, name, version), options))
        return found

    async def policy_show(self, name: str) -> Policy:
        """With its document, its rules and how this host enforces them."""
        found: Policy = await finish(self._link, _policy_requests.policy_show(name))
        return found

    async def policy_list(self) -> List[PolicyInfo]:
        """The ready-made, and the tenant's own."""
        rows: list[PolicyInfo] = await finish(self._link, _policy_requests.policy_list())
        return rows

    async def policy_diff(self, one: str, other: str) -> tuple[List[str], List[str]]:
        """Texts of rules that only the one has, and that only the other has."""
        rules = [[rule.text for rule in (await self.policy_show(name)).rules]
                 for name in (one, other)]
        return ([text for text in rules[0] if text not in rules[1]],
                [text for text in rules[1] if text not in rules[0]])

    async def policy_remove(self, name: str, *, version: int | None = None,
                            **options: Unpack[CallOptions]) -> None:
        """Sandboxes that have it keep it. DsecDeniedError: it is ready-made."""
        await finish(self._link, with_options(_policy_requests.policy_remove(name, version),
                                              options))

    # ---- images ----

    async def image_import(self, name: str, data: Any, *, kind: str | None = None,
                           tag: str | None = None, layer: bool = False,
                           progress: Callable[[Progress], object] | None = None) -> ImageInfo:
        """Makes an image of a tar archive, plain, gzip or zstd: bytes, an open file, or iterates.

        kind: "tree" (a root file system), "archive" (docker save, OCI); None: told by its names.
        tag: which image of an archive that holds several. layer: it lies over other images.
        """
        info: ImageInfo = await upload(
            self._link, _file_requests.image_import(name, kind, tag, layer), data,
            progress or (lambda item: None))
        return info

    async def image_list(self) -> List[ImageInfo]:
        """The images there are, in order of their names."""
        rows: list[ImageInfo] = await finish(self._link, _file_requests.image_list())
        return rows

    async def image_inspect(self, name: str) -> ImageInfo:
        """With its record (JSON), where it was imported."""
        info: ImageInfo = await finish(self._link, _file_requests.image_inspect(name))
        return info

    async def image_remove(self, name: str) -> None:
        """DsecConflictError while sandboxes use it."""
        await finish(self._link, _file_requests.image_remove(name))

    async def _image_job(self, what: str, name: str | None,
                         progress: Callable[[Progress], object] | None, **given: Any) -> Any:
        return await finish(self._link, _file_requests.image_job(what, name, progress, **given))

    async def image_compose(self, name: str, parts: Sequence[str], *,
                            progress: Callable[[Progress], object] | None = None) -> ImageInfo:
        """One image of several, the lowest first."""
        info: ImageInfo = await self._image_job("compose", name, progress, texts=parts)
        return info

    async def image_gc(self, *, dry_run: bool = False,
                       progress: Callable[[Progress], object] | None = None) -> dict[str, Any]:
        """Contents that no image needs go; the report says what."""
        report: dict[str, Any] = await self._image_job(
            "gc", None, progress, flags=_abi.DSEC_IMAGE_DRY_RUN if dry_run else 0)
        return report

    async def image_verify(self, name: str | None = None, *, lazy: bool = False,
                           progress: Callable[[Progress], object] | None = None
                           ) -> dict[str, Any]:
        """All that images are made of, against its digests; an error's result is the report.

        lazy: contents that come when they are read may be missing.
        """
        report: dict[str, Any] = await self._image_job(
            "verify", name, progress, flags=_abi.DSEC_IMAGE_LAZY if lazy else 0)
        return report

    async def image_push(self, name: str, target: str, *, zstd: bool = False,
                         progress: Callable[[Progress], object] | None = None) -> dict[str, Any]:
        """To "oci:DIR[:TAG]" of the engine's machine."""
        report: dict[str, Any] = await self._image_job(
            "push", name, progress, texts=[target], flags=_abi.DSEC_IMAGE_ZSTD if zstd else 0)
        return report

    async def image_pull(self, source: str, name: str = "", *, lazy: bool = False,
                         progress: Callable[[Progress], object] | None = None) -> ImageInfo:
        """From where image_push() put it, "http://ADDRESS#TAG", or a name in the engine's remote.

        name: what it is called here, by default as in the remote. lazy: contents come when read.
        """
        info: ImageInfo = await self._image_job(
            "pull", name or source, progress, texts=[source],
            flags=_abi.DSEC_IMAGE_LAZY if lazy else 0)
        return info

    async def image_pack(self, sandbox: str, name: str, *, wipe: Sequence[str] = ("all",),
                         scan: Sequence[str] = (), layer: bool = False, flatten: bool = False,
                         kill: bool = False,
                         progress: Callable[[Progress], object] | None = None) -> ImageInfo:
        """An image of a sandbox's files: all that it runs on, or with `layer` what it wrote alone.

        flatten: one layer of all there is, so that what is wiped is in none below.
        kill: all that runs in it ends first, instead of standing still.

        wipe: rules of residue, "/globs", "all", "none"; scan: what must not be in it.
        """
        info: ImageInfo = await self._image_job(
            "pack", name, progress, sandbox=sandbox,
            flags=((_abi.DSEC_IMAGE_LAYER if layer else 0)
                   | (_abi.DSEC_IMAGE_FLATTEN if flatten else 0)
                   | (_abi.DSEC_IMAGE_KILL if kill else 0)),
            texts=[f"wipe:{rule}" for rule in wipe] + [f"scan:{canary}" for canary in scan])
        return info

    async def image_hotset(self, name: str | None = None) -> dict[str, Any]:
        """What of images is read most."""
        report: dict[str, Any] = await self._image_job("hotset", name, None)
        return report
