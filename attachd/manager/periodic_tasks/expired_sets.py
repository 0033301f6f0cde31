# SPDX-License-Identifier: Apache-2.0
"""Undo the sets of attachments that the process of the API has not completed before its end."""

from typing import Final

from oslo_log import log

from attachd import context, exception
from attachd.closed_hosts import set_undo
from attachd.db.attachments import attachment_sets
from attachd.manager.periodic_tasks.periodic_task import OneProcessTask

LOG = log.getLogger(__name__)

INTERVAL: Final = 3.0
"""Seconds between two runs."""


class ExpiredSetsTask(OneProcessTask):
    """Removal of the attachments of sets that are not complete."""

    def interval(self) -> float:
        """Return the seconds between two runs."""
        return INTERVAL

    def run_once(self) -> None:
        """Begin to remove what is left of each set that has expired."""
        for row in attachment_sets.list_expired():
            try:
                if attachment_sets.take_over(row):
                    LOG.warning("Attachment set %s: not completed, undoing it", row["id"])
                    set_undo.advance(context.get_admin_context(), row)
            except exception.AttachdError:
                raise
            except Exception:
                LOG.exception("Attachment set %s: not undone now", row["id"])
