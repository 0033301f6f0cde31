# SPDX-License-Identifier: Apache-2.0
"""Sets of attachments: all of them are attached in the end, or none.

The row of a set is stored in the transaction that reserves its volumes, and deleted when all are
attached: that is the moment from which they stay.  Until then the process of the API that attaches
them renews the row.  If one fails, or the row expires because that process has ended, the set is
undone: this is stored first, so that it can no longer be completed, and the row is deleted when no
attachment is left.
"""

from collections.abc import Sequence
import contextlib
import datetime
from typing import Final

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.attachments import attachment_store
from attachd.db.attachments.attachment_store import Reservation
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import AttachmentRow, AttachmentSetRow

_SETS = models.attachment_sets

LIFETIME: Final = 30.0
"""Seconds after which the row of a set expires if it is not renewed."""

_TRIES: Final = 3


def reserve(
    set_id: str, reservations: Sequence[Reservation], first: session.Precondition | None
) -> list[AttachmentRow]:
    """Reserve the volumes of a set, all of them or none, and store the set.

    :param first: executed first in the transaction
    :raises: as attachment_store.reserve()
    """

    def store(connection: sa.Connection) -> None:
        if first is not None:
            first(connection)
        ids = [item.values["id"] for item in reservations]
        row = {"id": set_id, "attachment_ids": ids, "expires_at": _expiry(), "undoing": False}
        connection.execute(sa.insert(_SETS).values(row))

    return attachment_store.reserve_together(reservations, store)


def reserve_or_find(item: Reservation, *, may_be_free: bool) -> AttachmentRow:
    """Reserve one volume, or return the attachment that an earlier run of the request has made.

    :param may_be_free: as of attachment_store.reserve()
    :raises Unavailable: other runs make and remove it at the same time
    :raises: as attachment_store.reserve()
    """
    attachment_id = item.values["id"]
    for _ in range(_TRIES):
        try:
            return attachment_store.reserve(
                item.volume_id, item.values, item.denied_rule, may_be_free=may_be_free
            )
        except (db_exception.DBDuplicateEntry, exception.AttachdError) as error:
            with contextlib.suppress(exception.AttachmentNotFound):
                return attachment_store.get(attachment_id, None)
            if isinstance(error, exception.AttachdError):
                raise
    raise exception.Unavailable(
        reason=f"Attachment {attachment_id} is made and removed by other requests. Try again."
    )


def _expiry() -> datetime.datetime:
    return models.now() + datetime.timedelta(seconds=LIFETIME)


@retried
def find(set_id: str) -> AttachmentSetRow | None:
    """Return a set; None: it is complete, or undone, or there never was one."""
    return session.fetch_one(sa.select(_SETS).where(_SETS.c.id == set_id), AttachmentSetRow)


@retried
def renew(set_id: str) -> bool:
    """Postpone the expiry of a set; False: it is being undone, or is not there any more."""
    open_set = sa.update(_SETS).where(_SETS.c.id == set_id, _SETS.c.undoing.is_(False))
    return session.write(open_set.values(expires_at=_expiry())) == 1


@retried
def complete(set_id: str) -> bool:
    """Store that all attachments of a set stay; False: it is being undone."""
    open_set = sa.delete(_SETS).where(_SETS.c.id == set_id, _SETS.c.undoing.is_(False))
    return session.write(open_set) == 1


@retried
def begin_undo(set_id: str) -> bool:
    """Store that a set is undone, by this process until the row expires again.

    :returns: False: it is complete, or there is nothing left to undo
    """
    undoing = sa.update(_SETS).where(_SETS.c.id == set_id)
    return session.write(undoing.values(undoing=True, expires_at=_expiry())) == 1


@retried
def take_over(row: AttachmentSetRow) -> bool:
    """Do as :func:`begin_undo` for a set that has expired; False: it was renewed meanwhile."""
    same = sa.update(_SETS).where(_SETS.c.id == row["id"], _SETS.c.expires_at == row["expires_at"])
    return session.write(same.values(undoing=True, expires_at=_expiry())) == 1


@retried
def delete_undone(set_id: str) -> None:
    """Delete the row of a set of which no attachment is left."""
    session.write(sa.delete(_SETS).where(_SETS.c.id == set_id, _SETS.c.undoing.is_(True)))


@retried
def list_expired() -> list[AttachmentSetRow]:
    """Return the sets whose processes have ended."""
    statement = sa.select(_SETS).where(_SETS.c.expires_at < models.now())
    return session.fetch_all(statement, AttachmentSetRow)
