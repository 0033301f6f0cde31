# SPDX-License-Identifier: Apache-2.0
"""Go on with the drains of hosts, where the process of the API has ended, or its time."""

from typing import Final

from oslo_log import log

from attachd import context, exception
from attachd.closed_hosts import drains
from attachd.db import host_fences
from attachd.manager.periodic_tasks.periodic_task import OneProcessTask

LOG = log.getLogger(__name__)

INTERVAL: Final = 3.0
"""Seconds between two runs."""


class DrainedHostsTask(OneProcessTask):
    """Detaching from drained hosts, and the notification of its end."""

    def interval(self) -> float:
        """Return the seconds between two runs."""
        return INTERVAL

    def run_once(self) -> None:
        """Detach some more from each host that is drained, and not done yet."""
        for row in host_fences.list_draining():
            try:
                drains.advance(context.get_admin_context(), row["host"])
                drains.notify_end(row["host"])
            except exception.AttachdError:
                raise
            except Exception:
                LOG.exception("Host %s: the drain does not go on", row["host"])
