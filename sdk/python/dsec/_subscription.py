"""Written by generate.py from _subscription_aio.py: edit that."""
from __future__ import annotations

from types import TracebackType

from dsec import _requests
from dsec._link import Link
from dsec._requests import Request
from dsec.news import Missed, News


class Subscription:
    """From Client.subscribe(): iterate over it. Leaving its context ends it.

    first_seq: all that happens from this number on is told: list after subscribing, and nothing is
    missed. A Missed stands where events are gone.
    """

    def __init__(self, link: Link, first_seq: int = 0) -> None:
        self.first_seq = first_seq
        self._link = link
        self._closed = False

    def begin(self, request: Request[None]) -> Subscription:
        """For Client.subscribe(): it is there when this returns."""
        self._exchange = self._link.begin(request)
        try:
            event = self._exchange.next(lambda event: True)
            if event:
                self.first_seq = event.struct.offset
                event.free()
            else:
                self._over()
        except BaseException:
            self._exchange.close()
            raise
        return self

    def _over(self) -> None:
        assert self._exchange.last
        self._exchange.request.done(self._exchange.last.struct, [])

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> News | Missed:
        while not self._closed:
            event = self._exchange.next(lambda event: True)
            if event is None:
                if not self._closed:
                    self._over()
                break
            try:
                item = _requests.news(event.struct)
            finally:
                event.free()
            if item:
                return item
        raise StopIteration

    def close(self) -> None:
        """Whoever iterates over it comes to an end."""
        self._closed = True
        self._exchange.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        traceback: TracebackType | None) -> None:
        self.close()
