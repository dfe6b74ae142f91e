"""Typed errors: what the coordinator says with a failed call, and the library's own."""

from __future__ import annotations

import re
from collections.abc import Mapping

import grpc


class StrataError(Exception):
    """A call failed. `str()` is one line for people: what, which limit, what to do.

    The library's own reasons:
      BAD_ADDRESS, TLS_FILE_MISSING, TLS_FILE_UNREADABLE, TLS_FILE_BAD, TLS_KEY_MISMATCH,
      TLS_EXPIRED, TLS_NOT_YET_VALID  before any call
      COORDINATOR_UNREACHABLE  nothing answers at the address
      CONNECTION_LOST          the connection broke and could not be had again
      REPLAY_DIVERGED          a replayed answer is not the one that was delivered
      ANSWER_INCOMPLETE        the coordinator ended an answer without saying why
      CANCELLED, DEADLINE_EXCEEDED, UNKNOWN_CALL
    """

    def __init__(self, code: grpc.StatusCode, reason: str, message: str, *, node: str = "",
                 limit: str = "", hint: str = "", request_id: str = "",
                 facts: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code  # What kind of failure it is.
        self.reason = reason  # A stable UPPER_SNAKE_CASE word, for example KV_NEVER_FITS.
        self.message = message  # One sentence: what failed.
        self.node = node  # The node concerned, or "".
        self.limit = limit  # The limit that was met, for example "kv_tokens=8192", or "".
        self.hint = hint  # What to do next, or "".
        self.request_id = request_id  # The request concerned, or "".
        self.facts = dict(facts or {})  # For programs, for example {"position": "20"}.

    def __str__(self) -> str:
        line = self.message or self.code.name
        if self.node and not re.search(rf"(?<![A-Za-z0-9]){re.escape(self.node)}(?![A-Za-z0-9])",
                                       line):
            line += f" (node {self.node})"
        if self.limit:
            line += f" [{self.limit}]"
        if self.hint:
            line += f"; {self.hint}"
        return line


class CancelledError(StrataError):
    """The caller cancelled the call."""


class InvalidArgumentError(StrataError):
    """The request can never be served as it is: KV_NEVER_FITS, CONTEXT_EXCEEDED, ..."""


class DeadlineExceededError(StrataError):
    """The call's timeout passed."""


class NotFoundError(StrataError):
    """There is no such model, node or request."""


class AlreadyExistsError(StrataError):
    """REQUEST_IN_FLIGHT: a request of this id runs; see `replace`."""


class PermissionDeniedError(StrataError):
    """The key may not do this."""


class ResourceExhaustedError(StrataError):
    """QUEUE_FULL and other limits; try again later."""


class FailedPreconditionError(StrataError):
    """The cluster is not in the state that the call needs: MODEL_NOT_LOADED, ..."""


class AbortedError(StrataError):
    """What the call used was taken away: REPLACED, UNLOADED, REPLAY_DIVERGED, ..."""


class UnimplementedError(StrataError):
    """Not supported, by this version or this model."""


class InternalError(StrataError):
    """A fault of Strata's own."""


class UnavailableError(StrataError):
    """Now it does not work, later it may: COORDINATOR_UNREACHABLE, NODE_LOST, MODEL_LOADING, ..."""


class UnauthenticatedError(StrataError):
    """No key, or an unknown one."""


_CLASSES: Mapping[grpc.StatusCode, type[StrataError]] = {
    grpc.StatusCode.CANCELLED: CancelledError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.UNIMPLEMENTED: UnimplementedError,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
}


def make_error(code: grpc.StatusCode, reason: str, message: str, *, node: str = "",
               limit: str = "", hint: str = "", request_id: str = "",
               facts: Mapping[str, str] | None = None) -> StrataError:
    """The error of the code's own class; StrataError itself for the others."""
    return _CLASSES.get(code, StrataError)(code, reason, message, node=node, limit=limit,
                                           hint=hint, request_id=request_id, facts=facts)


def cancelled_error() -> StrataError:
    return make_error(grpc.StatusCode.CANCELLED, "CANCELLED", "cancelled by the caller")


def deadline_error() -> StrataError:
    return make_error(grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED",
                      "the deadline passed before the answer was complete",
                      hint="give it more time, or see with `strata status` what it waits for")
