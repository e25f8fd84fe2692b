"""A connection of one event loop: one queue, whose descriptor the loop watches. No threads.

Every event of the queue goes to the exchange that its tag names; one that was closed drops what
still comes. Where the shared memory is full requests wait in the order in which they came.
"""
from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from dsec import _abi
from dsec._events import Event, Room, connection_open
from dsec._library import library
from dsec._requests import LONG, SHORT, URGENT, Request
from dsec._abi import Blame, Code
from dsec.errors import DsecError, error_make, error_of_errno

EVENTS_AT_ONCE = 64
MEMORY_S = 0.02  # while the engine is away no event tells that there is room
CLOSE_S = 10.0


def no_room(request: Request[Any]) -> DsecError:
    return error_make(Code.DEADLINE, Blame.PLATFORM, request.what, "", "no room for it", 0, None)


class Link:
    def __init__(self, **options: Any) -> None:
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()
        self._library = library()
        self._exchanges: dict[int, Exchange] = {}
        self._tags = 0
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {SHORT: deque(), LONG: deque()}
        self._memory: set[asyncio.Future[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._events = (ctypes.c_void_p * EVENTS_AT_ONCE)()
        self._watched = False
        self._queue: int | None = None
        self.reconnections = 0
        self._handle: int | None = connection_open(self._library, **options)
        self._room = Room(self._library, self._handle, options["requests_max"])
        self._fd = self._queue_open()
        self._loop.add_reader(self._fd, self._arrived)
        self._watched = True

    def _queue_open(self) -> int:
        queue = ctypes.c_void_p()
        r = self._library.dsec_queue_new(self._handle, ctypes.byref(queue))
        if r == 0:
            self._queue = queue.value
            r = self._library.dsec_queue_fd(self._queue)
        if r < 0:
            raise self._library.fail(r, "connect")
        return int(r)

    @property
    def library(self) -> Any:
        return self._library

    @property
    def closed(self) -> bool:
        return self._handle is None

    def enter(self) -> int:
        if self._handle is None:
            raise error_of_errno(errno.ENOTCONN, "connection", "it was closed")
        if os.getpid() != self._process:
            raise error_of_errno(errno.EOWNERDEAD, "connection", "it is the parent process's")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("this connection belongs to another event loop")
        return self._handle

    def leave(self) -> None:
        """Nothing else runs meanwhile: there is one thread."""

    async def _room_take(self, weight: int) -> None:
        """Waits until the engine takes one more of its kind; in the order of their coming."""
        if weight == URGENT or (not self._waiting[weight] and self._room.fits(weight)):
            self._room.take(weight)
            return
        turn = self._loop.create_future()
        self._waiting[weight].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._room_give(weight)
            raise

    def _room_give(self, weight: int) -> None:
        self._room.give(weight)
        for waits, queue in self._waiting.items():
            while queue and self._room.fits(waits):
                turn = queue.popleft()
                if not turn.done():
                    self._room.take(waits)
                    turn.set_result(None)

    async def begin(self, request: Request[Any]) -> Exchange:
        self.enter()
        try:
            async with asyncio.timeout(request.timeout):
                await self._room_take(request.weight)
        except TimeoutError:
            raise no_room(request) from None
        self._tags += 1
        exchange = Exchange(self, request)
        call = request.call(self._queue, self._tags)
        self._exchanges[self._tags] = exchange
        try:
            exchange.ticket = await self._submit(request, call)
        except BaseException:
            del self._exchanges[call.tag]
            self._room_give(request.weight)
            raise
        return exchange

    async def _submit(self, request: Request[Any], call: _abi.Call) -> int:
        end = None if request.timeout is None else time.monotonic() + request.timeout
        while True:
            ticket = request.submit(self._library, self.enter(), ctypes.byref(call))
            if ticket >= 0:
                return ticket
            if ticket != -errno.EAGAIN:
                raise self._library.fail(ticket, request.what)
            if end is not None and time.monotonic() >= end:
                raise no_room(request)
            memory = self._loop.create_future()
            self._memory.add(memory)
            try:
                await asyncio.wait([memory], timeout=MEMORY_S)
            finally:
                self._memory.discard(memory)

    def _memory_freed(self) -> None:
        for memory in self._memory:
            if not memory.done():
                memory.set_result(None)

    def _arrived(self) -> None:
        while self._queue is not None:
            count = self._library.dsec_queue_poll(self._queue, ctypes.cast(
                self._events, ctypes.POINTER(ctypes.c_void_p)), EVENTS_AT_ONCE, 0)
            for at in range(max(count, 0)):
                self._deliver(Event(self._library, self._events[at] or 0))
            if count <= 0:
                if count < 0:
                    self._unwatch()  # lost for good: nothing comes any more
                return

    def _deliver(self, event: Event) -> None:
        struct = event.struct
        exchange = self._exchanges.get(struct.tag)
        if event.is_last and exchange:
            del self._exchanges[struct.tag]
            self._memory_freed()
            self._room_give(exchange.request.weight)
        if exchange is None:
            self.reconnections += struct.kind == _abi.DSEC_EV_RECONNECTED
            event.free()
        else:
            exchange.deliver(event)

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self._fd)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def settle(self, undo: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Waits for what undoes a request; it goes on when the waiting task is cancelled again."""
        task = self._loop.create_task(undo())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Cancels what is under way and waits for it to end, for a while."""
        if self._handle is None or os.getpid() != self._process:
            self._end()
            return
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=CLOSE_S)
        for exchange in list(self._exchanges.values()):
            exchange.cancel()
            exchange.drop_all()
        end = time.monotonic() + CLOSE_S
        while self._exchanges and self._watched and time.monotonic() < end:
            await asyncio.sleep(0.005)
        self._end()

    def _end(self) -> None:
        handle, self._handle = self._handle, None
        queue, self._queue = self._queue, None
        if handle is None:
            return
        # In a forked child the loop's selector is the parent's too.
        if not self._loop.is_closed() and os.getpid() == self._process:
            self._unwatch()
        if queue is not None:
            self._library.dsec_queue_free(queue)
        self._library.dsec_close(handle)
        for exchange in list(self._exchanges.values()):
            exchange.lose()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._end()


class Exchange:
    """A ticket and what came of it: events in order, each taken once, the last one kept."""

    def __init__(self, link: Link, request: Request[Any]) -> None:
        self.link, self.request, self.ticket = link, request, -1
        self.last: Event | None = None
        self._held: deque[Event] = deque()
        self._dropping = self._closed = self._lost = False
        self._waiters: set[asyncio.Future[None]] = set()

    def deliver(self, event: Event) -> None:
        if self._closed or (self._dropping and not event.is_last):
            event.free()
        elif not event.is_last:
            self._held.append(event)
        if event.is_last:
            self.last = event
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def lose(self) -> None:
        """The connection was closed under it."""
        self._lost = True
        self._wake()

    async def next(self, wanted: Callable[[Event], bool], seconds: float | None = None
                   ) -> Event | None:
        """The first that is wanted, for the caller to free. None: none comes, or not in time."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            for event in self._held:
                if wanted(event):
                    self._held.remove(event)
                    return event
            left = None if end is None else end - time.monotonic()
            if self.last or (left is not None and left <= 0):
                return None
            if self._lost:
                raise error_of_errno(errno.ENOTCONN, self.request.what, "the connection was closed")
            waiter = self.link._loop.create_future()
            self._waiters.add(waiter)
            try:
                if left is None:
                    await waiter
                else:
                    await asyncio.wait([waiter], timeout=left)
            finally:
                self._waiters.discard(waiter)

    def cancel(self) -> None:
        """Asks; the last event still comes."""
        if not self.last and not self.link.closed:
            # -ENOENT: it ended, and its last event is on its way.
            self.link.library.dsec_cancel(self.link.enter(), self.ticket)

    async def drop(self, seconds: float) -> None:
        """Frees all that comes until the last, for so long."""
        end = time.monotonic() + seconds
        while not self.last and time.monotonic() < end:
            event = await self.next(lambda event: True, end - time.monotonic())
            if event:
                event.free()

    def close(self) -> None:
        """Frees all that came, and will come; one that goes on is cancelled."""
        self._closed = True
        if self.ticket >= 0:
            self.cancel()
        self.drop_all()
        if self.last:
            self.last.free()
        self._wake()

    def drop_all(self) -> None:
        """Only the last event matters any more."""
        self._dropping = True
        for event in self._held:
            event.free()
        self._held.clear()

    def __del__(self) -> None:
        for event in [*self._held, *([self.last] if self.last else [])]:
            event.free()
