# SPDX-License-Identifier: Apache-2.0
"""Rules that decide, under the volume's lock, whether a connect may begin beside the other rows.

The manager applies them when it connects (manager/attach.py), the API when it stores a request to
connect (async_requests.py). The functions named ``require_...`` are transitions.Guards.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attachd import exception, states
from attachd.db.attachments import multiattach_rules
from attachd.db.attachments import rows as attachment_rows
from attachd.db.attachments.transitions import Guard, Row
from attachd.states import AttachmentState

Connector = Mapping[str, Any]

_NO_MOUNTPOINT: Final = "na"
"""The Block Storage API's value for a connector without a mountpoint."""

CONNECTOR_FIXED: Final = (states.WITH_ACCESS | states.ACCESS_UNKNOWN) | {
    AttachmentState.CONNECTING,
    AttachmentState.DISCONNECTING,
}
"""States in which the connector cannot change any more."""


class AlreadyConnected(Exception):
    """The attachment is connected already, with the same connector."""

    def __init__(self, row: Row) -> None:
        self.row = row


def check(
    volume: Row,
    current: Row,
    others: Sequence[Row],
    connector: Connector,
    allow: Guard,
    denied_rule: str | None,
) -> None:
    """Check that a connect may begin.

    :param allow: decides which other rows may exist
    :param denied_rule: as of manager_api.attach()
    :raises AlreadyConnected: it is connected already
    :raises ConnectorConflict: the attachment connects another host
    """
    _check_same_connector(current, connector)
    allow(volume, current, others)
    if AttachmentState(current["state"]) in states.INACTIVE:
        # Since the reservation there may be other holders.
        multiattach_rules.check_shareable(
            multiattach_rules.other_holders(current, others), denied_rule
        )


def connect_values(
    volume: Row, current: Row, others: Sequence[Row], connector: Connector
) -> dict[str, Any]:
    """Return the columns that are stored when a connect begins.

    :raises ModeNotAllowed: the host asks to write, and may only read
    """
    return {
        "connector": connector,
        "host": connector.get("host"),
        "mountpoint": connector.get("mountpoint") or _NO_MOUNTPOINT,
        "mode": _decide_mode(volume, current, others, connector),
        "error": None,
    }


def _decide_mode(volume: Row, current: Row, others: Sequence[Row], connector: Connector) -> str:
    if AttachmentState(current["state"]) in CONNECTOR_FIXED and current["mode"]:
        return str(
            current["mode"]
        )  # Access that may have been granted is granted again in the same mode.
    connector_mode = connector.get("mode")
    requested = current["asked_mode"] or (
        connector_mode if connector_mode in {"rw", "ro"} else None
    )
    return multiattach_rules.decide_mode(volume, current, others, requested)


def _check_same_connector(current: Row, connector: Connector) -> None:
    state = AttachmentState(current["state"])
    if state not in CONNECTOR_FIXED or current["connector"] is None:
        return
    if _identity(current["connector"]) != _identity(connector):
        raise exception.ConnectorConflict(attachment_id=current["id"], host=current["host"])
    if state in states.ESTABLISHED:
        raise AlreadyConnected(current)


def _identity(connector: Connector) -> dict[str, Any]:
    """Return the part of a connector that identifies the host: all keys but the mountpoint."""
    return {key: value for key, value in connector.items() if key != "mountpoint"}


def require_exclusive(volume: Row, current: Row, others: Sequence[Row]) -> Mapping[str, Any]:
    """Refuse a connect beside another connected attachment of an ordinary volume."""
    for row in others:
        if not volume["multiattach"] and AttachmentState(row["state"]) in CONNECTOR_FIXED:
            raise exception.NotMultiattach(
                volume_id=volume["id"], holder=attachment_rows.describe(row)
            )
    require_same_server(volume, current, others)
    return {}


def require_same_server(volume: Row, current: Row, others: Sequence[Row]) -> Mapping[str, Any]:
    """Refuse a connect beside another server's attachment of an ordinary volume.

    A connect that failed cleanly has released the volume; by the time it is repeated the volume
    may have another holder.
    """
    for row in others:
        stranger = (
            current["instance_uuid"] is None or row["instance_uuid"] != current["instance_uuid"]
        )
        counts = AttachmentState(row["state"]) not in states.INACTIVE
        if not volume["multiattach"] and stranger and counts:
            raise exception.NotMultiattach(
                volume_id=volume["id"], holder=attachment_rows.describe(row)
            )
    _refuse_error(volume, others)
    return {}


def _refuse_error(volume: Row, others: Sequence[Row]) -> None:
    """Refuse a connect in a status of error, unless the attachment itself is the cause."""
    kept = [AttachmentState(row["state"]) for row in others]
    status = states.derive(states.VolumeState(volume["state"]), kept).status
    if "error" in status:
        raise exception.Conflict(reason=f"Volume {volume['id']} is in status {status}.")
