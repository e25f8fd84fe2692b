"""What goes wrong, as exceptions: one hierarchy, by how a request ended and by whose fault it is.

Every exception is a DsecError. Its class tells the code (DsecAbsentError), it is a
DsecPlatformError too where the platform is to blame, and it is the built-in that fits: `except
FileNotFoundError` catches what a sandbox's file system said, `except TimeoutError` a deadline. All
can be pickled.
"""
from __future__ import annotations

import errno
import functools
import os
from typing import Any

from dsec._abi import Blame, Code

__all__ = [
    "DsecError", "DsecPlatformError", "DsecRefusedError", "DsecInvalidError", "DsecDeniedError",
    "DsecAbsentError", "DsecConflictError", "DsecUnsupportedError", "DsecDeadlineError",
    "DsecCancelledError", "DsecFailedError", "DsecUnknownError", "DsecLostError", "DsecForkedError",
]


class DsecError(Exception):
    """A request that did not succeed.

    code, blame: how it ended and whose fault it is; step: which step failed ("container.rootfs");
    error: its errno, or 0; detail: for people; retry_after: seconds until asking again makes sense,
    or None; result: of an exec that ended so, what there is of it; of a phase that did not come,
    the one there is instead; of a job on images, its report; or None.
    """

    code: Code = Code.FAILED
    blame: Blame = Blame.NONE
    step: str = ""
    detail: str = ""
    error: int = 0
    retry_after: float | None = None
    result: Any = None
    what: str = ""

    def __str__(self) -> str:
        text = f"{self.what} {self.code}" if self.what else str(self.code)
        text += f": {self.detail}" if self.detail else ""
        text += f" at {self.step}" if self.step else ""
        if self.error and os.strerror(self.error) not in self.detail:
            text += f" ({os.strerror(self.error)})"
        return text + (f" [{self.blame}]" if self.blame != Blame.NONE else "")

    def __reduce__(self) -> Any:
        return (error_make, (self.code, self.blame, self.what, self.step, self.detail, self.error,
                             self.retry_after, isinstance(self, DsecForkedError)))


class DsecPlatformError(DsecError):
    """The platform is to blame: what the sandbox did until then says nothing about the guest."""


class DsecRefusedError(DsecError):
    """A limit; nothing was done. retry_after says when to ask again."""


class DsecInvalidError(DsecError, ValueError):
    """The request makes no sense."""


class DsecDeniedError(DsecError, PermissionError):
    """Not allowed."""


class DsecAbsentError(DsecError, LookupError):
    """No such sandbox, image or exec."""


class DsecConflictError(DsecError):
    """A state forbids it, or the request id is in use with another request."""


class DsecUnsupportedError(DsecError, NotImplementedError):
    """This engine, this host or this library cannot."""


class DsecDeadlineError(DsecError, TimeoutError):
    """The request's timeout passed; what was half done is undone."""


class DsecCancelledError(DsecError):
    """As asked; what was half done is undone."""


class DsecFailedError(DsecError, OSError):
    """A step failed: see step and error."""


class DsecUnknownError(DsecError):
    """It may have run: never run it again."""


class DsecLostError(DsecError, ConnectionError):
    """The connection went for good; the same request id may be sent again."""


class DsecForkedError(DsecError, RuntimeError):
    """This process was forked: the connection is its parent's. Connect anew."""

    code = Code.INVALID


CLASSES: dict[Code, type[DsecError]] = {
    Code.REFUSED: DsecRefusedError, Code.INVALID: DsecInvalidError, Code.DENIED: DsecDeniedError,
    Code.ABSENT: DsecAbsentError, Code.CONFLICT: DsecConflictError,
    Code.UNSUPPORTED: DsecUnsupportedError, Code.DEADLINE: DsecDeadlineError,
    Code.CANCELLED: DsecCancelledError, Code.FAILED: DsecFailedError,
    Code.UNKNOWN: DsecUnknownError, Code.LOST: DsecLostError,
}
# What an errno from a function of libdsec says when nothing was sent.
CODES_OF_ERRNO = {
    errno.EINVAL: Code.INVALID, errno.E2BIG: Code.INVALID, errno.EMSGSIZE: Code.INVALID,
    errno.EACCES: Code.DENIED, errno.EPERM: Code.DENIED, errno.ENOTCONN: Code.LOST,
    errno.ECONNREFUSED: Code.LOST, errno.ENOENT: Code.ABSENT, errno.ENXIO: Code.ABSENT,
    errno.EPROTO: Code.UNSUPPORTED, errno.EOPNOTSUPP: Code.UNSUPPORTED,
    errno.ETIMEDOUT: Code.DEADLINE, errno.EAGAIN: Code.REFUSED,
    errno.ECONNRESET: Code.LOST, errno.EPIPE: Code.LOST, errno.EBUSY: Code.REFUSED,
}
CALLER_CODES = (Code.INVALID, Code.DENIED, Code.ABSENT)


@functools.lru_cache(maxsize=None)
def error_class(base: Any, platform: bool, error: int) -> Any:
    """The class for a code, with what its blame and its errno add; always the same one."""
    bases: list[type] = [base]
    if platform:
        bases.append(DsecPlatformError)
    builtin = type(OSError(error, "")) if error else OSError
    # Where the class is a built-in of its own already, an errno does not make it another one.
    if builtin is not OSError and base in (DsecFailedError, DsecAbsentError, DsecLostError) \
            and not issubclass(base, builtin):
        bases.append(builtin)
    if len(bases) == 1:
        return base
    return type(base.__name__, tuple(bases),
                {"__module__": base.__module__, "__doc__": base.__doc__})


def error_make(code: Code, blame: Blame, what: str, step: str, detail: str, error: int,
               retry_after: float | None, forked: bool = False) -> DsecError:
    base: Any = DsecForkedError if forked else CLASSES.get(code, DsecFailedError)
    made: DsecError = error_class(base, blame == Blame.PLATFORM, error)()
    made.code, made.blame, made.what, made.step = code, blame, what, step
    made.detail, made.error, made.retry_after = detail, error, retry_after
    if isinstance(made, OSError):
        made.strerror = os.strerror(error) if error else detail
        if error:
            made.errno = error
    return made


def error_of_errno(number: int, what: str, detail: str) -> DsecError:
    """A function of libdsec returned -number: nothing was sent."""
    code = CODES_OF_ERRNO.get(number, Code.FAILED)
    caller = code in CALLER_CODES or number == errno.EOWNERDEAD
    return error_make(code, Blame.CALLER if caller else Blame.PLATFORM, what, "", detail, number,
                      None, number == errno.EOWNERDEAD)
