# SPDX-License-Identifier: Apache-2.0
"""The volume_transfers table: offers of volumes to other projects; used by the API.

A transfer is there exactly as long as its volume is in ``awaiting-transfer``: each change of one
is in the same transaction as that of the other, under the lock of the volume.  Locks are taken in
this order: the quotas of the accepting project, volume, snapshots.
"""

from collections.abc import Mapping
import hashlib
import hmac
import secrets
from typing import Any, Final, NamedTuple, TypedDict

import sqlalchemy as sa

from attachd import exception
from attachd.db import models, quotas
from attachd.db.attachments import attachment_rows
from attachd.db.engine import paging, session
from attachd.db.engine.retry import retried
from attachd.db.row_types import SnapshotRow, TransferRow, VolumeRow
from attachd.db.types import type_store
from attachd.db.volumes import clone_source, snapshot_rules, volume_store
from attachd.states import Event, SnapshotState, VolumeState

_TRANSFERS = models.volume_transfers
_SNAPSHOTS = models.snapshots

_KEY_BYTES: Final = 16
"""Of a key: too many values to guess one, and few enough characters to type it."""


class NewTransfer(NamedTuple):
    """A new transfer.

    :ivar auth_key: by which it is accepted; it cannot be read again
    """

    row: TransferRow
    auth_key: str


class Acceptor(NamedTuple):
    """The user and the project that get a volume.

    :ivar sees_all_types: whether the user also sees the private types of other projects
    """

    project_id: str
    user_id: str | None
    sees_all_types: bool


class Filters(TypedDict, total=False):
    """Filters of a list; an absent key filters nothing."""

    id: str
    project_id: str
    volume_id: str
    name: str
    no_snapshots: bool


SORTABLE = frozenset({"id", "project_id", "volume_id", "name", "created_at", "updated_at"})
_EQUAL = tuple(Filters.__annotations__)
_SELECTIVE = frozenset({"id", "volume_id"})


def _digest(salt: str, auth_key: str) -> str:
    return hmac.new(salt.encode(), auth_key.encode(), hashlib.sha256).hexdigest()


@retried
def create(volume_id: str, project_id: str, values: Mapping[str, Any]) -> NewTransfer:
    """Offer a volume that no host uses.

    :param project_id: that the volume belongs to
    :param values: ``name`` and ``no_snapshots``
    :raises VolumeNotFound: the project does not have the volume any more
    :raises InvalidVolume: it is not available, has attachments, or is being cloned
    :raises InvalidSnapshot: one of the snapshots that are transferred with it is not available
    """
    auth_key, salt = secrets.token_hex(_KEY_BYTES), secrets.token_hex(_KEY_BYTES)
    row: TransferRow = {
        "id": models.new_id(),
        "volume_id": volume_id,
        "project_id": project_id,
        "name": values["name"],
        "salt": salt,
        "key_digest": _digest(salt, auth_key),
        "no_snapshots": values["no_snapshots"],
        "created_at": models.now(),
        "updated_at": None,
    }
    with session.writer() as connection:
        volume = volume_store.lock(connection, volume_id, project_id)
        _check_volume(connection, volume)
        if not row["no_snapshots"]:
            _lock_snapshots(connection, volume)
        volume_store.move(connection, volume, Event.OFFER, {})
        connection.execute(sa.insert(_TRANSFERS).values(row))
    return NewTransfer(row, auth_key)


def _check_volume(connection: sa.Connection, volume: VolumeRow) -> None:
    """Check that a volume, whose row is locked, can be offered."""
    volume_id = volume["id"]
    if (volume["state"], volume["status"]) != (VolumeState.READY, "available"):
        raise exception.InvalidVolume(
            reason=f"Volume {volume_id} status must be available to transfer it, but current "
            f"status is: {volume['status']}."
        )
    # Also those that hold nothing, such as failed ones: they belong to the project as well.
    if rows := attachment_rows.list_rows(connection, volume_id):
        raise exception.InvalidVolume(
            reason=f"Volume {volume_id} cannot be transferred while it has attachments: "
            f"{attachment_rows.describe_all(rows)}. Delete them first."
        )
    clone_source.check_no_pending_clone(connection, volume_id)


def _lock_snapshots(connection: sa.Connection, volume: VolumeRow) -> list[SnapshotRow]:
    """Lock and return the snapshots that a volume, whose row is locked, has in its own project.

    Others have stayed in a former project, to which they belong.

    :raises InvalidSnapshot: one of them is not available
    """
    rows = [
        row
        for row in snapshot_rules.lock_all(connection, volume["id"])
        if row["project_id"] == volume["project_id"]
    ]
    for row in rows:
        if row["state"] != SnapshotState.AVAILABLE:
            raise exception.InvalidSnapshot(
                reason=f"Snapshot {row['id']} status must be available to transfer it with its "
                f"volume, but current status is: {row['state']}."
            )
    return rows


@retried
def get(transfer_id: str, project_id: str | None) -> TransferRow:
    """Return one transfer.

    :param project_id: only of a volume of this project; None: of any project
    :raises TransferNotFound: there is none
    """
    statement = sa.select(_TRANSFERS).where(_TRANSFERS.c.id == transfer_id)
    if project_id is not None:
        statement = statement.where(_TRANSFERS.c.project_id == project_id)
    row = session.fetch_one(statement, TransferRow)
    if row is None:
        raise exception.TransferNotFound(transfer_id=transfer_id)
    return row


@retried
def page(filters: Filters, page: paging.Page) -> list[TransferRow]:
    """Return one page of transfers, in one statement.

    :raises MarkerNotFound: there is no such item
    :raises BadRequest: it would examine too many rows
    """
    statement = sa.select(_TRANSFERS).where(*paging.equal(_TRANSFERS, filters, _EQUAL))
    visible = paging.equal(_TRANSFERS, filters, ("project_id",))
    index = paging.order_index(_TRANSFERS, filters, page, _SELECTIVE)
    bounding = paging.equal(_TRANSFERS, filters, ("project_id", *_SELECTIVE))
    is_search = bool({"name", "no_snapshots"} & filters.keys())
    with session.reader() as connection:
        paging.check_examined(connection, _TRANSFERS, bounding, page, is_search=is_search)
        return paging.fetch_page(
            connection, statement, _TRANSFERS, visible, page, TransferRow, index
        )


def check_key(row: TransferRow, auth_key: str) -> None:
    """Check the key of a transfer; the time that it takes says nothing about it.

    :raises InvalidAuthKey: it is another one
    """
    if not hmac.compare_digest(_digest(row["salt"], auth_key), row["key_digest"]):
        raise exception.InvalidAuthKey(
            reason=f"It is not that of transfer {row['id']}. Use the auth_key that its creation "
            "has returned."
        )


@retried
def accept(row: TransferRow, new_owner: Acceptor) -> None:
    """Give a volume, and the snapshots that are transferred with it, to a project.

    :param row: of the transfer, whose key was checked
    :raises TransferNotFound: it does not exist any more
    :raises VolumeTypeNotFound: the type of the volume is private, and the project lacks access
    :raises QuotaExceeded: the project has not enough quota
    :raises InvalidSnapshot: a snapshot that is transferred with it is not available
    """
    changed = {"project_id": new_owner.project_id, "user_id": new_owner.user_id}
    with session.writer() as connection:
        quotas.lock_project(connection, new_owner.project_id)
        volume = _lock(connection, row)
        snapshots = [] if row["no_snapshots"] else _lock_snapshots(connection, volume)
        if volume["project_id"] != new_owner.project_id:
            _check_acceptor(connection, volume, snapshots, new_owner)
        volume_store.move(connection, volume, Event.ACCEPT, {**changed, "error": None})
        moved = _SNAPSHOTS.c.id.in_([item["id"] for item in snapshots])
        of_type = {"volume_type_id": volume["volume_type_id"]}  # It was checked and counted.
        connection.execute(sa.update(_SNAPSHOTS).where(moved).values({**changed, **of_type}))
        connection.execute(sa.delete(_TRANSFERS).where(_TRANSFERS.c.id == row["id"]))


def _check_acceptor(
    connection: sa.Connection,
    volume: VolumeRow,
    snapshots: list[SnapshotRow],
    new_owner: Acceptor,
) -> None:
    """Check that a project may have a volume with its snapshots."""
    type_id = volume["volume_type_id"]
    if type_id is not None and not new_owner.sees_all_types:
        type_store.check_known(connection, type_id, new_owner.project_id)
    gib = sum(item["size_gib"] for item in snapshots)
    counted = quotas.SnapshotsOfVolume(len(snapshots), gib)
    claim = quotas.deltas_of_transfer(type_id, volume["size_gib"], counted)
    quotas.enforce(connection, new_owner.project_id, claim)


@retried
def delete(row: TransferRow) -> None:
    """Withdraw an offer: its volume is available again.

    :raises TransferNotFound: it does not exist any more
    """
    with session.writer() as connection:
        volume = _lock(connection, row)
        volume_store.move(connection, volume, Event.WITHDRAW_OFFER, {})
        connection.execute(sa.delete(_TRANSFERS).where(_TRANSFERS.c.id == row["id"]))


def _lock(connection: sa.Connection, row: TransferRow) -> VolumeRow:
    """Lock the volume of a transfer, and so the transfer, and return the volume's row."""
    is_there = sa.select(_TRANSFERS.c.id).where(_TRANSFERS.c.id == row["id"]).with_for_update()
    try:
        volume = volume_store.lock(connection, row["volume_id"], row["project_id"])
    except exception.VolumeNotFound:
        volume = None
    if volume is None or connection.execute(is_there).first() is None:
        raise exception.TransferNotFound(transfer_id=row["id"])
    return volume
