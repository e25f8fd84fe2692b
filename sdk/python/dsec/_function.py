"""Written by generate.py from _function_aio.py: edit that."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from dsec import _function_requests
from dsec._link import Link
from dsec._process import finish
from dsec._requests import Data
from dsec._sandbox import with_options
from dsec.errors import DsecError
from dsec.options import CallOptions
from dsec.values import Called


class Function:
    """From Client.register(), or by its id. It stays until it is removed or the engine ends."""

    def __init__(self, link: Link, id: str) -> None:
        self._link, self.id = link, id

    def __repr__(self) -> str:
        return f"<dsec function {self.id}>"

    def invoke(self, input: Data = b"", **options: Unpack[CallOptions]) -> Called:
        """One call: its verdict and output. What kept it from being made is raised."""
        called, = self.invoke_many([input], **options)
        if isinstance(called, DsecError):
            raise called
        return called

    def invoke_many(self, inputs: Sequence[Data], **options: Unpack[CallOptions]
                          ) -> list[Called | DsecError]:
        """A call per input, 1,024 and 1 MiB at most, in one request: what became of each."""
        request = with_options(_function_requests.invoke(self.id, inputs), options)
        called: list[Called | DsecError] = finish(self._link, request)
        return called

    def remove(self) -> None:
        """Calls that were taken still end as they do."""
        finish(self._link, _function_requests.remove(self.id))
