# SPDX-License-Identifier: Apache-2.0
"""Statuses of gRPC for the errors of the agent and of volumes on this node.

A container platform takes a final status, such as INTERNAL, for the proof that a call has left
nothing.  ABORTED and UNAVAILABLE say that something may be left, or that the work goes on.

Source: CSI 1.12, "Error Scheme" and the tables of errors of each call.
"""

from collections.abc import Iterator, Mapping
import contextlib
from typing import Final

import grpc
from grpc import StatusCode

from attachd import exception
from attachd.agent import local_socket
from attachd.agent.local_socket import Code
from attachd.csi.calls import CallError
from attachd.node.volumes import Problem, Refused

_OF_AGENT: Final[Mapping[Code, grpc.StatusCode]] = {
    Code.INVALID: StatusCode.INVALID_ARGUMENT,
    Code.VERSION: StatusCode.FAILED_PRECONDITION,
    Code.FORBIDDEN: StatusCode.FAILED_PRECONDITION,
    Code.NOT_FOUND: StatusCode.NOT_FOUND,
    Code.NOT_READY: StatusCode.UNAVAILABLE,
    Code.BUSY: StatusCode.ABORTED,
    Code.UNAVAILABLE: StatusCode.UNAVAILABLE,
    Code.FAILED: StatusCode.INTERNAL,
}
_REFUSALS: Final[Mapping[Problem, grpc.StatusCode]] = {
    Problem.NOT_STAGED: StatusCode.FAILED_PRECONDITION,
    Problem.DIFFERS: StatusCode.ALREADY_EXISTS,
    Problem.CONFLICTS: StatusCode.FAILED_PRECONDITION,
    Problem.UNCLEAN: StatusCode.ABORTED,
}


@contextlib.contextmanager
def as_status(failure: grpc.StatusCode) -> Iterator[None]:
    """Convert errors to CallError.

    :param failure: the status if the host has failed
    """
    try:
        yield
    except exception.HostError as error:
        raise CallError(_find_code(error, failure), f"{error}") from error


def _find_code(error: exception.HostError, failure: grpc.StatusCode) -> grpc.StatusCode:
    if isinstance(error, local_socket.CallError):
        return _OF_AGENT[error.kind]
    if isinstance(error, Refused):
        return _REFUSALS[error.problem]
    if isinstance(error, exception.LocalConflict | exception.DeviceBusy):
        return StatusCode.ABORTED
    return failure
