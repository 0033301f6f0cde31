# SPDX-License-Identifier: Apache-2.0
"""Periodic tasks of one backend or of all managers, each in a thread of its own, and their work
on single rows.
"""

import abc
from collections.abc import Callable
import functools

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.manager.backends import Backend
from attachd.manager.ownership.membership import Membership
from attachd.periodics import PeriodicThread

LOG = log.getLogger(__name__)

MAX_INTERVAL = 3.0
"""Seconds between two runs by default, unless [manager]report_interval is shorter."""


class PeriodicTask(PeriodicThread, abc.ABC):
    """One periodic task for one backend in one process."""

    def __init__(self, backend: Backend) -> None:
        name = f"{type(self).__name__.lower()}-{backend.name}"
        super().__init__(name, self.run_once, self.interval, self._handle_failure)
        self._backend = backend

    @abc.abstractmethod
    def run_once(self) -> None:
        """Do the task once."""

    def interval(self) -> float:
        """Return the seconds between two runs."""
        return float(min(CONF.manager.report_interval, MAX_INTERVAL))

    def on_failure(self) -> None:
        """Handle a run that has ended with an error."""

    def _handle_failure(self, error: Exception) -> None:
        """Log a failure; a database that does not answer needs no traceback each time."""
        self.on_failure()
        _log_failure(f"Backend {self._backend.name}: {type(self).__name__}", error)


class OneProcessTask(PeriodicThread, abc.ABC):
    """One periodic task of all managers, which only the process runs that joined them first.

    When that process has ended, the next one runs the task.  While one is suspended, two may run
    it at the same time, so a run must do no harm if it is repeated.
    """

    def __init__(self, membership: Membership) -> None:
        name = type(self).__name__
        super().__init__(
            name.lower(),
            self._run_if_oldest,
            self._pause,
            functools.partial(_log_failure, name),
        )
        self._membership = membership
        self._has_run = False

    @abc.abstractmethod
    def run_once(self) -> None:
        """Do the task once."""

    @abc.abstractmethod
    def interval(self) -> float:
        """Return the seconds between two runs."""

    def _run_if_oldest(self) -> None:
        self._has_run = False
        if self._membership.is_oldest():
            self.run_once()
            self._has_run = True

    def _pause(self) -> float:
        """Return the seconds until the next run, or until this process may be the oldest."""
        timeout = float(CONF.manager.member_timeout)
        return self.interval() if self._has_run else min(self.interval(), timeout)


def _log_failure(subject: str, error: Exception) -> None:
    unforeseen = not isinstance(error, exception.Unavailable)
    LOG.error(
        "%s failed, trying again: %s", subject, error, exc_info=error if unforeseen else None
    )


def run_safely(subject: str, work: Callable[[], object]) -> bool:
    """Do the work on one row, so that its failure does not affect the work on other rows.

    :param subject: the row in messages, such as ``Volume UUID``
    :returns: whether the row needs no more work
    """
    try:
        work()
    except (exception.NotFound, exception.InvalidTransition):
        LOG.info("%s: gone or changed by another process, nothing to recover", subject)
    except exception.AttachdError as error:
        LOG.warning("%s: not recovered now: %s", subject, error)
        return False
    except Exception:
        LOG.exception("%s: not recovered now", subject)
        return False
    else:
        LOG.info("%s: recovered", subject)
    return True
