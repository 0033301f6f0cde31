# SPDX-License-Identifier: Apache-2.0
"""Open and close connections that belong to no attachment yet; called by the endpoint.

The older calls connect a host first and tell afterwards, if at all, which server it was for.  A
connection is a row of attachments that clients are not shown: it goes through the same states,
flows and recovery as any other.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from attachd import exception, states
from attachd.db import attachments as db
from attachd.db import holders
from attachd.db import legacy as legacy_db
from attachd.drivers.base import Connector
from attachd.manager import attach, attach_validation, detach
from attachd.manager.backends import Backend
from attachd.states import AttachmentKind, AttachmentState, VolumeState

_NAMES: Final = ("host", "initiator", "nqn", "wwpns")
"""What hosts are told apart by; all else in a connector may change from call to call."""


def open_(
    backend: Backend,
    volume_id: str,
    project_id: str,
    user_id: str | None,
    connector: Connector,
    denied_rule: str | None = None,
) -> dict[str, Any]:
    """Let a host in; one that is let in already gets the same answer.

    :returns: manager_api.Connected
    :raises: as manager_api.initialize_connection()
    """
    backend.check_ready()
    backend.driver.check_connector(connector)
    with backend.turn(volume_id) as turn:
        try:
            moved = turn.begin(
                lambda lease: legacy_db.open_connection(
                    volume_id,
                    project_id,
                    user_id,
                    lambda rows: _of_host(rows, connector),
                    _begin(backend, connector),
                    legacy_db.Denied(denied_rule, connector.get("host")),
                    lease,
                ),
            )
            return attach.grant(backend, moved, turn)
        except attach_validation.Replay as replay:
            return attach.answer(replay.row)
        except exception.ConnectFailed as failed:
            raise exception.InitializeConnectionFailed(
                volume_id=volume_id,
                host=connector.get("host"),
                reason=failed.details["reason"],
            ) from failed


def _of_host(rows: Sequence[db.Row], connector: Connector) -> db.Row | None:
    return next((row for row in rows if _is_of_host(row, connector)), None)


def _is_of_host(row: db.Row, connector: Connector) -> bool:
    """Tell whether two connectors are of one host: nothing that both tell differs."""
    told = [(_comparable(row["connector"].get(name)), _comparable(connector.get(name)))
            for name in _NAMES]  # fmt: skip
    both = [pair for pair in told if all(pair)]
    return bool(both) and all(mine == theirs for mine, theirs in both)


def _comparable(value: Any) -> Any:
    return sorted(map(str, value)) if isinstance(value, list) else value


def _begin(backend: Backend, connector: Connector) -> db.Guard:
    def guard(volume: db.Row, mine: db.Row, others: Sequence[db.Row]) -> Mapping[str, Any]:
        state = AttachmentState(mine["state"])
        if state in states.WITH_ACCESS:
            raise attach_validation.Replay(mine)
        _check_usable(volume, others)
        # What may have been granted is granted again as it was.
        used = mine["connector"] if state in attach_validation.BOUND else connector
        bound = legacy_db.serving(volume, others, used.get("host"), mine["user_id"])
        served = _as_served({**mine, **bound}, others)
        return {**attach_validation.begun(backend, volume, served, others, used), **bound}

    return guard


def _as_served(mine: db.Row, others: Sequence[db.Row]) -> db.Row:
    """Return a connection that asks for no more than the attachment it is for."""
    served = [row for row in others if row["id"] == mine["serves"]]
    modes = [row["asked_mode"] or row["mode"] for row in served]
    return {**mine, "asked_mode": "ro"} if "ro" in modes else mine


def _check_usable(volume: db.Row, others: Sequence[db.Row]) -> None:
    """Connect nobody to a volume that is another's, or broken.

    :raises InvalidVolume: it is
    """
    in_the_way = [
        row
        for row in holders.counted(holders.shown(others))
        if row["kind"] == AttachmentKind.ATTACHMENT or row["state"] in holders.LEAVING
    ]
    kept = [AttachmentState(row["state"]) for row in others]
    status = states.derive(VolumeState(volume["state"]), kept).status
    if volume["state"] != VolumeState.READY or status == "error":
        reason = f"its status is {status}"
    elif in_the_way and not volume["multiattach"]:
        reason = f"it is not multiattach and is held by {holders.name(in_the_way[0])}"
    else:
        return
    raise exception.InvalidVolume(reason=f"Volume {volume['id']} cannot be connected: {reason}.")


def close(
    backend: Backend,
    volume_id: str,
    connector: Connector | None,
    attachment_ids: Sequence[str] | None,
    connection_ids: Collection[str] | None = None,
) -> int:
    """Shut hosts out that were let in by :func:`open_`, and give back the holds they came with.

    Where none is shut out no hold is given back: the call may have come late, or twice.  A host
    that was let in for several attachments is not shut out before they are detached.

    :param connector: of the host; None: whatever hosts there are
    :param attachment_ids: only what serves one of these attachments, or none at all; None:
        whatever it serves
    :param connection_ids: only these; None: whichever there are
    :returns: how many connections were closed
    :raises: as manager_api.terminate_connections()
    """
    backend.check_ready()
    with backend.turn(volume_id) as turn:
        rows = db.of_volumes([volume_id])
        reach = None if attachment_ids is None else {None, *attachment_ids}
        ending = [
            row
            for row in rows
            if row["kind"] == AttachmentKind.CONNECTION
            and (reach is None or row["serves"] in reach)
            and (connection_ids is None or row["id"] in connection_ids)
            and (connector is None or _is_of_host(row, connector))
        ]
        if connector is not None:
            ending = _closed_by_name(ending)
        for row in ending:
            detach.close_connection(backend, row, turn, named=connector is not None)
    return len(ending)


def _closed_by_name(rows: Sequence[db.Row]) -> list[db.Row]:
    """Return those of a host's connections that are closed when only the host is named."""
    used = [row for row in rows if row["state"] in states.LIVE]
    several = len({row["serves"] for row in used}) > 1
    return [row for row in rows if not several or row not in used]
