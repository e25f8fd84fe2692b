"""A program in a sandbox that is followed while it runs."""
from __future__ import annotations

import signal as signals
import warnings
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

from dsec import _abi, _requests
from dsec._abi import Blame, Code
from dsec._events import Event
from dsec._link_aio import Exchange, Link
from dsec._requests import Data, Request, Started
from dsec._file_requests import PIECE_BYTES, pieces
from dsec.errors import DsecCancelledError, DsecError, DsecRefusedError, error_make
from dsec.values import Chunk, Result

END_S, PAUSE_S, KILLS_MAX = 5.0, 0.02, 100


async def finish(link: Link, request: Request[Any]) -> Any:
    """One request, from its sending to its value."""
    exchange = await link.begin(request)
    items = []
    try:
        while event := await exchange.next(lambda event: True):
            try:
                item = request.item(event.struct)
            finally:
                event.free()
            if item is not None:
                items.append(item)
        assert exchange.last
        return request.done(exchange.last.struct, items)
    finally:
        exchange.close()


async def items(link: Link, request: Request[Any]) -> AsyncIterator[Any]:
    """What a request tells, as it comes: the next one comes when the one before was taken."""
    exchange = await link.begin(request)
    try:
        while event := await exchange.next(lambda event: True):
            try:
                item = request.item(event.struct)
            finally:
                event.free()
            if item is not None:
                yield item
        assert exchange.last
        request.done(exchange.last.struct, [])
    finally:
        exchange.close()


async def source(data: Any) -> AsyncIterator[bytes]:
    """The pieces of bytes, of a file that is open, or of what iterates over bytes."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        for piece in pieces(data):
            yield piece
    elif hasattr(data, "read"):
        while chunk := data.read(PIECE_BYTES):
            yield chunk
    elif hasattr(data, "__aiter__"):
        async for chunk in data:
            for piece in pieces(chunk):
                yield piece
    else:
        for chunk in data:
            for piece in pieces(chunk):
                yield piece


async def upload(link: Link, request: Request[Any], data: Any,
                 progress: Callable[[Any], object] | None = None) -> Any:
    """A request whose content follows. Nothing of it appears unless all was given."""
    exchange = await link.begin(request)
    told: list[Any] = []
    failed: DsecError | None = None

    def tell(event: Event) -> None:
        item = request.item(event.struct)
        event.free()
        if progress and item is not None:
            progress(item)
        elif item is not None:
            told.append(item)

    try:
        offset = 0
        try:
            async for piece in source(data):
                await finish(link, _requests.feed(exchange.ticket, offset, piece))
                offset += len(piece)
                while event := await exchange.next(lambda event: True, 0):
                    tell(event)
            await finish(link, _requests.feed(exchange.ticket, offset, b""))
        except DsecError as error:
            failed = error  # mostly since the request is about to end: its own status says more
            while event := await exchange.next(lambda event: True, END_S):
                tell(event)
            exchange.cancel()
        while event := await exchange.next(lambda event: True):
            tell(event)
        assert exchange.last
        try:
            return request.done(exchange.last.struct, told)
        except DsecCancelledError:
            raise failed or DsecCancelledError() from None
    finally:
        exchange.close()


class Stream:
    """stdout or stderr, in chunks: the program waits for who iterates and is slow.

    It ends with the program; where following it failed, that is raised.
    """

    def __init__(self, process: Process, streams: tuple[int, ...]) -> None:
        self._process, self._streams = process, streams

    def __aiter__(self) -> Stream:
        self._process.claimed.update(self._streams)
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self._process.chunk(self._streams)
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def read(self) -> bytes:
        """All that is left of it."""
        return b"".join([chunk async for chunk in self])


class Process:
    """A running program, from start() or attach(). Leaving its context kills what was started.

    exec: its number in its sandbox. stdout, stderr: iterate over them, or over the process for both
    as they come (Chunk.stream tells which). What nobody iterates is dropped by wait(), whose result
    has head and tail of it.
    """

    def __init__(self, link: Link, sandbox: str, exchange: Exchange, attached: int = 0) -> None:
        self.exec, self.sandbox = attached, sandbox
        self._kills = not attached
        self.stdout, self.stderr = Stream(self, (1,)), Stream(self, (2,))
        self.claimed: set[int] = set()
        self._link, self._exchange = link, exchange
        self._result: Result | None = None
        self._error: DsecError | None = None
        self._input_offset = 0

    async def started(self, seconds: float | None = None) -> None:
        """Waits until it runs, or will not: then wait() says why."""
        event = await self._exchange.next(
            lambda event: event.struct.kind == _abi.DSEC_EV_STARTED, seconds)
        if event:
            self._note(event)

    def _note(self, event: Event) -> None:
        item = _requests.exec_item(event.struct)
        event.free()
        if isinstance(item, Started):
            self.exec = item.exec

    async def chunk(self, streams: tuple[int, ...]) -> Chunk | None:
        """The next piece of any of these streams, or a gap; None at their end."""
        event = await self._exchange.next(
            lambda event: event.struct.kind in (_abi.DSEC_EV_DATA, _abi.DSEC_EV_GAP)
            and event.struct.stream in streams)
        if event is None:
            self._settle()
            if self._error:
                raise self._error
            return None
        try:
            return _requests.chunk(event.struct)
        finally:
            event.free()

    def __aiter__(self) -> Stream:
        return Stream(self, (1, 2)).__aiter__()

    async def wait(self) -> Result:
        """How it ended; once more: the same."""
        while not self._result and not self._error:
            event = await self._exchange.next(lambda event: event.struct.kind not in (
                _abi.DSEC_EV_DATA, _abi.DSEC_EV_GAP) or event.struct.stream not in self.claimed)
            if event:
                self._note(event)
            elif not self._result and not self._error:
                self._over()
        if self._error:
            raise self._error
        assert self._result
        return self._result

    def _over(self) -> None:
        """Its last event is there; chunks that nobody took yet stay."""
        assert self._exchange.last
        try:
            result: Result = self._exchange.request.done(self._exchange.last.struct, [])
            self._result, self.exec = result, result.exec
        except DsecError as error:
            self._error = error

    async def write(self, data: Data) -> None:
        """Gives it input; returns when all was taken. BrokenPipeError: nobody reads it any more."""
        for piece in pieces(data):
            await self._feed(piece)
            self._input_offset += len(piece)

    async def close_stdin(self) -> None:
        """The end of its input."""
        await self._feed(b"")

    async def _feed(self, piece: Data) -> None:
        await finish(self._link, _requests.feed(self._exchange.ticket, self._input_offset, piece))

    async def signal(self, signum: int, *, everyone: bool = False, terminal: bool = False) -> None:
        """To the main process; to every process of the exec; SIGHUP: its terminal is hung up."""
        await finish(self._link, _requests.signal(self.sandbox, self.exec, signum, everyone,
                                                  terminal))

    async def kill(self) -> None:
        """SIGKILL to all that it started."""
        await self.signal(signals.SIGKILL, everyone=True)

    async def resize(self, rows: int, columns: int) -> None:
        """The size of its terminal."""
        await finish(self._link, _requests.resize(self.sandbox, self.exec, rows, columns))

    def cancel(self) -> None:
        """Stops following it; it runs on. wait() raises DsecCancelledError."""
        self._kills = False
        self._exchange.cancel()

    async def end(self) -> None:
        """Ends it whatever it does, or what followed it; frees what it said."""
        try:
            if self._kills and not self._link.closed:
                await self._kill_and_drop()
        except DsecError:
            pass  # it ended meanwhile, or the connection did
        finally:
            self._settle()
            self._exchange.close()

    def _settle(self) -> None:
        """Whoever else waits for it gets an answer."""
        if self._exchange.last and not self._result and not self._error:
            self._over()
        elif not self._result and not self._error:
            self._error = error_make(Code.UNKNOWN, Blame.PLATFORM, "exec", "",
                                     "nobody waited for its end", 0, None)

    async def _kill_and_drop(self) -> None:
        last = self._exchange.last
        if self._result or (last and last.struct.status.code == _abi.DSEC_OK):
            return
        if not self.exec:
            # Not cancelled before: that leaves a program that is about to start to itself.
            await self.started(END_S)
        if self.exec:
            await self._kill_surely()
        await self._exchange.drop(END_S)
        if last and self.exec:  # its request was over before, by a deadline
            await finish(self._link, _requests.attach(self.sandbox, self.exec, {}, False, None))

    async def _kill_surely(self) -> None:
        """One that is starting is asked again a moment later."""
        for _ in range(KILLS_MAX):
            try:
                await self.kill()
                return
            except DsecRefusedError as error:
                await self._link.pause(error.retry_after or PAUSE_S)

    def __del__(self) -> None:
        if not self._result and not self._error and not self._link.closed:
            warnings.warn(f"exec {self.exec} was not waited for", ResourceWarning, source=self)
            self._exchange.close()

    async def __aenter__(self) -> Process:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        await self._link.settle(self.end)
