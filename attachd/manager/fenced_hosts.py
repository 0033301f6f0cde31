# SPDX-License-Identifier: Apache-2.0
"""Finish the fences of hosts: what a process has not begun that died, and the notifications.

Managers of all processes look at all fenced hosts.  What is done is stored by compare-and-swap, so
that each fence begins once, also if several of them and an API process work on one host.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from oslo_log import log

from attachd import context, exception, notifications
from attachd.db import host_fences
from attachd.db.attachments import async_requests, events
from attachd.db.cluster import services
from attachd.db.host_fences import Notified
from attachd.db.row_types import AttachmentWithVolumeRow, HostFenceRow
from attachd.objects import Attachment, backend_of
from attachd.periodics import PeriodicThread
from attachd.rpc import manager_api
from attachd.states import AttachmentState

LOG = log.getLogger(__name__)

Result = dict[str, Any]
"""As FencedAttachment of the API."""

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
        begin_fences(row for row in waiting if row["id"] in self._waiting)
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


def _next_notification(row: HostFenceRow, left: Iterable[Result]) -> Notified | None:
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


def begin_fences(rows: Iterable[AttachmentWithVolumeRow]) -> None:
    """Begin to fence attachments of fenced hosts.

    Their managers prove it, as after a command; those of backends that cannot end the access of a
    host stay as they are.

    :param rows: as of host_fences.list_unfenced()
    """
    rows = [*rows]
    if not rows:
        return
    abilities = services.list_capability(manager_api.FENCING)
    admin = context.get_admin_context()
    for row in rows:
        attachment = Attachment.from_row(admin, row)
        if abilities.get(attachment.backend) == manager_api.Fencing.NONE:
            continue
        try:
            async_requests.fence_on_host(attachment.id, attachment.volume_id)
            manager_api.process_pending(admin, attachment)
        except exception.NotFound:
            continue  # It was deleted meanwhile.
        except exception.Conflict as error:
            LOG.info("Attachment %s: not fenced: %s", attachment.id, error)
        except exception.AttachdError as error:
            LOG.warning("Attachment %s: fencing is left to recovery: %s", attachment.id, error)


def list_left(fenced: HostFenceRow) -> list[Result]:
    """Return the attachments that are concerned by the last fence of a host and not ended.

    :param fenced: the host; its fence may have been lifted
    """
    abilities = services.list_capability(manager_api.FENCING)
    return [
        _of_row(row, abilities)
        for row in host_fences.list_to_fence([fenced["host"]])
        if row["fenced"] or fenced["fenced_at"] is not None
    ]


def _list_ended(fenced: HostFenceRow, left: Iterable[Result]) -> list[Result]:
    """Return those that are ended; of connections only those that serve an attachment, as clients
    do not know the others.
    """
    known, since = {item["attachment_id"] for item in left}, fenced["last_fenced_at"]
    assert since is not None, "it was fenced"
    return [
        {**item, "result": item["proof"]["result"], "reason": None}
        for item in events.list_fenced(fenced["host"], since)
        if item["attachment_id"] not in known
    ]


def _of_row(row: AttachmentWithVolumeRow, abilities: Mapping[str, str]) -> Result:
    """Return the result of an attachment that is still there."""
    backend = backend_of(row["volume_host"])
    result, reason = "pending", row["error"]
    if row["state"] == AttachmentState.DISCONNECT_FAILED:
        result = "failed"
    elif not row["fenced"] and abilities.get(backend) == manager_api.Fencing.NONE:
        reason = manager_api.NO_FENCING.format(attachment_id=row["id"], backend=backend)
        result = "failed"
    return {
        "attachment_id": row["parent_id"] or row["id"],
        "volume_id": row["volume_id"],
        "instance_uuid": row["instance_uuid"],
        "result": result,
        "reason": reason,
        "proof": None,
    }
