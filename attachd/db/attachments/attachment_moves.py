# SPDX-License-Identifier: Apache-2.0
"""Attachments that move to another host: what their rows allow, and the end of a move.

The *destination* is a row whose ``move_from`` is the id of the *source*, an attachment of the same
volume on another host.  Both are one consumer of the volume (connect_rules.py).  Where the driver
can switch modes, the destination only reads as long as the source is there.  When the row of the
source is gone its host has no access any more, in whichever way that has come: then a manager lets
the destination write, and its ``move_from`` is cleared.  So the rows alone say how far a move is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from attachd import exception, host_identity
from attachd.db import models
from attachd.db.attachments import attachment_rows, events, statements
from attachd.db.attachments.attachment_rows import LockedVolume
from attachd.db.cluster import volume_leases
from attachd.db.cluster.volume_leases import VolumeLeaseToken
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import AttachmentRow, RecoverableAttachmentRow
from attachd.db.secrets import encryption
from attachd.states import ESTABLISHED, AttachmentKind

_ATTACHMENTS = models.attachments


def ends(source_id: str, destination_id: str) -> dict[str, str]:
    """Return both ends of a move, for notifications."""
    return {"move_from": source_id, "attachment_id": destination_id}


def find_source(current: AttachmentRow, rows: Sequence[AttachmentRow]) -> AttachmentRow | None:
    """Return the source of a destination; None: the row is none, or its source is gone.

    :param rows: the other rows of the volume
    """
    move_from = current.get("move_from")
    return next((row for row in rows if row["id"] == move_from), None) if move_from else None


def find_destination(row_id: str, rows: Sequence[AttachmentRow]) -> AttachmentRow | None:
    """Return the destination of a source, among the other rows of its volume."""
    return next((row for row in rows if row.get("move_from") == row_id), None)


def has_open_move(rows: Sequence[AttachmentRow]) -> bool:
    """Return whether both ends of a move are among the rows of a volume."""
    return any(find_source(row, rows) is not None for row in rows)


def check(locked: LockedVolume, connector: Mapping[str, Any] | None, *, is_new: bool) -> None:
    """Check that an attachment may move to a host, if the row is a destination.

    :param connector: of that host; None: it is not known yet
    :param is_new: the row is not stored yet, so its source has to be there
    :raises Conflict: the source cannot be moved, or not to this host
    """
    current, source = locked.attachment, find_source(locked.attachment, locked.others)
    if not current.get("move_from"):
        return
    if source is None:
        if is_new:
            raise exception.AttachmentNotFound(attachment_id=current["move_from"])
        return
    if is_new:
        _check_source(source, find_destination(source["id"], locked.others))
        _check_alone_on_host(source, locked.others)
    if connector and _is_same_host(source, connector):
        raise _immovable(source, f"it is on host {source['host']} already")


def _check_source(source: AttachmentRow, destination: AttachmentRow | None) -> None:
    reason = ""
    if source["kind"] != AttachmentKind.ATTACHMENT:
        reason = "it was made by os-attach"
    elif source["state"] not in ESTABLISHED or not source["connector"]:
        reason = f"it is {source['state']}, and no host has access by it that stays"
    elif source["move_from"]:
        reason = "it is the destination of a move itself; finish that first"
    elif destination is not None:
        reason = (
            f"it moves to host {destination['host']} already, by attachment {destination['id']}: "
            "finish that move, or delete that attachment"
        )
    if reason:
        raise _immovable(source, reason)


def _check_alone_on_host(source: AttachmentRow, rows: Sequence[AttachmentRow]) -> None:
    """Check that ending a source ends the access of its host: another attachment may have it, too.

    :param rows: of its volume; those without a connector give no host access
    """
    others = (row for row in rows if row["id"] != source["id"] and row["connector"])
    if other := next(
        (row for row in others if _is_same_host(source, row["connector"] or {})), None
    ):
        raise _immovable(
            source,
            f"its host {source['host']} has access to the volume by attachment {other['id']} as "
            "well, so that its access would not end. Delete that attachment first; or fence the "
            "host",
        )


def _is_same_host(source: AttachmentRow, connector: Mapping[str, Any]) -> bool:
    return host_identity.is_same_host(
        host_identity.of_row(source), host_identity.of_connector(connector)
    )


def _immovable(source: AttachmentRow, reason: str) -> exception.Conflict:
    return exception.Conflict(reason=f"Attachment {source['id']} cannot be moved: {reason}.")


def check_may_finish(locked: LockedVolume, destination_id: str) -> None:
    """Check that the access of a source may be ended for its destination.

    :param locked: with the source as its attachment
    :raises Conflict: the destination is no longer one, or its host has no access; or the host of
        the source has another attachment
    """
    source_id = locked.attachment["id"]
    destination = next((row for row in locked.others if row["id"] == destination_id), None)
    if destination is None or destination["move_from"] != source_id:
        raise exception.Conflict(
            reason=f"Attachment {source_id} was not ended: its move was rolled back."
        )
    if destination["state"] not in ESTABLISHED:
        raise exception.Conflict(
            reason=f"Attachment {source_id} was not ended: the destination of its move, "
            f"attachment {destination['id']}, is {destination['state']}. Connect it first, or "
            "delete it."
        )
    _check_alone_on_host(locked.attachment, locked.others)


def check_may_roll_back(locked: LockedVolume) -> None:
    """Check that deleting a row does not leave its consumer without the volume.

    :raises Conflict: the row is a destination, and the access of its source is being ended
    """
    row, source = locked.attachment, find_source(locked.attachment, locked.others)
    if row["state"] not in ESTABLISHED or source is None:
        return
    if source["state"] not in ESTABLISHED:
        raise exception.Conflict(
            reason=f"Attachment {row['id']} is kept: the access of its source, attachment "
            f"{source['id']} of host {source['host']}, is being ended, so the move can no longer "
            "be rolled back. Finish it with finish_move; or an administrator deletes this "
            "attachment by force."
        )


FINISHED: Final = events.MOVE_FINISHED


@retried
def finish(row: AttachmentRow, values: Mapping[str, Any], volume_lease: VolumeLeaseToken) -> None:
    """Store that the move of a destination has ended, and record an event.

    :param row: as it was read under the lease; updated
    :param values: columns to store: its mode, and its connection if that was granted again
    :param volume_lease: of the volume; it is kept
    :raises TakenOver: another process works on the volume by now
    :raises InvalidTransition: the row has changed
    """
    stored: Any = {**values, "move_from": None, "updated_at": models.now()}
    with session.writer() as connection:
        volume = attachment_rows.lock_volume(connection, row["volume_id"])
        volume_leases.acquire(connection, volume, volume_lease)  # only checks it: it is held
        changed = connection.execute(
            sa.update(_ATTACHMENTS)
            .where(
                _ATTACHMENTS.c.id == row["id"],
                _ATTACHMENTS.c.state == row["state"],
                _ATTACHMENTS.c.generation == row["generation"],
                _ATTACHMENTS.c.move_from == row["move_from"],
            )
            .values(encryption.bind(stored, row["id"]))
        )
        if changed.rowcount != 1:
            raise exception.InvalidTransition(
                kind="Attachment", id=row["id"], source=row["state"], event="finish its move"
            )
        events.record(connection, row, FINISHED, state=row["state"])
    row.update(stored)


@retried
def list_unfinished(backend: str, holder: str) -> list[RecoverableAttachmentRow]:
    """Return the destinations at ``host@backend`` whose source is gone, oldest first.

    :param holder: as of attachment_store.list_recoverable()
    """
    source = _ATTACHMENTS.alias("source")
    return session.fetch_all(
        statements.WITH_VOLUME.add_columns(volume_leases.is_orphaned(holder).label("orphaned"))
        .where(
            _ATTACHMENTS.c.move_from.is_not(None),
            _ATTACHMENTS.c.state.in_(sorted(ESTABLISHED)),
            ~sa.exists().where(source.c.id == _ATTACHMENTS.c.move_from),
            models.on_backend(backend),
            volume_leases.is_free(holder),
        )
        .order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id),
        RecoverableAttachmentRow,
    )
