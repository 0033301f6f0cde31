# SPDX-License-Identifier: Apache-2.0
"""Disconnect attachments, from any state: the row before, the flow, the row after.

The endpoint calls it for clients, and recovery for operations that a dead manager left unfinished.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
import contextlib
from typing import Any

from oslo_log import log

from attachd import exception, states
from attachd.db import models
from attachd.db.agents import agent_store
from attachd.db.attachments import (
    attachment_moves,
    attachment_rows,
    attachment_store,
    events,
    legacy_rows,
)
from attachd.db.attachments.attachment_rows import Guard, LockedVolume, Transitioned
from attachd.db.row_types import AttachmentRow, AttachmentVersion, DriverVolume, DriverVolumeRow
from attachd.db.volumes import volume_store
from attachd.manager import backends, fencing, flow_runner, moves, notify
from attachd.manager.backends import Backend
from attachd.manager.flows import attachment as attachment_flows
from attachd.manager.ownership.joint_work import Begin
from attachd.manager.ownership.volume_lease import VolumeLease
from attachd.rpc.manager_api import Fencing
from attachd.states import AttachmentState, Event

LOG = log.getLogger(__name__)


def detach(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    allowed_states: Collection[str] | None = None,
) -> list[AttachmentRow]:
    """Revoke the host's access and remove the attachment.

    The connections that the older calls opened for it are closed first.

    :param allowed_states: only if it is in one of these; None: in any state
    :returns: the rows of the volume's remaining attachments, as clients know them
    :raises: as manager_api.detach()
    """
    allowed = _in_states(allowed_states)

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        attachment_moves.check_may_roll_back(locked)
        return allowed(locked)

    return _detach(backend, attachment_id, volume_id, guard)


def force_detach(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    user_id: str | None,
    allowed_states: Collection[str] | None = None,
) -> list[AttachmentRow]:
    """Do as :func:`detach`, and store a message to the attachment's user that this user did it.

    The user is trusted that the host is off: a fence that cannot be proved is not waited for.

    :raises: as manager_api.force_detach()
    """
    allowed = _in_states(allowed_states)
    return _detach(
        backend,
        attachment_id,
        volume_id,
        lambda locked: {**allowed(locked), "fenced": False},
        by_force=True,
        on_begin=lambda row: notify.force_detach_message(row, user_id),
    )


def finish_move(backend: Backend, attachment_id: str, volume_id: str) -> str:
    """Fence the source of a move, or detach it where hosts cannot be fenced; let the other write.

    :param attachment_id: of the destination
    :returns: the mode of its host
    :raises: as manager_api.finish_move()
    """
    row = attachment_store.get(attachment_id, None)
    if (source_id := row["move_from"]) is None:
        return str(row["mode"])
    proves = fencing.get_fencing(backend.driver) is not Fencing.NONE

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        attachment_moves.check_may_finish(locked, attachment_id)
        check_device_released(locked.attachment)
        return {**attachment_rows.next_generation(locked.attachment), "fenced": proves}

    with contextlib.suppress(exception.AttachmentNotFound):  # It has ended before.
        _detach(backend, source_id, volume_id, guard)
    return moves.end_move(backend, attachment_id, volume_id)


def check_device_released(row: AttachmentRow) -> None:
    """Check that no agent has the device of an attachment, which it could still write to.

    :raises Conflict: one has it
    """
    if row["agent"] is not None and AttachmentState(row["state"]) in states.WITH_ACCESS:
        raise exception.Conflict(
            reason=f"Host {row['agent']} has not released the device of attachment {row['id']}. "
            "Repeat the call."
        )


def finish_detach(backend: Backend, row: AttachmentVersion) -> None:
    """Do as :func:`detach` for an attachment whose disconnect was interrupted, or has failed.

    A failed one whose reason is the same as before stays as it is: each attempt would be an event
    and a notification.

    :param row: as it was read
    :raises InvalidTransition: it was changed since
    """
    if row["state"] == AttachmentState.DISCONNECT_FAILED:
        _check_reason_has_changed(backend, row)

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        attachment_rows.check_unchanged(locked.attachment, row, Event.DISCONNECT)
        return attachment_rows.next_generation(locked.attachment)

    _detach(backend, row["id"], row["volume_id"], guard)


def _check_reason_has_changed(backend: Backend, row: AttachmentVersion) -> None:
    """Try again what has failed; the detach may begin if that succeeds, or fails differently.

    :raises DisconnectFailed: it fails as before
    """
    with _unchanged(backend, row, Event.DISCONNECT) as (volume, current, others, _lease):
        closing = legacy_rows.connections_to_close(current, others)
        try:
            for item in (*closing, current):
                if item["state"] != AttachmentState.DISCONNECT_FAILED:
                    continue  # A connection that may be assigned to another attachment.
                _revoke(backend, volume, item, [other for other in others if other is not item])
        except flow_runner.FlowFailed as failure:
            reason = models.truncate_error(flow_runner.public_reason(failure.cause))
            if reason == current["error"]:
                raise _disconnect_failed(row, failure) from failure


@contextlib.contextmanager
def _unchanged(
    backend: Backend, row: AttachmentVersion, event: Event
) -> Iterator[tuple[DriverVolumeRow, AttachmentRow, list[AttachmentRow], VolumeLease]]:
    """Take the lease of a volume for work on one row, and read what the work needs.

    :param row: as it was read
    :param event: of the work, for the message
    :returns: the volume, the row, the other rows of the volume, and the lease
    :raises InvalidTransition: it was changed since
    """
    backend.check_ready()
    with backend.lock(row["volume_id"]) as volume_lease:
        volume = volume_store.get_for_driver(row["volume_id"])
        rows = {item["id"]: item for item in attachment_store.list_of_volumes([row["volume_id"]])}
        if (current := rows.pop(row["id"], None)) is None:
            raise exception.AttachmentNotFound(attachment_id=row["id"])
        attachment_rows.check_unchanged(current, row, event)
        yield volume, current, [*rows.values()], volume_lease


def undo_connect(backend: Backend, row: AttachmentRow) -> None:
    """Revoke what an uncertain connect may have granted; it has surely failed then.

    :param row: as it was read
    :raises InvalidTransition: it was changed since
    :raises Conflict: its host reports a device, and the row stays as it is
    :raises DisconnectFailed: the host may still have access, and the row stays as it is
    """
    with _unchanged(backend, row, Event.CONNECT_FAILED) as (volume, current, others, volume_lease):
        _check_no_device(current)
        try:
            _revoke(backend, volume, current, others)
        except flow_runner.FlowFailed as failure:
            raise _disconnect_failed(row, failure) from failure
        attachment_store.transition(
            row["id"],
            row["volume_id"],
            Event.CONNECT_FAILED,
            attachment_store.values_of_failed_connect(current),
            generation=current["generation"],
            volume_lease=volume_lease.token,
            last=True,
        )


def _check_no_device(row: AttachmentRow) -> None:
    """Check that the agent of an uncertain connect reports no device.

    One that does was connected after the backup from which the database was restored.

    :raises Conflict: it does
    """
    path = agent_store.find_device(row["agent"], row["id"]) if row["agent"] else None
    if path is not None:
        raise exception.Conflict(
            reason=f"Host {row['agent']} reports volume {row['volume_id']} as {path}, by "
            f"attachment {row['id']}, whose connect is uncertain: it keeps its access. The agent "
            "removes the device as soon as it is unused; or delete the attachment by force."
        )


def _disconnect_failed(
    row: AttachmentVersion, failure: flow_runner.FlowFailed
) -> exception.AttachdError:
    return flow_runner.caller_error(
        exception.DisconnectFailed, failure.cause, attachment_id=row["id"]
    )


def _in_states(allowed_states: Collection[str] | None) -> Guard:
    """Return a guard that takes an attachment over if it is in one of these states."""

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        attachment_rows.check_allowed_states(locked.attachment, allowed_states)
        return attachment_rows.next_generation(locked.attachment)

    return guard


def _detach(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    guard: Guard,
    *,
    by_force: bool = False,
    on_begin: Callable[[AttachmentRow], None] | None = None,
) -> list[AttachmentRow]:
    """Disconnect; return the rows of the volume's remaining attachments, as clients know them."""
    backend.check_ready()
    with backend.work(Begin(attachment_id, volume_id, Event.DISCONNECT, guard)) as work:
        transitioned, volume_lease = work.transitioned, work.volume_lease
        if on_begin is not None:
            on_begin(transitioned.attachment)
        notify.attachment_event(backend, "detach.start", transitioned)
        row = transitioned.attachment
        try:
            others = _end_connections(backend, transitioned, volume_lease, by_force=by_force)
            _revoke(backend, transitioned.volume, row, others, by_force=by_force)
        except flow_runner.FlowFailed as failure:
            _record_failure(transitioned, failure, volume_lease)
            raise _disconnect_failed(row, failure) from failure
        remaining = work.record_revoked()
        notify.attachment_removed_event(backend, "detach.end", remaining)
        _notify_served(backend, transitioned, remaining)
    moves.end_moves(backend, attachment_id, remaining.others)
    return attachment_rows.visible(remaining.others)


def _notify_served(backend: Backend, transitioned: Transitioned, remaining: Transitioned) -> None:
    """Send the notifications about a legacy attachment that went with its fenced connection."""
    served = legacy_rows.find_served(transitioned.attachment, transitioned.others)
    if served is not None and served["id"] not in {row["id"] for row in remaining.others}:
        removed = remaining._replace(attachment=served)
        for event in ("detach.start", "detach.end"):
            notify.attachment_removed_event(backend, event, removed)


def _end_connections(
    backend: Backend, transitioned: Transitioned, volume_lease: VolumeLease, *, by_force: bool
) -> list[AttachmentRow]:
    """Close the connections of an attachment that is detached; return the other rows."""
    ending = legacy_rows.connections_to_close(transitioned.attachment, transitioned.others)
    ended = [
        row["id"]
        for row in ending
        if end_connection(backend, row, volume_lease, by_force=by_force)
    ]
    return [row for row in transitioned.others if row["id"] not in ended]


class _ServesAnother(Exception):
    """The connection was assigned to another attachment meanwhile."""


def end_connection(
    backend: Backend,
    row: AttachmentRow,
    volume_lease: VolumeLease,
    *,
    named: bool = False,
    by_force: bool = False,
) -> bool:
    """Revoke the access of a connection's host and remove its row, as a part of other work.

    :param row: as it was read; a connection that serves another attachment by now stays
    :param volume_lease: of the volume; it is kept
    :param named: close it in any case, because the client has named this host
    :param by_force: also if the backend does not have the volume
    :returns: whether the connection was removed
    :raises flow_runner.FlowFailed: the row has the reason
    """

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        current = locked.attachment
        if not named and current["parent_id"] != row["parent_id"]:
            raise _ServesAnother
        return attachment_rows.next_generation(current)

    try:
        transitioned = volume_lease.run_with_lease(
            lambda token: attachment_store.transition(
                row["id"], row["volume_id"], Event.DISCONNECT, guard=guard, volume_lease=token
            ),
        )
    except _ServesAnother:
        LOG.info("Connection %s: serves another attachment by now, kept", row["id"])
        return False
    try:
        _revoke(
            backend,
            transitioned.volume,
            transitioned.attachment,
            transitioned.others,
            by_force=by_force,
        )
    except flow_runner.FlowFailed as failure:
        _record_failure(transitioned, failure, volume_lease)
        raise
    generation = transitioned.attachment["generation"]
    attachment_store.transition(
        row["id"],
        row["volume_id"],
        Event.REVOKED,
        generation=generation,
        volume_lease=volume_lease.token,
    )
    return True


def close_connection(
    backend: Backend, row: AttachmentRow, volume_lease: VolumeLease, *, named: bool
) -> None:
    """Do as :func:`end_connection`, for a client.

    :raises TerminateConnectionFailed, BackendUnavailable: with the reason
    """
    try:
        end_connection(backend, row, volume_lease, named=named)
    except flow_runner.FlowFailed as failure:
        raise flow_runner.caller_error(
            exception.TerminateConnectionFailed,
            failure.cause,
            volume_id=row["volume_id"],
            host=row["host"],
        ) from failure


def _revoke(
    backend: Backend,
    volume: DriverVolume,
    row: AttachmentRow,
    others: Sequence[AttachmentRow],
    *,
    by_force: bool = False,
) -> None:
    """Revoke the access of a row's host, and of a fenced one store the proof.

    :param by_force: also if the backend does not have the volume
    """
    if row["connector"] is None:  # The backend has no export of it.
        if row["fenced"]:
            events.record_fenced(row, fencing.NOT_CONNECTED)
        return
    request = attachment_flows.RevokeRequest(
        backend.driver,
        backends.volume_ref(volume),
        backends.export(row),
        backends.live_exports(others),
        may_be_missing=by_force,
    )
    if not row["fenced"]:
        flow_runner.run_cached(attachment_flows.build_detach, {"request": request})
        return
    provided = flow_runner.run_cached(attachment_flows.build_fence, {"request": request})
    served = legacy_rows.find_served(row, others)
    subject: AttachmentRow = {**served, "host": row["host"]} if served else row
    events.record_fenced(subject, provided["proof"])


def _record_failure(
    transitioned: Transitioned, failure: flow_runner.FlowFailed, volume_lease: VolumeLease
) -> None:
    if volume_lease.may_be_taken_over():
        return
    row = transitioned.attachment
    values = {"error": flow_runner.public_reason(failure.cause)}
    reason = flow_runner.reason(failure.cause)
    LOG.warning("Attachment %s: disconnect failed: %s", row["id"], reason)
    try:
        attachment_store.transition(
            row["id"],
            row["volume_id"],
            Event.DISCONNECT_FAILED,
            values,
            generation=row["generation"],
            volume_lease=volume_lease.token,
        )
    except attachment_store.TAKEOVER_ERRORS:
        LOG.warning("Attachment %s: taken over by another manager", row["id"])
    else:
        if transitioned.source is not AttachmentState.DISCONNECT_FAILED:  # Its user has a message.
            notify.attachment_message(row, Event.DISCONNECT_FAILED, failure.cause)
