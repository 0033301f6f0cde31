# SPDX-License-Identifier: Apache-2.0
"""Disconnect attachments, from whatever state: the row before, the flow, the row after.

Called by the endpoint for clients and by recovery for what a dead manager left half-way.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from oslo_log import log

from attachd import exception
from attachd.db import attachment_steps as steps
from attachd.db import attachments as db
from attachd.db import holders
from attachd.manager import driver_args, flow_runner, notify
from attachd.manager.backends import Backend, Turn
from attachd.manager.flows import detach as detach_flow
from attachd.states import Event

LOG = log.getLogger(__name__)


def detach(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    states: Collection[str] | None = None,
) -> list[db.Row]:
    """Take the host's access away and remove the attachment.

    The connections that the older calls opened for it go first.

    :param states: only if it is in one of these; None: in whatever state it is
    :returns: the rows of the volume's remaining attachments, as clients know them
    :raises: as manager_api.detach()
    """
    return _detach(backend, attachment_id, volume_id, _only_in(states), _tell_nobody)


def force(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    user_id: str | None,
    states: Collection[str] | None = None,
) -> list[db.Row]:
    """Do as :func:`detach`, and tell the attachment's owner that this user had it done.

    :raises: as manager_api.force_detach()
    """
    return _detach(
        backend,
        attachment_id,
        volume_id,
        _only_in(states),
        lambda row: notify.of_force(row, user_id),
    )


def _tell_nobody(_row: db.Row) -> None:
    pass


def _only_in(states: Collection[str] | None) -> db.Guard:
    """Return a guard that takes an attachment over, if it is in one of these states."""

    def guard(_volume: db.Row, row: db.Row, _others: Sequence[db.Row]) -> Mapping[str, Any]:
        steps.check_allowed_states(row, states)
        return steps.taken_over(row)

    return guard


def _detach(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    guard: db.Guard,
    begun: Callable[[db.Row], None],
) -> list[db.Row]:
    backend.check_ready()
    with backend.turn(volume_id) as turn:
        moved = turn.begin(
            lambda lease: db.move(
                attachment_id, volume_id, Event.DISCONNECT, guard=guard, lease=lease
            ),
        )
        begun(moved.attachment)
        notify.of_attachment(backend, "detach.start", moved)
        row = moved.attachment
        try:
            _revoke(backend, moved.volume, row, _end_connections(backend, moved, turn))
        except flow_runner.Failed as failed:
            _note_failed_disconnect(row, failed, turn)
            raise exception.DisconnectFailed(
                attachment_id=attachment_id, reason=flow_runner.reason(failed.cause)
            ) from failed
        left = db.end(moved, turn.lease)
        notify.of_the_others(backend, "detach.end", left)
        return holders.shown(left.others)


def _end_connections(backend: Backend, moved: db.Moved, turn: Turn) -> list[db.Row]:
    """Close what was opened for an attachment that goes; return the other rows that remain."""
    ending = holders.closed_with(moved.attachment, moved.others)
    ended = [row["id"] for row in ending if end_connection(backend, row, turn)]
    return [row for row in moved.others if row["id"] not in ended]


class _Taken(Exception):
    """Somebody has said meanwhile that a connection is for an attachment."""


def end_connection(backend: Backend, row: db.Row, turn: Turn, *, named: bool = False) -> bool:
    """Shut the host of a connection out and remove its row, as a part of some work.

    :param row: as it was read; if it serves something else by now, it stays
    :param turn: with the volume; it goes on
    :param named: it does not, because it is this host that was meant
    :returns: whether it is gone
    :raises engine.Failed: the row says why
    """

    def guard(_volume: db.Row, mine: db.Row, _others: Sequence[db.Row]) -> Mapping[str, Any]:
        if not named and mine["serves"] != row["serves"]:
            raise _Taken
        return steps.taken_over(mine)

    try:
        moved = turn.begin(
            lambda lease: db.move(
                row["id"], row["volume_id"], Event.DISCONNECT, guard=guard, lease=lease
            ),
        )
    except _Taken:
        LOG.info("Connection %s is of an attachment by now and stays", row["id"])
        return False
    try:
        _revoke(backend, moved.volume, moved.attachment, moved.others)
    except flow_runner.Failed as failed:
        _note_failed_disconnect(moved.attachment, failed, turn)
        raise
    generation = moved.attachment["generation"]
    db.move(row["id"], row["volume_id"], Event.REVOKED, generation=generation, lease=turn.lease)
    return True


def close_connection(backend: Backend, row: db.Row, turn: Turn, *, named: bool) -> None:
    """Do as :func:`end_connection`, for a client.

    :raises TerminateConnectionFailed: with the reason
    """
    try:
        end_connection(backend, row, turn, named=named)
    except flow_runner.Failed as failed:
        raise exception.TerminateConnectionFailed(
            volume_id=row["volume_id"], host=row["host"], reason=flow_runner.reason(failed.cause)
        ) from failed


def _revoke(backend: Backend, volume: db.Row, row: db.Row, others: Sequence[db.Row]) -> None:
    if row["connector"] is None:
        return  # It was never connected: no driver has heard of it.
    work = detach_flow.Work(
        backend.driver,
        driver_args.volume_ref(volume),
        driver_args.export(row),
        driver_args.live(others),
    )
    flow_runner.run_again(detach_flow.build, {"work": work})


def _note_failed_disconnect(row: db.Row, failed: flow_runner.Failed, turn: Turn) -> None:
    if turn.is_lost():
        return
    values = {"error": flow_runner.reason(failed.cause), "owner": None}
    LOG.warning("Attachment %s was not disconnected: %s", row["id"], values["error"])
    try:
        db.move(
            row["id"],
            row["volume_id"],
            Event.DISCONNECT_FAILED,
            values,
            generation=row["generation"],
            lease=turn.lease,
        )
    except db.LOST:
        LOG.warning("Attachment %s has been taken over by somebody else", row["id"])
    else:
        notify.the_user(row, Event.DISCONNECT_FAILED, failed.cause)
