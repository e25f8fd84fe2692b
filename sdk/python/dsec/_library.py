"""Finds libdsec and loads it, once per process."""
from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

from dsec import _abi
from dsec.errors import DsecError, error_make, error_of_errno

NAME = "libdsec.so.1"


class Library(_abi.Library):
    """The functions, and what those that fail say."""

    def __getattr__(self, name: str) -> Any:
        if name in _abi.FUNCTIONS:
            raise error_make(_abi.Code.UNSUPPORTED, _abi.Blame.CALLER, name, "",
                             "the libdsec that was found is older and lacks it", 0, None)
        raise AttributeError(name)

    def fail(self, number: int, what: str) -> DsecError:
        """The exception for what a function returned, in the thread that called it."""
        text = self.dsec_error(None, number)
        return error_of_errno(-number, what, text.decode("utf-8", "replace"))


def candidates() -> list[str]:
    """$DSEC_LIBRARY alone; else beside an installed prefix, then whatever the loader knows."""
    named = os.environ.get("DSEC_LIBRARY")
    if named:
        return [named]
    # PREFIX/lib/python3/dist-packages/dsec, PREFIX/share/python/dsec and the like.
    found = [path for parent in Path(__file__).resolve().parents[2:6]
             for path in [parent / NAME, parent / "lib" / NAME,
                          *sorted(parent.glob(f"lib/*/{NAME}"))] if path.exists()]
    return [*map(str, found), NAME]


@functools.lru_cache(maxsize=None)
def library() -> Library:
    tried = []
    for path in candidates():
        try:
            return Library(ctypes.CDLL(path))
        except OSError as error:
            tried.append(str(error))
    raise ImportError("libdsec is not here: set DSEC_LIBRARY to libdsec.so.1; " + "; ".join(tried))
