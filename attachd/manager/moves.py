# SPDX-License-Identifier: Apache-2.0
"""The manager's part of moving an attachment to another host; see
db/attachments/attachment_moves.py.

With a driver that can switch modes the destination is connected to read only.  It may write as
soon as the row of its source is gone: the process that ended the access of the source calls
:func:`end_moves`, and recovery does for a dead process.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from oslo_log import log

from attachd import exception, notifications
from attachd.db import host_fences
from attachd.db.attachments import attachment_moves, attachment_rows, attachment_store
from attachd.db.attachments.attachment_rows import LockedVolume
from attachd.db.row_types import AttachmentRow, DriverVolumeRow
from attachd.db.volumes import volume_store
from attachd.drivers import abilities
from attachd.manager import backends, flow_runner, notify
from attachd.manager.backends import Backend
from attachd.states import ESTABLISHED, AttachmentState
from attachd.telemetry.tracing import step

LOG = log.getLogger(__name__)


def connect_columns(backend: Backend, locked: LockedVolume, mode: str) -> dict[str, Any]:
    """Return the columns of a destination that is being connected.

    Whether its export has a connection of its own is decided once: a repeated grant is the same.

    :param mode: in which its host may have access after the move
    """
    row = locked.attachment
    own = row["own_connection"]
    if own is None:
        own = mode == "rw" and isinstance(backend.driver, abilities.SwitchMode)
    has_source = attachment_moves.find_source(row, locked.others) is not None
    return {"own_connection": own, **({"mode": "ro"} if own and has_source else {})}


def end_moves(backend: Backend, source_id: str, rows: Sequence[AttachmentRow]) -> None:
    """Let the destinations of a source write whose access has ended; recovery does what fails.

    :param rows: of its volume, without the source
    """
    for row in rows:
        if row["move_from"] == source_id and row["state"] in ESTABLISHED:
            try:
                end_move(backend, row["id"], row["volume_id"])
            except exception.AttachdError as error:
                LOG.warning("Attachment %s: its move is left to recovery: %s", row["id"], error)


def end_move(backend: Backend, attachment_id: str, volume_id: str) -> str:
    """Let a destination write whose source is gone; one that has been switched stays as it is.

    :returns: the mode of its host
    :raises AttachmentNotFound: it is deleted
    :raises Conflict: its source is still there
    :raises InvalidTransition: its host has no access that stays
    :raises MoveFailed: the backend failed; recovery tries again
    :raises HostFenced: its host was fenced meanwhile
    """
    backend.check_ready()
    with backend.lock(volume_id) as volume_lease:
        rows = {row["id"]: row for row in attachment_store.list_of_volumes([volume_id])}
        if (row := rows.pop(attachment_id, None)) is None:
            raise exception.AttachmentNotFound(attachment_id=attachment_id)
        if row["move_from"] is None:
            return str(row["mode"])
        if row["move_from"] in rows:
            raise exception.Conflict(
                reason=f"Attachment {row['move_from']} still has access to volume {volume_id}."
            )
        if AttachmentState(row["state"]) not in ESTABLISHED:
            raise exception.InvalidTransition(
                kind="Attachment", id=row["id"], source=row["state"], event="finish its move"
            )
        volume, ends = (
            volume_store.get_for_driver(volume_id),
            attachment_moves.ends(row["move_from"], row["id"]),
        )
        attachment_moves.finish(row, _switch(backend, volume, row), volume_lease.token)
    LOG.info("Attachment %s: its move is finished, with access %s", row["id"], row["mode"])
    notifications.volume("attach.move.end", volume_id, host=backend.host, move=ends)
    notify.request_reconcile([row])
    return str(row["mode"])


def _switch(backend: Backend, volume: DriverVolumeRow, row: AttachmentRow) -> Mapping[str, Any]:
    """Give write access, under its session, to the host of a destination that waits for it.

    :returns: the columns to store; the connection is the same but for its mode
    :raises MoveFailed: the host may write or not
    :raises HostFenced: it was fenced meanwhile
    """
    if row["mode"] == "rw" or not attachment_rows.may_write(row):
        return {}
    host_fences.check_attachment(row)
    export = backends.export_with_secret({**row, "mode": "rw"})
    try:
        with step("grant"):
            answer = backend.driver.grant(backends.volume_ref(volume), export)
    except exception.BackendError as error:
        reason = flow_runner.reason(error)
        LOG.warning("Attachment %s: changing its mode failed: %s", row["id"], reason)
        details = {"attachment_id": row["id"]}
        raise flow_runner.caller_error(exception.MoveFailed, error, **details) from error
    _answer, provider_secrets = backends.split_secrets(answer)
    connection = backends.connection_info(row)
    assert connection is not None, "an attachment in ESTABLISHED with a connector"
    return {
        "mode": "rw",
        "connection_info": backends.with_mode(connection, "rw"),
        **provider_secrets,
    }
