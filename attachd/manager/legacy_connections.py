# SPDX-License-Identifier: Apache-2.0
"""Connections that belong to no attachment yet, as the older calls make them.

These calls connect a host first, and may name the server that it is for later.  A connection is a
row of attachments that clients are not shown: it goes through the same states, flows and recovery
as any other row.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from attachd import exception, states
from attachd.db.attachments import connect_rules
from attachd.db.attachments import legacy as legacy_db
from attachd.db.attachments import rows as attachment_rows
from attachd.db.attachments import store as db
from attachd.db.attachments.transitions import Guard
from attachd.drivers.base import Connector
from attachd.manager import attach, detach
from attachd.manager.backends import Backend
from attachd.states import AttachmentKind, AttachmentState, VolumeState

_HOST_KEYS: Final = ("host", "initiator", "nqn", "wwpns")
"""The keys of a connector that identify its host; all others may change from call to call."""


def initialize(
    backend: Backend,
    volume_id: str,
    project_id: str,
    user_id: str | None,
    connector: Connector,
    denied_rule: str | None = None,
) -> dict[str, Any]:
    """Connect a host; a host that is connected already gets the same answer.

    :returns: manager_api.Connected
    :raises: as manager_api.initialize_connection()
    """
    backend.check_ready()
    backend.driver.check_connector(connector)
    with backend.volume_lease(volume_id) as lease:
        try:
            moved = lease.run_with_lease(
                lambda token: legacy_db.begin_connection(
                    volume_id,
                    project_id,
                    user_id,
                    lambda rows: _find_of_host(rows, connector),
                    _initialize_guard(backend, connector),
                    legacy_db.SharingDenial(denied_rule, connector.get("host")),
                    token,
                ),
            )
            return attach.run_attach_flow(backend, moved, lease)
        except connect_rules.AlreadyConnected as replay:
            return attach.connected_response(replay.row)
        except exception.ConnectFailed as error:
            raise exception.InitializeConnectionFailed(
                volume_id=volume_id,
                host=connector.get("host"),
                reason=error.details["reason"],
            ) from error


def _find_of_host(rows: Sequence[db.Row], connector: Connector) -> db.Row | None:
    return next((row for row in rows if _is_of_host(row, connector)), None)


def _is_of_host(row: db.Row, connector: Connector) -> bool:
    """Return whether two connectors are of one host: all host keys that both have are equal."""
    pairs = [
        (_comparable(row["connector"].get(key)), _comparable(connector.get(key)))
        for key in _HOST_KEYS
    ]
    in_both = [pair for pair in pairs if all(pair)]
    return bool(in_both) and all(stored == requested for stored, requested in in_both)


def _comparable(value: Any) -> Any:
    return sorted(map(str, value)) if isinstance(value, list) else value


def _initialize_guard(backend: Backend, connector: Connector) -> Guard:
    def guard(volume: db.Row, row: db.Row, others: Sequence[db.Row]) -> Mapping[str, Any]:
        state = AttachmentState(row["state"])
        if state in states.WITH_ACCESS:
            raise connect_rules.AlreadyConnected(row)
        _check_usable(volume, others)
        # A connection that may have been granted is granted again with the same connector.
        used = row["connector"] if state in connect_rules.CONNECTOR_FIXED else connector
        assigned = legacy_db.parent_values(volume, others, used.get("host"), row["user_id"])
        limited = _limit_mode({**row, **assigned}, others)
        values = attach.connect_values(backend, volume, limited, others, used)
        return {**values, **assigned}

    return guard


def _limit_mode(row: db.Row, others: Sequence[db.Row]) -> db.Row:
    """Return a connection that requests no more than the attachment that it serves."""
    served = [other for other in others if other["id"] == row["parent_id"]]
    modes = [other["asked_mode"] or other["mode"] for other in served]
    return {**row, "asked_mode": "ro"} if "ro" in modes else row


def _check_usable(volume: db.Row, others: Sequence[db.Row]) -> None:
    """Check that a volume is ready, and has no other holder unless it is multiattach.

    :raises InvalidVolume: it is not, or has one
    """
    holders = [
        row
        for row in attachment_rows.holding(attachment_rows.visible(others))
        if row["kind"] == AttachmentKind.ATTACHMENT or row["state"] in attachment_rows.DETACHING
    ]
    other_states = [AttachmentState(row["state"]) for row in others]
    status = states.derive(VolumeState(volume["state"]), other_states).status
    if volume["state"] != VolumeState.READY or status == "error":
        reason = f"its status is {status}"
    elif holders and not volume["multiattach"]:
        reason = f"it is not multiattach and is held by {attachment_rows.describe(holders[0])}"
    else:
        return
    raise exception.InvalidVolume(reason=f"Volume {volume['id']} cannot be connected: {reason}.")


def terminate(
    backend: Backend,
    volume_id: str,
    connector: Connector | None,
    attachment_ids: Sequence[str] | None,
    connection_ids: Collection[str] | None = None,
) -> int:
    """Disconnect hosts that :func:`initialize` has connected, and release what they reserved.

    If no host is disconnected, no reservation is released: the call may be late, or a duplicate.
    A host that was connected for several attachments stays connected until they are detached.

    :param connector: of the host; None: all hosts
    :param attachment_ids: only connections that serve one of these attachments, or none at all;
        None: whichever attachment they serve
    :param connection_ids: only these; None: all
    :returns: how many connections were closed
    :raises: as manager_api.terminate_connections()
    """
    backend.check_ready()
    with backend.volume_lease(volume_id) as lease:
        rows = db.list_of_volumes([volume_id])
        served = None if attachment_ids is None else {None, *attachment_ids}
        ending = [
            row
            for row in rows
            if row["kind"] == AttachmentKind.CONNECTION
            and (served is None or row["parent_id"] in served)
            and (connection_ids is None or row["id"] in connection_ids)
            and (connector is None or _is_of_host(row, connector))
        ]
        if connector is not None:
            ending = _closed_by_host(ending)
        for row in ending:
            detach.close_connection(backend, row, lease, named=connector is not None)
    return len(ending)


def _closed_by_host(rows: Sequence[db.Row]) -> list[db.Row]:
    """Return those of a host's connections that are closed if the client names only the host."""
    live = [row for row in rows if row["state"] in states.LIVE]
    serve_several = len({row["parent_id"] for row in live}) > 1
    return [row for row in rows if not serve_several or row not in live]
