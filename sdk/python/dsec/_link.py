"""A connection that blocks. Threads may share it: each ticket has one waiter at a time.

Waits are cut in slices, so that a KeyboardInterrupt is seen; whoever gives a ticket up cancels it
and frees its events.
"""
from __future__ import annotations

import ctypes
import errno
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from dsec._abi import Blame, Code
from dsec._events import Event, Room, connection_open
from dsec._library import library
from dsec._requests import Request
from dsec.errors import DsecError, error_make, error_of_errno

SLICE_MS = 250
ABANDON_S = 5.0
CLOSE_S = 10.0


class Link:
    """`handle` is used only between enter() and leave(), so that close() can wait for them."""

    def __init__(self, **options: Any) -> None:
        self._library = library()
        self._handle: int | None = connection_open(self._library, **options)
        self._users = 0
        self._quiet = threading.Condition()
        self._room = Room(self._library, self._handle, options["requests_max"])
        self._room_made = threading.Condition()

    @property
    def library(self) -> Any:
        return self._library

    def enter(self) -> int:
        with self._quiet:
            if self._handle is None:
                raise error_of_errno(errno.ENOTCONN, "connection", "it was closed")
            self._users += 1
            return self._handle

    def leave(self) -> None:
        with self._quiet:
            self._users -= 1
            if not self._users:
                self._quiet.notify_all()

    @property
    def closed(self) -> bool:
        return self._handle is None

    def _room_take(self, request: Request[Any]) -> None:
        """Waits until the engine takes one more of its kind."""
        with self._room_made:
            if not self._room_made.wait_for(lambda: self._room.fits(request.weight),
                                            request.timeout):
                raise error_make(Code.DEADLINE, Blame.PLATFORM, request.what, "",
                                 "no room for it", 0, None)
            self._room.take(request.weight)

    def room_give(self, request: Request[Any]) -> None:
        with self._room_made:
            self._room.give(request.weight)
            self._room_made.notify_all()

    def begin(self, request: Request[Any]) -> Exchange:
        self._room_take(request)
        try:
            return Exchange(self, request, self._submit(request))
        except BaseException:
            self.room_give(request)
            raise

    def _submit(self, request: Request[Any]) -> int:
        handle = self.enter()
        try:
            call = request.call(None, 0)
            ticket = request.submit(self._library, handle, ctypes.byref(call))
            if ticket < 0:
                raise self._library.fail(ticket, request.what)
            return ticket
        finally:
            self.leave()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def settle(self, undo: Callable[[], None]) -> None:
        """Runs what undoes a request."""
        undo()

    def close(self) -> None:
        """Other threads' calls end at their next slice, with a DsecLostError."""
        with self._quiet:
            handle, self._handle = self._handle, None
            self._quiet.wait_for(lambda: not self._users, CLOSE_S)
            if handle is not None and not self._users:
                self._library.dsec_close(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._library.dsec_close(self._handle)


class Exchange:
    """A ticket and what came of it: events in order, each taken once, the last one kept."""

    def __init__(self, link: Link, request: Request[Any], ticket: int) -> None:
        self.link, self.request, self.ticket = link, request, ticket
        self.last: Event | None = None
        self._held: deque[Event] = deque()
        self._counted = True
        self._waits = False
        self._changed = threading.Condition()

    def next(self, wanted: Callable[[Event], bool], seconds: float | None = None) -> Event | None:
        """The first that is wanted, for the caller to free. None: none comes, or not in time."""
        end = None if seconds is None else time.monotonic() + seconds
        slice_ms, waited = SLICE_MS, False
        with self._changed:
            while True:
                for event in self._held:
                    if wanted(event):
                        self._held.remove(event)
                        return event
                if end is not None:
                    slice_ms = min(SLICE_MS, int((end - time.monotonic()) * 1000))
                if self.last or (slice_ms <= 0 and waited):
                    return None
                if self._waits:
                    self._changed.wait(max(slice_ms, 0) / 1000)
                else:
                    self._wait(max(slice_ms, 0))
                waited = True

    def _wait(self, slice_ms: int) -> None:
        self._waits = True
        self._changed.release()
        try:
            address = self._wait_slice(slice_ms)
        finally:
            self._changed.acquire()
            self._waits = False
            self._changed.notify_all()
        if address:
            event = Event(self.link.library, address)
            if event.is_last:
                self.last = event
                self._room_give()
            else:
                self._held.append(event)

    def _wait_slice(self, slice_ms: int) -> int | None:
        address = ctypes.c_void_p()
        handle = self.link.enter()
        try:
            r = self.link.library.dsec_wait(handle, self.ticket, slice_ms, ctypes.byref(address))
            if r < 0 and r != -errno.ETIMEDOUT:
                raise self.link.library.fail(r, self.request.what)
        finally:
            self.link.leave()
        return address.value if r == 0 else None

    def cancel(self) -> None:
        """Asks; the last event still comes."""
        if self.last or self.link.closed:
            return
        handle = self.link.enter()
        try:
            self.link.library.dsec_cancel(handle, self.ticket)  # gone: as asked
        finally:
            self.link.leave()

    def drop(self, seconds: float) -> None:
        """Frees all that comes until the last, for so long."""
        end = time.monotonic() + seconds
        while not self.last and time.monotonic() < end:
            event = self.next(lambda event: True, seconds)
            if event:
                event.free()

    def close(self) -> None:
        """Frees all that came; one that goes on is cancelled, and waited for a while."""
        if not self.last and not self.link.closed:
            try:
                self.cancel()
                self.drop(ABANDON_S)
            except DsecError:
                pass  # the ticket is gone, or the connection
        self._free()

    def _room_give(self) -> None:
        if self._counted:
            self._counted = False
            self.link.room_give(self.request)

    def _free(self) -> None:
        self._room_give()
        for event in self._held:
            event.free()
        self._held.clear()
        if self.last:
            self.last.free()

    def __del__(self) -> None:
        self._free()
