"""A sandbox: programs in it, its files, its ports."""
from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, List, Unpack

from dsec import _abi, _file_requests, _policy_requests, _requests
from dsec._link_aio import Link
from dsec._process_aio import Process, finish, items, upload
from dsec._requests import Data, Made, Request, Text
from dsec._subscription_aio import Subscription
from dsec.errors import DsecError
from dsec.options import CALL_OPTIONS, CallOptions, ExecOptions, StartOptions
from dsec.policies import Phase
from dsec.values import (ExecInfo, FileInfo, FileResult, Forward, Inspection, Result,
                         Settings, State, Usage)

EXEC_DEFAULTS: dict[str, Any] = {
    "env": None, "cwd": None, "user": None, "timeout": None, "idle_timeout": None,
    "kill_after": None, "rlimits": None, "merge_stderr": False, "image_command": False,
}
INPUT_BYTES_MAX = 64 << 10  # what is larger is typed while the program runs


def with_options(request: Request[Any], options: Mapping[str, Any]) -> Request[Any]:
    request.timeout = options.get("request_timeout")
    request.request_id = options.get("request_id")
    request.once = bool(options.get("once"))
    return request


class Sandbox:
    """One sandbox, from create() or by its id. Leaving its context destroys it.

    settings: those in force, as create() told them; None where it was found by its id.
    """

    def __init__(self, link: Link, id: str, settings: Settings | None = None) -> None:
        _requests.id_of(id)
        self._link, self.id, self.settings = link, id, settings

    def __repr__(self) -> str:
        return f"<dsec sandbox {self.id}>"

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        await self._link.settle(self.destroy)

    async def destroy(self) -> None:
        """Returns when nothing of it runs; one that is gone already is fine."""
        await finish(self._link, _requests.destroy([self.id]))

    # ---- programs ----

    def _execute(self, argv: Sequence[Text], flags: int, options: Mapping[str, Any],
                 input: Data | None = None) -> Request[Result]:
        given: dict[str, Any] = {**EXEC_DEFAULTS, **options}
        for name in (*CALL_OPTIONS, "stdin", "tty"):
            given.pop(name, None)
        return with_options(_requests.execute(self.id, argv, flags, input=input, **given), options)

    async def exec(self, argv: Sequence[Text], *, input: Data | None = None,
                   **options: Unpack[ExecOptions]) -> Result:
        """Runs a program and waits for it. However it ended is in the result, not an exception.

        Whoever gives up (a cancelled task, a KeyboardInterrupt) kills all that it started.
        """
        if input is not None and len(input) > INPUT_BYTES_MAX:
            return await self._exec_with_stream(argv, input, options)
        request = self._execute(argv, _abi.DSEC_EXEC_CAPTURE, options, input)
        process = Process(self._link, self.id, await self._link.begin(request))
        try:
            return await process.wait()
        finally:
            await self._link.settle(process.end)

    async def _exec_with_stream(self, argv: Sequence[Text], input: Data,
                                options: Mapping[str, Any]) -> Result:
        request = self._execute(argv, _abi.DSEC_EXEC_CAPTURE | _abi.DSEC_EXEC_INPUT_STREAM,
                                options)
        process = Process(self._link, self.id, await self._link.begin(request))
        try:
            await process.started()
            try:
                await process.write(input)
                await process.close_stdin()
            except (BrokenPipeError, LookupError):
                pass  # it did not want all of it, or it ended
            return await process.wait()
        finally:
            await self._link.settle(process.end)

    async def start(self, argv: Sequence[Text], **options: Unpack[StartOptions]) -> Process:
        """Starts a program to follow: its streams live, and in the result head and tail.

        Use it as a context: leaving it kills what runs still.
        """
        flags = _abi.DSEC_EXEC_STREAM | _abi.DSEC_EXEC_CAPTURE
        flags |= _abi.DSEC_EXEC_INPUT_STREAM if options.get("stdin") else 0
        flags |= _abi.DSEC_EXEC_TTY if options.get("tty") else 0
        process = Process(self._link, self.id,
                          await self._link.begin(self._execute(argv, flags, options)))
        try:
            await process.started()
        except BaseException:
            await self._link.settle(process.end)
            raise
        return process

    async def start_detached(self, argv: Sequence[Text], **options: Unpack[ExecOptions]) -> int:
        """Starts a program that runs on by itself: the exec's number, for attach() and execs()."""
        result = await finish(self._link, self._execute(argv, _abi.DSEC_EXEC_DETACH, options))
        if result.status.code != _abi.Code.OK:
            raise result.status.exception("exec")
        return int(result.exec)

    async def attach(self, exec: int, *, stdout: int = 0, stderr: int = 0, so_far: bool = False,
                     window_bytes: int | None = None) -> Process:
        """Follows an exec that runs, or is over and kept, from these offsets on; -1: from now on.

        so_far: what there is now, without waiting for more. Leaving its context kills nothing.
        """
        offsets = {stream: 2**64 - 1 if offset == -1 else offset
                   for stream, offset in ((1, stdout), (2, stderr)) if offset}
        request = _requests.attach(self.id, exec, offsets, so_far, window_bytes)
        process = Process(self._link, self.id, await self._link.begin(request), exec)
        try:
            await process.started()
        except BaseException:
            await self._link.settle(process.end)
            raise
        return process

    async def execs(self) -> list[ExecInfo]:
        """Programs that run, and those that are over and kept."""
        rows: list[ExecInfo] = await finish(self._link, _requests.list_execs(self.id))
        return rows

    async def signal(self, exec: int, signum: int, *, everyone: bool = False,
                     terminal: bool = False) -> None:
        """To the main process of an exec; everyone: to all its processes."""
        await finish(self._link, _requests.signal(self.id, exec, signum, everyone, terminal))

    async def resize(self, exec: int, rows: int, columns: int) -> None:
        """The size of an exec's terminal."""
        await finish(self._link, _requests.resize(self.id, exec, rows, columns))

    # ---- files: paths from its root, names byte-exact ----

    async def read(self, path: Text, *, offset: int = 0, bytes_max: int = 0,
                   user: str | None = None, follow: bool = True) -> bytes:
        """What a file holds; bytes_max: at most so much."""
        return b"".join([chunk async for chunk in self.read_chunks(
            path, offset=offset, bytes_max=bytes_max, user=user, follow=follow)])

    def read_chunks(self, path: Text, *, offset: int = 0, bytes_max: int = 0,
                    user: str | None = None, follow: bool = True) -> AsyncIterator[bytes]:
        """The same, piece by piece: no more is sent than was taken, but for a window."""
        return items(self._link, _file_requests.read(
            self.id, path, offset=offset, bytes_max=bytes_max, tar=False, user=user, follow=follow))

    def tar_out(self, path: Text, *, user: str | None = None) -> AsyncIterator[bytes | FileInfo]:
        """The file or the tree at a path as a tar archive (pax), and a FileInfo per left out."""
        return items(self._link, _file_requests.read(
            self.id, path, offset=0, bytes_max=0, tar=True, user=user, follow=True))

    async def _write(self, path: Text, data: Any, flags: int, mode: int | None,
                     user: str | None) -> FileResult:
        whole = isinstance(data, (bytes, bytearray, memoryview)) \
            and len(data) <= _file_requests.INLINE_BYTES_MAX
        request = _file_requests.write(self.id, path, data if whole else None, flags=flags,
                                       mode=mode, user=user)
        done: FileResult = await finish(self._link, request) if whole \
            else await upload(self._link, request, data)
        return done

    async def write(self, path: Text, data: Any, *, mode: int | None = None,
                    exclusive: bool = False, user: str | None = None) -> FileResult:
        """Makes or replaces a file, at once and whole: data is bytes, an open file, or iterates."""
        flags = _abi.DSEC_FILE_EXCLUSIVE if exclusive else 0
        return await self._write(path, data, flags, mode, user)

    async def append(self, path: Text, data: Any, *, mode: int | None = None,
                     user: str | None = None) -> FileResult:
        """As write(), to the end of what is there."""
        return await self._write(path, data, _abi.DSEC_FILE_APPEND, mode, user)

    async def tar_in(self, path: Text, data: Any, *, parents: bool = False, owners: bool = False,
                     user: str | None = None) -> FileResult:
        """Unpacks a tar archive into a folder; what was left out of it is in the result."""
        flags = _abi.DSEC_FILE_TAR | (_abi.DSEC_FILE_PARENTS if parents else 0)
        flags |= _abi.DSEC_FILE_OWNERS if owners else 0
        request = _file_requests.write(self.id, path, None, flags=flags, mode=None, user=user)
        done: FileResult = await upload(self._link, request, data)
        return done

    async def stat(self, path: Text, *, follow: bool = True, user: str | None = None) -> FileInfo:
        """What there is at a path; of a link the link, where follow is False."""
        info: FileInfo = await finish(self._link, _file_requests.stat(self.id, path, follow, user))
        return info

    async def exists(self, path: Text, *, user: str | None = None) -> bool:
        """Whether stat() finds something, a broken link too."""
        try:
            await self.stat(path, follow=False, user=user)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def list(self, path: Text, *, user: str | None = None) -> AsyncIterator[FileInfo]:
        """The names in a folder, in the order of their bytes."""
        after: Text | None = None
        more = True
        while more:
            rows, more = await finish(self._link, _file_requests.page(self.id, path, after, user))
            more = more and bool(rows)
            for row in rows:
                after = row.name
                yield row

    async def mkdir(self, path: Text, *, mode: int | None = None, parents: bool = False,
                    user: str | None = None) -> None:
        """A folder; with parents also what is missing above it, and it may be there already."""
        await finish(self._link, _file_requests.file(
            self.id, _abi.DSEC_FILE_MKDIR, "mkdir", path, mode=mode, user=user,
            flags=_abi.DSEC_FILE_PARENTS if parents else 0))

    async def remove(self, path: Text, *, recursive: bool = False,
                     user: str | None = None) -> FileResult:
        """A name, or a folder that is empty; recursive: with all that is under it."""
        done: FileResult = await finish(self._link, _file_requests.file(
            self.id, _abi.DSEC_FILE_REMOVE, "remove", path, user=user,
            flags=_abi.DSEC_FILE_RECURSIVE if recursive else 0))
        return done

    async def rename(self, path: Text, to: Text, *, exclusive: bool = False,
                     user: str | None = None) -> None:
        """Another name in place of what has it; exclusive: only where nothing has."""
        await finish(self._link, _file_requests.file(
            self.id, _abi.DSEC_FILE_RENAME, "rename", path, to=to, user=user,
            flags=_abi.DSEC_FILE_EXCLUSIVE if exclusive else 0))

    def watch(self, path: Text, *, user: str | None = None) -> AsyncIterator[FileInfo]:
        """Changes in a folder, FileInfo.changes, while iterated; the first has none: it begins."""
        return items(self._link, _file_requests.file(
            self.id, _abi.DSEC_FILE_WATCH, "watch", path, user=user))

    # ---- the rest ----

    async def port(self, number: int, *, wait: float | None = None, revoke: bool = False
                   ) -> Forward:
        """A way to a port of network "private"; wait: until something listens there, so long."""
        way: Forward = await finish(self._link, _requests.port(self.id, number, wait, revoke))
        return way

    async def phase(self, name: str, *, version: int | None = None, policy: str | None = None,
                    kill_old: bool = False, cut_flows: bool = False,
                    allow_degraded: bool = False, **options: Unpack[CallOptions]) -> Phase:
        """Moves it to another phase, if it is in that version; kill_old: nothing of before runs.

        A policy it brings must allow no more than the one before. DsecConflictError.phase: what it
        is in instead.
        """
        moved: Phase = await finish(self._link, with_options(_policy_requests.phase(
            self.id, name, version, policy, kill_old, cut_flows, allow_degraded), options))
        return moved

    async def fork(self, count: int = 1) -> List[Sandbox | DsecError]:
        """So many more whose files begin as its are now: each a sandbox, or what was in its way."""
        made: list[Any] = await finish(self._link, _requests.fork(self.id, count))
        return [type(self)(self._link, one.id, one.settings) if isinstance(one, Made) else one
                for one in made]

    async def stats(self) -> Usage:
        """What it uses now."""
        rows: list[Usage] = await finish(self._link, _requests.stats([self.id], None, None))
        return rows[0]

    async def inspect(self) -> Inspection:
        """As it is now; of one that is gone, why, for a while."""
        found: Inspection = await finish(self._link, _requests.inspect(self.id))
        return found

    async def wait(self) -> Inspection:
        """Waits until it is gone, for whatever reason: the last that is known of it."""
        request = _requests.subscribe([self.id], None, None, ["ended"], 0, 0, 0)
        async with await Subscription(self._link).begin(request) as events:
            found = await self.inspect()
            if found.state != State.ENDED:
                async for _ in events:
                    found = await self.inspect()
                    if found.state == State.ENDED:
                        break
        return found

    async def change(self, *, ttl: float | None = None, idle_ttl: float | None = None,
                     on_timeout: str | None = None,
                     labels: Mapping[str, str | None] | None = None) -> None:
        """Only what is given. Times count from now on, 0: the default. A label of None goes."""
        await finish(self._link, _requests.change([self.id], None, None, ttl, idle_ttl, on_timeout,
                                                  labels))
