# SPDX-License-Identifier: Apache-2.0
"""How a manager answers over RPC, and what it tells and changes of its log; for endpoint.py."""

from collections.abc import Callable
import functools
from typing import ParamSpec, TypeVar

import oslo_messaging as messaging

from attachd import exception
from attachd.context import RequestContext
from attachd.telemetry import log_levels, recorder
from attachd.telemetry.catalogue import SERVED, SERVED_DURATION

P = ParamSpec("P")
R = TypeVar("R")


def answering(method: Callable[P, R]) -> Callable[P, R]:
    """Have AttachdErrors be answers to the caller, and no accidents to be logged."""
    known = messaging.expected_exceptions(exception.AttachdError)(_measured(method))
    return functools.wraps(method)(known)


def _measured(method: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(method)
    def measured(*args: P.args, **kwargs: P.kwargs) -> R:
        if not recorder.is_on():
            return method(*args, **kwargs)
        labels = getattr(args[0], "_host", "registry"), method.__name__
        with recorder.timed(SERVED, SERVED_DURATION, *labels, judge=_outcome):
            return method(*args, **kwargs)

    return measured


def _outcome(error: Exception) -> str:
    """Tell what a caller may expect apart from what went wrong here."""
    if isinstance(error, exception.ConnectFailed | exception.DisconnectFailed):
        return "failed"
    return "refused" if isinstance(error, exception.AttachdError) else "error"


class LogLevels:
    """The calls and casts about how much the process logs.

    :param host: ``host@backend``
    """

    def __init__(self, host: str) -> None:
        self._host = host

    def set_log_levels(
        self, _context: RequestContext, hosts: list[str], prefix: str, level: str
    ) -> None:
        """See manager_api.set_log_levels(); all processes receive it, also those not meant."""
        if self._host in hosts:
            log_levels.change(prefix, level)

    @answering
    def get_log_levels(self, _context: RequestContext, prefix: str) -> dict[str, str]:
        """See manager_api.get_log_levels()."""
        return log_levels.current(prefix)
