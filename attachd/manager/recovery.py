# SPDX-License-Identifier: Apache-2.0
"""Finish what a dead manager left half-way, and grant again what a backend forgot.

Everything is read from the rows.  Each piece of work goes through the same functions as a
client's call, under the same lock: a worker that is alive still holds it, and once it lets go
its row is no longer as it was read here.
"""

from collections.abc import Callable, Sequence
import functools
import time
from typing import NamedTuple

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.db import attachments as attachments_db
from attachd.db import volumes as volumes_db
from attachd.manager import attachments, detaching, exports, volumes
from attachd.manager.backends import Backend
from attachd.states import AttachmentState, VolumeState

LOG = log.getLogger(__name__)


class Work(NamedTuple):
    """What is still to be done for one row."""

    row_id: str
    volume_id: str
    do: Callable[[], object]


def resume(backend: Backend) -> int:
    """Carry every transitional row of this backend to a state of rest.

    :returns: how many rows were left as they were, to be tried again
    """
    return [_attempt(each.row_id, each.do) for each in _pending(backend, 0)].count(False)


def pick_up(backend: Backend) -> None:
    """Do what somebody should have done long ago: a message was lost, or an end not written down.

    Long is longer than the API waits for an answer.  Nobody who is at work is waited for, and
    what does not fit between two reports is left to the next round.
    """
    deadline = time.monotonic() + CONF.manager.report_interval
    for each in _pending(backend, CONF.rpc.attach_timeout):
        if time.monotonic() > deadline:
            return
        if backend.is_idle(each.volume_id):
            _attempt(each.row_id, each.do)


def _pending(backend: Backend, untouched_for: float) -> list[Work]:
    volume_rows = volumes_db.to_recover(backend.host, untouched_for)
    attachment_rows = attachments_db.to_recover(backend.host, untouched_for)
    return [
        *(Work(row["id"], row["id"], _volume_step(backend, row)) for row in volume_rows),
        *(
            Work(row["id"], row["volume_id"], _attachment_step(backend, row))
            for row in attachment_rows
        ),
    ]


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
        return lambda: attachments.finish_attach(backend, row)
    return lambda: detaching.detach(backend, row["id"], row["volume_id"])


def heal(backend: Backend, rows: Sequence[attachments_db.Row]) -> list[attachments_db.Row]:
    """Grant attachments anew after the backend was restarted.

    :param rows: of live attachments
    :returns: those whose hosts still do not reach their volumes, to be tried again
    """
    return [
        row
        for row in rows
        if not _attempt(row["id"], functools.partial(exports.grant_again, backend, row))
    ]


def _attempt(row_id: str, work: Callable[[], object]) -> bool:
    """Tell whether a row needs no more work; its trouble must not keep the others from theirs."""
    try:
        work()
    except (exception.NotFound, exception.InvalidTransition):
        LOG.info("%s is gone or in other hands, nothing to recover", row_id)
    except (exception.ConnectFailed, exception.DisconnectFailed) as error:
        LOG.warning("What was begun has failed: %s", error)
    except exception.AttachdError as error:
        LOG.warning("%s could not be recovered now: %s", row_id, error)
        return False
    except Exception:
        LOG.exception("%s could not be recovered now", row_id)
        return False
    else:
        LOG.info("%s was recovered", row_id)
    return True
