# SPDX-License-Identifier: Apache-2.0
"""Whether a connect may begin, and what is noted down when it does; used by attachments.py.

The guards here are asked under the volume's lock, in the transaction of the move; see
db.attachment_steps.Guard.
"""

from collections.abc import Mapping, Sequence
import secrets
from typing import Any, Final

from attachd import exception, states
from attachd.db import attachment_steps as steps
from attachd.db import attachments as db
from attachd.db import holders, sharing_rules
from attachd.drivers.base import Connector
from attachd.manager import exports
from attachd.manager.backends import Backend
from attachd.states import AttachmentState

_NO_MOUNTPOINT: Final = "na"
"""How the Block Storage API says that a connector named none."""

BOUND = (states.REACHING | states.UNCERTAIN) | {
    AttachmentState.CONNECTING,
    AttachmentState.DISCONNECTING,
}
"""States in which the host is not to be changed any more."""


class Replay(Exception):
    """The attachment is connected already, to this very connector."""

    def __init__(self, row: db.Row) -> None:
        self.row = row


def begin(backend: Backend, connector: Connector, allow: db.Guard, denied: str = "") -> db.Guard:
    """Return a guard that lets a connect begin and notes all that a repetition needs.

    :param denied: as of rpcapi.attach()
    """

    def guard(volume: db.Row, mine: db.Row, others: Sequence[db.Row]) -> Mapping[str, Any]:
        _check_same_connector(mine, connector)
        allow(volume, mine, others)
        if AttachmentState(mine["state"]) in states.UNREACHABLE:
            # Since it was reserved somebody else may have come.
            strangers = sharing_rules.strangers_to(mine, others)
            sharing_rules.check_company(strangers, denied)
        return begun(backend, volume, mine, others, connector)

    return guard


def begun(
    backend: Backend,
    volume: db.Row,
    mine: db.Row,
    others: Sequence[db.Row],
    connector: Connector,
) -> dict[str, Any]:
    """Return all that is noted down when a connect begins, and that a repetition needs.

    :raises ModeNotAllowed: the host wants to write, and may only read
    """
    values = {
        "connector": connector,
        "host": connector.get("host"),
        "mountpoint": connector.get("mountpoint") or _NO_MOUNTPOINT,
        "mode": _mode(volume, mine, others, connector),
        "error": None,
        **steps.taken_over(mine),
    }
    export = exports.export({**mine, **values})
    key = exports.connection_key(backend, exports.volume_ref(volume), export)
    # Another host must not have what this one may know.
    kept = mine["secret"] if mine["connection_key"] == key else None
    secret = _shared_secret(key, others) or kept or secrets.token_hex(16)
    return {**values, "connection_key": key, "secret": secret}


def _shared_secret(key: str | None, others: Sequence[db.Row]) -> str | None:
    """Return the secret of a connection that a host has already, or may have.

    The host logs in once, whatever it uses the connection for, and again after a failure of the
    network: by then the attachment for which it did may be gone.
    """
    bound = (row for row in others if key and AttachmentState(row["state"]) in BOUND)
    return next((row["secret"] for row in bound if row["connection_key"] == key), None)


def _mode(volume: db.Row, mine: db.Row, others: Sequence[db.Row], connector: Connector) -> str:
    if AttachmentState(mine["state"]) in BOUND and mine["mode"]:
        return str(mine["mode"])  # What may have been granted is granted again as it was.
    told = connector.get("mode")
    asked = mine["asked_mode"] or (told if told in {"rw", "ro"} else None)
    return sharing_rules.mode(volume, mine, others, asked)


def _check_same_connector(mine: db.Row, connector: Connector) -> None:
    state = AttachmentState(mine["state"])
    if state not in BOUND or mine["connector"] is None:
        return
    if _identity(mine["connector"]) != _identity(connector):
        raise exception.ConnectorHeld(attachment_id=mine["id"], host=mine["host"])
    if state in states.REACHING:
        raise Replay(mine)


def _identity(connector: Connector) -> dict[str, Any]:
    """Return what makes a connector another one: all but where the device will show up."""
    return {key: value for key, value in connector.items() if key != "mountpoint"}


def refuse_others(volume: db.Row, mine: db.Row, others: Sequence[db.Row]) -> Mapping[str, Any]:
    """Suffer no connected attachment beside this one on an ordinary volume."""
    for row in others:
        if not volume["multiattach"] and AttachmentState(row["state"]) in BOUND:
            raise exception.DuplicateConnector(volume_id=volume["id"], holder=holders.name(row))
    refuse_other_servers(volume, mine, others)
    return {}


def refuse_other_servers(
    volume: db.Row, mine: db.Row, others: Sequence[db.Row]
) -> Mapping[str, Any]:
    """Suffer nobody else's attachment beside this one on an ordinary volume.

    A connect that failed cleanly has given the volume back; by the time it is repeated
    somebody else may hold it.
    """
    for row in others:
        stranger = mine["instance_uuid"] is None or row["instance_uuid"] != mine["instance_uuid"]
        counts = AttachmentState(row["state"]) not in states.UNREACHABLE
        if not volume["multiattach"] and stranger and counts:
            raise exception.DuplicateConnector(volume_id=volume["id"], holder=holders.name(row))
    _refuse_error(volume, others)
    return {}


def _refuse_error(volume: db.Row, others: Sequence[db.Row]) -> None:
    """Suffer no status of error, unless it is the attachment in question that makes it so."""
    kept = [AttachmentState(row["state"]) for row in others]
    status = states.derive(states.VolumeState(volume["state"]), kept).status
    if "error" in status:
        raise exception.Conflict(reason=f"Volume {volume['id']} is in status {status}.")
