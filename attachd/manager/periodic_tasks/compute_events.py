# SPDX-License-Identifier: Apache-2.0
"""Send Compute again what it has not accepted, and what a killed process has not sent."""

from typing import Final

from oslo_log import log

from attachd import compute, exception
from attachd.manager import compute_events
from attachd.periodics import PeriodicThread

LOG = log.getLogger(__name__)

INTERVAL: Final = 5.0
"""Seconds between two runs."""


class ComputeEventsTask(PeriodicThread):
    """Events for Compute, in one process; each manager process with credentials has one.

    It has a thread of its own: a Compute that does not answer delays no other task.
    """

    def __init__(self) -> None:
        super().__init__(
            "compute-events", compute_events.send_due, lambda: INTERVAL, self._log_failure
        )

    @staticmethod
    def _log_failure(error: Exception) -> None:
        unforeseen = not isinstance(error, exception.Unavailable)
        LOG.error(
            "Sending events to Compute failed, trying again: %s",
            error,
            exc_info=error if unforeseen else None,
        )


def list_tasks() -> list[PeriodicThread]:
    """Return the task, if [nova] has credentials; else log what that means."""
    if compute.has_credentials():
        return [ComputeEventsTask()]
    LOG.info(
        "Compute is not notified when an attached volume grows, as [nova] has no auth_type: a "
        "server sees the new size after it is stopped and started."
    )
    return []
