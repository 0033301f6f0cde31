# SPDX-License-Identifier: Apache-2.0
"""Finish the fences of hosts: what a process has not begun that died, and the notifications.

Managers of all processes look at all fenced hosts.  What is done is stored by compare-and-swap, so
that each fence begins once, also if several of them and an API process work on one host.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from oslo_log import log

from attachd import context, exception, notifications
from attachd.closed_hosts import fences
from attachd.closed_hosts.fences import FencedAttachment
from attachd.db import host_fences
from attachd.db.attachments import async_requests
from attachd.db.host_fences import Notified
from attachd.db.row_types import AttachmentWithVolumeRow, HostFenceRow
from attachd.periodics import PeriodicThread

LOG = log.getLogger(__name__)

INTERVAL: Final = 3.0
"""Seconds between two looks, in which the process that fences a host begins with all of it."""


class FencedHosts(PeriodicThread):
    """The look at fenced hosts in one process; every manager process has one."""

    def __init__(self) -> None:
        super().__init__("fenced-hosts", self.run_once, lambda: INTERVAL, self._log_failure)
        self._waiting: frozenset[str] = frozenset()
        self._sending: set[tuple[str, int, str]] = set()

    @staticmethod
    def _log_failure(error: Exception) -> None:
        unforeseen = not isinstance(error, exception.Unavailable)
        LOG.error(
            "The look at fenced hosts failed, trying again: %s",
            error,
            exc_info=error if unforeseen else None,
        )

    def run_once(self) -> None:
        """Begin the fences that have not begun since the last look, and notify.

        :raises Unavailable: the database does not answer
        """
        fenced = [row["host"] for row in host_fences.list_fenced()]
        waiting = host_fences.list_unfenced(fenced)
        begin_fences([row for row in waiting if row["id"] in self._waiting])
        self._waiting = frozenset(row["id"] for row in waiting)
        if notifications.enabled():
            for row in host_fences.list_to_notify():
                self._notify(row)

    def _notify(self, row: HostFenceRow) -> None:
        """Send the next notification about a fence if it is time, and no process does."""
        left = [] if row["notified"] is None else list_left(row)
        notified = _next_notification(row, left)
        if notified is None:
            return
        sending = (row["host"], row["generation"], notified.value)
        if sending in self._sending or not host_fences.claim_notification(row):
            return
        self._sending.add(sending)

        def end() -> None:
            self._sending.discard(sending)

        if notified is Notified.START:
            notifications.fence_start(row, end)
        else:
            notifications.fence_end(row, [*_list_ended(row, left), *left], notified, end)


def begin_fences(rows: Sequence[AttachmentWithVolumeRow]) -> None:
    """Begin to fence attachments of fenced hosts, as after a command.

    :param rows: as of host_fences.list_unfenced()
    """
    fences.begin(context.get_admin_context(), rows, async_requests.fence_on_host)


def _next_notification(row: HostFenceRow, left: Iterable[FencedAttachment]) -> Notified | None:
    """Return the notification that is due; None: there is none now.

    :param left: as of :func:`list_left`, if the start was notified
    """
    if row["notified"] is None:
        return Notified.START
    results = {item["result"] for item in left}
    if "pending" in results:
        return None
    notified = Notified.UNFINISHED if results else Notified.END
    return None if notified == row["notified"] else notified


def list_left(fenced: HostFenceRow) -> list[FencedAttachment]:
    """Return the attachments that are concerned by the last fence of a host and not ended.

    :param fenced: the host; its fence may have been lifted
    """
    return fences.list_left(
        [
            row
            for row in host_fences.list_to_fence([fenced["host"]])
            if row["fenced"] or fenced["fenced_at"] is not None
        ]
    )


def _list_ended(fenced: HostFenceRow, left: Iterable[FencedAttachment]) -> list[FencedAttachment]:
    """Return those that are ended; of connections only those that serve an attachment, as clients
    do not know the others.
    """
    known, since = {item["attachment_id"] for item in left}, fenced["last_fenced_at"]
    assert since is not None, "it was fenced"
    ended = fences.list_ended(fenced["host"], since)
    return [item for item in ended if item["attachment_id"] not in known]
