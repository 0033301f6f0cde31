# SPDX-License-Identifier: Apache-2.0
"""Decorators of the methods that a manager serves over RPC."""

from collections.abc import Callable
import functools
from typing import ParamSpec, TypeVar

import oslo_messaging as messaging

from attachd import exception
from attachd.telemetry import recorder
from attachd.telemetry.catalogue import SERVED, SERVED_DURATION

P = ParamSpec("P")
R = TypeVar("R")


def expected_errors(method: Callable[P, R]) -> Callable[P, R]:
    """Return AttachdErrors to the caller without logging them, and measure the calls."""
    known = messaging.expected_exceptions(exception.AttachdError)(_timed(method))
    return functools.wraps(method)(known)


def _timed(method: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(method)
    def timed(*args: P.args, **kwargs: P.kwargs) -> R:
        if not recorder.is_on():
            return method(*args, **kwargs)
        labels = getattr(args[0], "_host", "agents"), method.__name__
        with recorder.timed(SERVED, SERVED_DURATION, *labels, outcome_of=_outcome):
            return method(*args, **kwargs)

    return timed


def _outcome(error: Exception) -> str:
    """Return "refused" for an error that the caller may expect, else "failed" or "error"."""
    if isinstance(error, exception.ConnectFailed | exception.DisconnectFailed):
        return "failed"
    return "refused" if isinstance(error, exception.AttachdError) else "error"
