# SPDX-License-Identifier: Apache-2.0
"""How a manager answers over RPC, and what it tells and changes of its log; for endpoint.py."""

from collections.abc import Callable
import functools
from typing import ParamSpec, TypeVar

import oslo_messaging as messaging

from attachd import exception, log_levels
from attachd.context import RequestContext

P = ParamSpec("P")
R = TypeVar("R")


def answering(method: Callable[P, R]) -> Callable[P, R]:
    """Have AttachdErrors be answers to the caller, and no accidents to be logged."""
    known = messaging.expected_exceptions(exception.AttachdError)(method)
    return functools.wraps(method)(known)


class LogLevels:
    """The calls and casts about how much the process logs.

    :param host: ``host@backend``
    """

    def __init__(self, host: str) -> None:
        self._host = host

    def set_log_levels(
        self, _context: RequestContext, hosts: list[str], prefix: str, level: str
    ) -> None:
        """See rpcapi.set_log_levels(); everybody gets it, whether meant or not."""
        if self._host in hosts:
            log_levels.change(prefix, level)

    @answering
    def get_log_levels(self, _context: RequestContext, prefix: str) -> dict[str, str]:
        """See rpcapi.get_log_levels()."""
        return log_levels.current(prefix)
