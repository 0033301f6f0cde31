# SPDX-License-Identifier: Apache-2.0
"""Statuses of gRPC for the errors of the agent and of volumes on this node.

A container platform takes a final status, such as INTERNAL, for the proof that a call has left
nothing.  ABORTED and UNAVAILABLE say that something may be left, or that the work goes on.

Source: CSI 1.12, "Error Scheme" and the tables of errors of each call.
"""

from collections.abc import Iterator, Mapping
import contextlib
from typing import Final

from attachd import exception
from attachd.agent import local_socket
from attachd.agent.local_socket import Code
from attachd.node.volumes import Problem, Refused
from attachd.platforms.calls import CallError, ErrorCode

_OF_AGENT: Final[Mapping[Code, ErrorCode]] = {
    Code.INVALID: ErrorCode.INVALID_ARGUMENT,
    Code.VERSION: ErrorCode.FAILED_PRECONDITION,
    Code.FORBIDDEN: ErrorCode.FAILED_PRECONDITION,
    Code.NOT_FOUND: ErrorCode.NOT_FOUND,
    Code.NOT_READY: ErrorCode.UNAVAILABLE,
    Code.BUSY: ErrorCode.ABORTED,
    Code.UNAVAILABLE: ErrorCode.UNAVAILABLE,
    Code.FAILED: ErrorCode.INTERNAL,
    Code.DETACH_FIRST: ErrorCode.FAILED_PRECONDITION,
}
_REFUSALS: Final[Mapping[Problem, ErrorCode]] = {
    Problem.NOT_STAGED: ErrorCode.FAILED_PRECONDITION,
    Problem.DIFFERS: ErrorCode.ALREADY_EXISTS,
    Problem.CONFLICTS: ErrorCode.FAILED_PRECONDITION,
    Problem.UNCLEAN: ErrorCode.ABORTED,
}


@contextlib.contextmanager
def as_status(failure: ErrorCode) -> Iterator[None]:
    """Convert errors to CallError.

    :param failure: the status if the host has failed
    """
    try:
        yield
    except exception.HostError as error:
        raise CallError(_find_code(error, failure), f"{error}") from error


def _find_code(error: exception.HostError, failure: ErrorCode) -> ErrorCode:
    if isinstance(error, local_socket.CallError):
        return _OF_AGENT[error.kind]
    if isinstance(error, Refused):
        return _REFUSALS[error.problem]
    if isinstance(error, exception.LocalConflict | exception.DeviceBusy):
        return ErrorCode.ABORTED
    return failure
