# SPDX-License-Identifier: Apache-2.0
"""Finish what a dead manager left half-way; healing.py grants again what a backend forgot.

Everything is read from the rows.  Each piece of work goes through the same functions as a
client's call, under the same lease: what a living process has is left to it, and what a dead one
had is taken over with it.
"""

from collections.abc import Callable, Iterable, Mapping
import datetime
import functools
from typing import Any, NamedTuple

from oslo_log import log
from oslo_utils import timeutils

from attachd.db import attachments as attachments_db
from attachd.db import volumes as volumes_db
from attachd.manager import attach, detach, measuring, volumes
from attachd.manager.attempts import attempt
from attachd.manager.backends import Backend
from attachd.manager.retries import Retries
from attachd.states import AttachmentState, VolumeState

LOG = log.getLogger(__name__)

A_WHILE = 3.0
"""Seconds in which a message should have come to a manager."""


class Work(NamedTuple):
    """What is still to be done for one row.

    :ivar volume_id: whose lease it takes
    :ivar row: as it was read
    """

    volume_id: str
    row: Mapping[str, Any]
    do: Callable[[], object]

    @property
    def row_id(self) -> str:
        """Of the volume, or of the attachment."""
        return str(self.row["id"])


def resume(backend: Backend, retries: Retries) -> int:
    """Carry every transitional row of this backend to a state of rest that nobody works on.

    :param retries: knows of former failures
    :returns: how many rows were left as they were, to be tried again
    """
    return _work_off(backend, _pending(backend, retries), retries)


def pick_up(backend: Backend, retries: Retries) -> int:
    """Do what a dead process has left, and what nobody has begun for a while.

    Its message was lost, with the API or with a manager, or the end of some work could not be
    written down.  To be early does no harm: a message that comes later finds it done.  Nobody who
    is at work is waited for.

    :param retries: knows of former failures
    :returns: as :func:`resume`
    """
    long_ago = timeutils.utcnow() - datetime.timedelta(seconds=A_WHILE)
    left = _work_off(
        backend,
        [
            each
            for each in _pending(backend, retries)
            if each.row["orphaned"]
            or retries.knows(each.row_id)
            or (_touched(each.row) < long_ago and backend.is_idle(each.volume_id))
        ],
        retries,
    )
    free_leftovers(backend)
    return left


def _touched(row: Mapping[str, Any]) -> datetime.datetime:
    at: datetime.datetime = row["updated_at"] or row["created_at"]
    return at


def _work_off(backend: Backend, pending: Iterable[Work], retries: Retries) -> int:
    left = 0
    for each in pending:
        if not retries.is_due(each.row_id):
            left += 1
        elif attempt(each.row_id, each.do):
            retries.succeeded(each.row_id)
            measuring.acted(backend, "takeover" if each.row["orphaned"] else "finish")
        else:
            retries.failed(each.row_id)
            measuring.acted(backend, "postpone")
            left += 1
    return left


def free_leftovers(backend: Backend) -> None:
    """Give back leases whose work has ended, while they could not be given back."""
    for volume_id in backend.leftovers():
        attempt(volume_id, functools.partial(_free, backend, volume_id))


def _free(backend: Backend, volume_id: str) -> None:
    with backend.lock(volume_id):
        LOG.info("The lease of volume %s was left over", volume_id)


def _pending(backend: Backend, retries: Retries) -> list[Work]:
    ours = backend.presence.id
    volume_rows = volumes_db.to_recover(backend.host, ours)
    attachment_rows = attachments_db.to_recover(backend.host, ours)
    found = [
        *(Work(row["id"], row, _volume_step(backend, row)) for row in volume_rows),
        *(Work(row["volume_id"], row, _attachment_step(backend, row)) for row in attachment_rows),
    ]
    retries.keep_only({each.row_id for each in found})
    return found


def _volume_step(backend: Backend, row: volumes_db.Row) -> Callable[[], object]:
    make = volumes.create if row["source_volid"] is None else volumes.copy
    steps: dict[str, Callable[[], object]] = {
        VolumeState.CREATING: lambda: make(backend, row["id"]),
        VolumeState.DELETING: lambda: volumes.delete(backend, row["id"]),
        VolumeState.EXTENDING: lambda: volumes.extend(backend, row["id"]),
    }
    return steps[row["state"]]


def _attachment_step(backend: Backend, row: attachments_db.Row) -> Callable[[], object]:
    if row["state"] == AttachmentState.CONNECTING:
        return lambda: attach.finish_attach(backend, row)
    return lambda: detach.detach(backend, row["id"], row["volume_id"])
