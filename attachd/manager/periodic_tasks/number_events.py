# SPDX-License-Identifier: Apache-2.0
"""Assign revisions to events, so that requests that read events find few without one."""

import math
from typing import Final

from attachd.db.attachments import events
from attachd.manager.periodic_tasks.periodic_task import OneProcessTask

INTERVAL: Final = 3.0
"""Seconds between two runs."""


class NumberEventsTask(OneProcessTask):
    """Assignment of revisions to the events that were committed since the last run."""

    def interval(self) -> float:
        """Return the seconds between two runs."""
        return INTERVAL

    def run_once(self) -> None:
        """Assign revisions in batches, each of which is one transaction."""
        events.assign_sequence(math.inf)
