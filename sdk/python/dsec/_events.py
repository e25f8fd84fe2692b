"""Events as libdsec gives them, and how a connection is opened. Used by both links."""
from __future__ import annotations

import ctypes
import errno

from dsec import _abi, values
from dsec._library import Library
from dsec._requests import LONG, SHORT, URGENT, c_string, fill, milliseconds
from dsec._abi import Blame, Code
from dsec.errors import error_make

REQUESTS_STREAM_MAX = 64  # as the engine's, over a socket alone


class Event:
    """One event; `struct` is good until free(), which may be called again."""

    __slots__ = ("_library", "_address", "is_last")

    def __init__(self, library: Library, address: int) -> None:
        self._library, self._address = library, address
        self.is_last = bool(self.struct.flags & _abi.DSEC_LAST)

    @property
    def struct(self) -> _abi.Event:
        if not self._address:
            raise ValueError("the event was freed")
        return _abi.Event.from_address(self._address)

    def free(self) -> None:
        """Gives the memory back, and lets more of its stream come."""
        address, self._address = self._address, 0
        if address:
            self._library.dsec_event_free(address)


class Room:
    """How many requests a connection has under way, of as many as the engine takes at once.

    One more would wait in the ring, with all behind it. So those that may last leave room for short
    ones, and these for what ends others.
    """

    def __init__(self, library: Library, handle: int, asked: int) -> None:
        address = ctypes.c_void_p()
        r = library.dsec_capabilities(handle, ctypes.byref(address))
        if r < 0:
            raise library.fail(r, "connect")
        caps = values.take(_abi.Caps, address.value)
        most = min(max(asked, 8), caps.requests_max or REQUESTS_STREAM_MAX)
        if caps.transport == _abi.DSEC_TRANSPORT_STREAM:
            most = min(most, REQUESTS_STREAM_MAX)
        most = 1 << most.bit_length() - 1
        self._limits = {URGENT: most, SHORT: most - most // 8, LONG: most - most // 4}
        self._counts = {URGENT: 0, SHORT: 0, LONG: 0}

    def fits(self, weight: int) -> bool:
        counts = self._counts
        return weight == URGENT or (counts[SHORT] + counts[LONG] < self._limits[SHORT]
                                    and counts[weight] < self._limits[weight])

    def take(self, weight: int) -> None:
        self._counts[weight] += 1

    def give(self, weight: int) -> None:
        self._counts[weight] -= 1


def connection_open(library: Library, *, address: str | None, token: str | None,
                    tenant: str | None, images: str | None, arena_bytes: int, requests_max: int,
                    connect_timeout: float | None, reconnect_timeout: float | None) -> int:
    """reconnect_timeout 0: never."""
    opts = _abi.OpenOpts()
    fill(opts, arena_bytes=arena_bytes, requests_max=requests_max,
         connect_ms=milliseconds("connect_timeout", connect_timeout))
    opts.address, opts.token = c_string("address", address), c_string("token", token)
    opts.tenant = c_string("tenant", tenant)
    opts.images = c_string("images", images)
    opts.reconnect_ms = 2**32 - 1 if reconnect_timeout == 0 else \
        milliseconds("reconnect_timeout", reconnect_timeout)
    handle = ctypes.c_void_p()
    r = library.dsec_open(ctypes.byref(opts), ctypes.byref(handle))
    if r == -errno.ENOENT and not tenant:  # no socket: as if nobody listened
        detail = library.dsec_error(None, r).decode("utf-8", "replace")
        raise error_make(Code.LOST, Blame.PLATFORM, "connect", "", detail, errno.ENOENT, None)
    if r < 0:
        raise library.fail(r, "connect")
    assert handle.value
    return handle.value
