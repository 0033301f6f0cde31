# SPDX-License-Identifier: Apache-2.0
"""Disconnect attachments, from any state: the row before, the flow, the row after.

The endpoint calls it for clients, and recovery for operations that a dead manager left unfinished.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from oslo_log import log

from attachd import exception
from attachd.db.attachments import rows as attachment_rows
from attachd.db.attachments import store as db
from attachd.db.attachments.rows import Guard, LockedVolume, Moved
from attachd.manager import backends, flow_runner, notify
from attachd.manager.backends import Backend
from attachd.manager.flows import attachment as attachment_flows
from attachd.manager.ha.joint_work import Begin
from attachd.manager.ha.volume_lease import VolumeLease
from attachd.states import Event

LOG = log.getLogger(__name__)


def detach(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    states: Collection[str] | None = None,
) -> list[db.Row]:
    """Revoke the host's access and remove the attachment.

    The connections that the older calls opened for it are closed first.

    :param states: only if it is in one of these; None: in any state
    :returns: the rows of the volume's remaining attachments, as clients know them
    :raises: as manager_api.detach()
    """
    return _detach(backend, attachment_id, volume_id, _in_states(states), _no_message)


def force_detach(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    user_id: str | None,
    states: Collection[str] | None = None,
) -> list[db.Row]:
    """Do as :func:`detach`, and store a message to the attachment's user that this user did it.

    :raises: as manager_api.force_detach()
    """
    return _detach(
        backend,
        attachment_id,
        volume_id,
        _in_states(states),
        lambda row: notify.force_detach_message(row, user_id),
    )


def _disconnect_failed(row: db.Row, failure: flow_runner.FlowFailed) -> exception.AttachdError:
    return flow_runner.caller_error(
        exception.DisconnectFailed, failure.cause, attachment_id=row["id"]
    )


def _no_message(_row: db.Row) -> None:
    pass


def _in_states(states: Collection[str] | None) -> Guard:
    """Return a guard that takes an attachment over if it is in one of these states."""

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        attachment_rows.check_allowed_states(locked.attachment, states)
        return attachment_rows.next_generation(locked.attachment)

    return guard


def _detach(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    guard: Guard,
    on_begin: Callable[[db.Row], None],
) -> list[db.Row]:
    backend.check_ready()
    with backend.work(Begin(attachment_id, volume_id, Event.DISCONNECT, guard)) as work:
        moved, lease = work.moved, work.lease
        on_begin(moved.attachment)
        notify.attachment_event(backend, "detach.start", moved)
        row = moved.attachment
        try:
            _revoke(backend, moved.volume, row, _end_connections(backend, moved, lease))
        except flow_runner.FlowFailed as failure:
            _record_failure(row, failure, lease)
            raise _disconnect_failed(row, failure) from failure
        remaining = work.record_revoked()
        notify.attachment_removed_event(backend, "detach.end", remaining)
        return attachment_rows.visible(remaining.others)


def _end_connections(backend: Backend, moved: Moved, lease: VolumeLease) -> list[db.Row]:
    """Close the connections of an attachment that is detached; return the other rows."""
    ending = attachment_rows.connections_to_close(moved.attachment, moved.others)
    ended = [row["id"] for row in ending if end_connection(backend, row, lease)]
    return [row for row in moved.others if row["id"] not in ended]


class _ServesAnother(Exception):
    """The connection was assigned to another attachment meanwhile."""


def end_connection(
    backend: Backend, row: db.Row, lease: VolumeLease, *, named: bool = False
) -> bool:
    """Revoke the access of a connection's host and remove its row, as a part of other work.

    :param row: as it was read; a connection that serves another attachment by now stays
    :param lease: of the volume; it is kept
    :param named: close it in any case, because the client has named this host
    :returns: whether the connection was removed
    :raises flow_runner.FlowFailed: the row has the reason
    """

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        current = locked.attachment
        if not named and current["parent_id"] != row["parent_id"]:
            raise _ServesAnother
        return attachment_rows.next_generation(current)

    try:
        moved = lease.run_with_lease(
            lambda token: db.move(
                row["id"], row["volume_id"], Event.DISCONNECT, guard=guard, lease=token
            ),
        )
    except _ServesAnother:
        LOG.info("Connection %s: serves another attachment by now, kept", row["id"])
        return False
    try:
        _revoke(backend, moved.volume, moved.attachment, moved.others)
    except flow_runner.FlowFailed as failure:
        _record_failure(moved.attachment, failure, lease)
        raise
    generation = moved.attachment["generation"]
    db.move(row["id"], row["volume_id"], Event.REVOKED, generation=generation, lease=lease.token)
    return True


def close_connection(backend: Backend, row: db.Row, lease: VolumeLease, *, named: bool) -> None:
    """Do as :func:`end_connection`, for a client.

    :raises TerminateConnectionFailed, BackendUnavailable: with the reason
    """
    try:
        end_connection(backend, row, lease, named=named)
    except flow_runner.FlowFailed as failure:
        raise flow_runner.caller_error(
            exception.TerminateConnectionFailed,
            failure.cause,
            volume_id=row["volume_id"],
            host=row["host"],
        ) from failure


def _revoke(backend: Backend, volume: db.Row, row: db.Row, others: Sequence[db.Row]) -> None:
    if row["connector"] is None:
        return  # It was never connected, so the backend has no export of it.
    request = attachment_flows.RevokeRequest(
        backend.driver,
        backends.volume_ref(volume),
        backends.export(row),
        backends.live_exports(others),
    )
    flow_runner.run_cached(attachment_flows.build_detach, {"request": request})


def _record_failure(row: db.Row, failure: flow_runner.FlowFailed, lease: VolumeLease) -> None:
    if lease.is_fenced():
        return
    values = {"error": flow_runner.public_reason(failure.cause)}
    reason = flow_runner.reason(failure.cause)
    LOG.warning("Attachment %s: disconnect failed: %s", row["id"], reason)
    try:
        db.move(
            row["id"],
            row["volume_id"],
            Event.DISCONNECT_FAILED,
            values,
            generation=row["generation"],
            lease=lease.token,
        )
    except db.TAKEOVER_ERRORS:
        LOG.warning("Attachment %s: taken over by another manager", row["id"])
    else:
        notify.attachment_message(row, Event.DISCONNECT_FAILED, failure.cause)
