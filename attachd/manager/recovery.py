# SPDX-License-Identifier: Apache-2.0
"""Finish what a dead manager left half-way, and grant again what a backend forgot.

Everything is read from the rows.  Each piece of work goes through the same functions as a
client's call, under the same lock: a worker that is alive still holds it, and once it lets go
its row is no longer in the state that is looked for here.
"""

from collections.abc import Callable
import functools

from oslo_log import log

from attachd import exception
from attachd.db import attachments as attachments_db
from attachd.db import volumes as volumes_db
from attachd.manager import attachments, volumes
from attachd.manager.backends import Backend
from attachd.states import AttachmentState, VolumeState

LOG = log.getLogger(__name__)


def resume(backend: Backend) -> int:
    """Carry every transitional row of this backend to a state of rest; returns how many."""
    pending = _volume_work(backend) + _attachment_work(backend)
    for row_id, work in pending:
        _attempt(row_id, work)
    return len(pending)


Work = tuple[str, Callable[[], object]]


def _volume_work(backend: Backend) -> list[Work]:
    return [(row["id"], _volume_step(backend, row)) for row in volumes_db.to_recover(backend.host)]


def _volume_step(backend: Backend, row: volumes_db.Row) -> Callable[[], object]:
    steps: dict[str, Callable[[], object]] = {
        VolumeState.CREATING: lambda: volumes.create(backend, row["id"]),
        VolumeState.DELETING: lambda: volumes.delete(backend, row["id"]),
        VolumeState.EXTENDING: lambda: volumes.extend(backend, row["id"]),
    }
    return steps[row["state"]]


def _attachment_work(backend: Backend) -> list[Work]:
    return [
        (row["id"], _attachment_step(backend, row))
        for row in attachments_db.to_recover(backend.host)
    ]


def _attachment_step(backend: Backend, row: attachments_db.Row) -> Callable[[], object]:
    if row["state"] == AttachmentState.CONNECTING:
        return lambda: attachments.attach(backend, row["id"], row["volume_id"], row["connector"])
    return lambda: attachments.detach(backend, row["id"], row["volume_id"])


def heal(backend: Backend) -> int:
    """Grant every live attachment anew, after the backend was restarted; returns how many."""
    rows = attachments_db.live_of_backend(backend.host)
    for row in rows:
        _attempt(row["id"], functools.partial(attachments.grant_again, backend, row))
    return len(rows)


def _attempt(row_id: str, work: Callable[[], object]) -> None:
    """One row's trouble must not keep the others from being recovered."""
    try:
        work()
    except exception.NotFound:
        LOG.info("%s is gone, nothing to recover", row_id)
    except exception.AttachdError as error:
        LOG.warning("%s could not be recovered now: %s", row_id, error)
    except Exception:
        LOG.exception("%s could not be recovered now", row_id)
    else:
        LOG.info("%s was recovered", row_id)
