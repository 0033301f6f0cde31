# SPDX-License-Identifier: Apache-2.0
"""Connect attachments: the row before, the flow, the row after; detaching.py is the way back.

Called by the endpoint for clients and by recovery for what a dead manager left half-way.  The
row says what is about to happen before the driver is touched, under a new generation; whoever
loses the row meanwhile can no longer write to it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from oslo_log import log
from oslo_utils import timeutils

from attachd import exception, states
from attachd.db import attachments as db
from attachd.drivers.base import ConnectionInfo, Connector
from attachd.manager import attach_validation, driver_args, flow_runner, notify
from attachd.manager.backends import Backend, Turn
from attachd.manager.flows import attach as attach_flow
from attachd.states import AttachmentState, Event

LOG = log.getLogger(__name__)

# States in which an earlier try may have let the host in.
_MAYBE_GRANTED = frozenset({AttachmentState.CONNECTING, AttachmentState.CONNECT_UNKNOWN})


def attach(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    connector: Connector,
    denied_rule: str | None = None,
) -> dict[str, Any]:
    """Connect, beside other attachments of the same server.

    Repeating it with the same connector gives the same answer.

    :returns: manager_api.Connected
    :raises: as manager_api.attach()
    """
    backend.driver.check_connector(connector)
    allow = attach_validation.refuse_other_servers
    guard = attach_validation.begin(backend, connector, allow, denied_rule)
    return _connect(backend, attachment_id, volume_id, guard)


def attach_exclusive(
    backend: Backend,
    attachment_id: str,
    volume_id: str,
    connector: Connector,
    denied_rule: str | None = None,
) -> dict[str, Any]:
    """Connect, with no other connection of an ordinary volume beside this one.

    :raises: as manager_api.attach_exclusive()
    """
    backend.driver.check_connector(connector)
    guard = attach_validation.begin(
        backend, connector, attach_validation.refuse_others, denied_rule
    )
    return _connect(backend, attachment_id, volume_id, guard)


def finish_attach(backend: Backend, row: db.Row) -> None:
    """Connect what was connecting when its manager died, beside whatever is there by now.

    :param row: as it was read
    :raises InvalidTransition: somebody has moved it since
    """

    def unmoved(_volume: db.Row, mine: db.Row, _others: Sequence[db.Row]) -> Mapping[str, Any]:
        if (mine["state"], mine["generation"]) != (row["state"], row["generation"]):
            raise exception.InvalidTransition(
                kind="Attachment", id=row["id"], source=mine["state"], event=Event.CONNECT.value
            )
        return {}

    guard = attach_validation.begin(backend, row["connector"], unmoved)
    _connect(backend, row["id"], row["volume_id"], guard)


def _connect(
    backend: Backend, attachment_id: str, volume_id: str, guard: db.Guard
) -> dict[str, Any]:
    backend.check_ready()
    with backend.turn(volume_id) as turn:
        try:
            moved = turn.begin(
                lambda lease: db.move(
                    attachment_id, volume_id, Event.CONNECT, guard=guard, lease=lease
                ),
            )
        except attach_validation.Replay as replay:
            return answer(replay.row)
        notify.of_attachment(backend, "attach.start", moved)
        granted = grant(backend, moved, turn)
    notify.until_heard()
    return granted


def grant(backend: Backend, moved: db.Moved, turn: Turn) -> dict[str, Any]:
    """Have the backend let the host in, for a row that is connecting under our generation.

    :param turn: whose work ends with it
    """
    row = moved.attachment
    volume, export = driver_args.volume_ref(moved.volume), driver_args.export_to_grant(row)
    work = attach_flow.Work(
        backend.driver,
        volume,
        export,
        driver_args.live(moved.others),
        lambda connection: _record(row, driver_args.with_qos(connection, moved.volume), turn),
        lambda: _is_wanted(row, turn),
        repeated=moved.source in _MAYBE_GRANTED,
    )
    try:
        flow_runner.run_again(attach_flow.build, {"work": work})
    except flow_runner.Failed as failed:
        _note_failed_connect(row, failed, turn)
        raise _as_connect_failure(row, failed) from failed
    return answer(row)


def _record(row: db.Row, connection: ConnectionInfo, turn: Turn) -> None:
    row["connection_info"] = {
        **connection,
        "data": {**connection["data"], "access_mode": row["mode"]},
    }
    values = {
        "connection_info": row["connection_info"],
        "attached_at": timeutils.utcnow(),
        "owner": None,
    }
    db.move_alone(row, Event.GRANTED, values, row["generation"], turn.lease)


def _is_wanted(row: db.Row, turn: Turn) -> bool:
    """Tell whether the host is to be let in although our connect has failed.

    Where a second manager has taken the row over and connects it too, its grant is the same as
    ours.  Without the lease nothing is taken back: either the end of our work was stored after
    all, although nobody told us, or somebody else decides by now.  And while nobody can tell
    whether the row says connected, the grant has to stay: the row is at least connecting, and
    whoever asks again finishes it.
    """
    try:
        if not turn.is_ours():
            return True
        now = db.get(row["id"], None)
    except exception.NotFound:
        return False
    except exception.Unavailable:
        return True
    theirs = now["generation"] != row["generation"] and now["state"] in states.LIVE
    return theirs or now["state"] in states.WITH_ACCESS


def _note_failed_connect(row: db.Row, failed: flow_runner.Failed, turn: Turn) -> None:
    if turn.is_lost():
        return
    event = Event.CONNECT_FAILED if failed.clean else Event.CONNECT_LOST
    values: dict[str, Any] = {
        "error": flow_runner.reason(failed.cause),
        "owner": None,
        "connection_info": None,
    }
    if failed.clean:
        values["mode"] = row["asked_mode"]  # Nothing was decided after all.
    LOG.warning("Attachment %s was not connected: %s", row["id"], values["error"])
    try:
        db.move(
            row["id"],
            row["volume_id"],
            event,
            values,
            generation=row["generation"],
            lease=turn.lease,
            last=True,
        )
    except db.LOST:
        LOG.warning("Attachment %s has been taken over by somebody else", row["id"])
    else:
        notify.the_user(row, event, failed.cause)


def _as_connect_failure(row: db.Row, failed: flow_runner.Failed) -> exception.AttachdError:
    if isinstance(failed.cause, exception.InvalidTransition | exception.Unavailable):
        return failed.cause
    return exception.ConnectFailed(
        attachment_id=row["id"], reason=flow_runner.reason(failed.cause)
    )


def answer(row: db.Row) -> dict[str, Any]:
    """Return what callers are told of a connected row: manager_api.Connected.

    :raises SecretUnreadable: it cannot be opened
    """
    return {"connection_info": driver_args.connection(row), "mode": row["mode"]}
