# SPDX-License-Identifier: Apache-2.0
"""Recognition of repeated requests.

keystoneauth, which all stock clients use, repeats a request when the connection breaks before the
answer: also a POST, if its user sets connect_retries, as Compute does.  A request that comes twice
has one effect:

=====================================  ==========================================================
request                                recognized by
=====================================  ==========================================================
POST /attachments or /volumes with an  its key (api/idempotency.py): the first answer is repeated
idempotency key
POST /attachments                      :func:`find_duplicate`, in the transaction that reserves;
                                       a failed or interrupted connect is tried again
a connect: POST, PUT, agent, recovery  :func:`check_connector`: AlreadyConnected has the row, and
                                       the caller answers with its connection
os-initialize_connection               :func:`find_connection`, then as for a connect
os-attach                              :func:`is_same_holder`: the attachment stays as it is
a request that is only stored          :func:`check_not_requested`: the state is there already
an agent's report                      the generation (db/agents/agent_transitions.py)
DELETE                                 the row is gone: 404; the manager and recovery are safe
                                       to repeat, because a driver's revoke is idempotent
=====================================  ==========================================================

All functions here are called under the lock of the volume's row.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from oslo_context import context as oslo_context
import sqlalchemy as sa

from attachd import exception, host_identity, states
from attachd.db.attachments import attachment_rows, events
from attachd.db.row_types import AttachmentRow
from attachd.states import AttachmentKind, AttachmentState

Connector = Mapping[str, Any]

_UNFINISHED: Final = frozenset(
    {AttachmentState.RESERVED, AttachmentState.CONNECTING, AttachmentState.CONNECTED}
)
"""States of an attachment before it is completed: the caller that completes it knows its id."""

_FAILED: Final = frozenset({AttachmentState.CONNECT_FAILED, AttachmentState.CONNECT_UNKNOWN})
"""States after a connect that did not succeed: the same request tries again."""

_COMPARED: Final = (
    *("project_id", "user_id", "instance_uuid", "asked_mode", "move_from", "connector"),
)

_UNFINISHED_AT_AGENT: Final = _UNFINISHED | {AttachmentState.ATTACHED}
"""The same with an agent, which completes the attachment before the caller knows its id."""

_COMPARED_AT_AGENT: Final = (*_COMPARED[:-1], "agent")
"""What a host reports of itself may change while it restarts; its name does not."""


def find_duplicate(
    connection: sa.Connection, new: Mapping[str, Any], rows: Sequence[AttachmentRow]
) -> AttachmentRow | None:
    """Return the attachment that an earlier run of a request created, if that is certain.

    It is certain where the same user asks for the same server and exactly the same connector,
    while that attachment is not completed. Without a server two requests may be intended, unless
    both move the same attachment, and without a connector: a server that moves, or is resized, has
    a second attachment reserved. That is another request of its user, with another global request
    id. An agent completes by itself, and needs no second attachment at the same host.

    :param new: the row that would be stored
    :param rows: of the volume, under its lock
    """
    if not new.get("instance_uuid") and not new.get("move_from"):
        return None
    if not new.get("connector"):
        return _find_same_reservation(connection, new, rows)
    unfinished = _UNFINISHED if new.get("agent") is None else _UNFINISHED_AT_AGENT
    same = _list_same(new, rows, unfinished) or _list_same(new, rows, _FAILED)
    return next(iter(same), None)


def _list_same(
    new: Mapping[str, Any], rows: Sequence[AttachmentRow], unfinished: Collection[AttachmentState]
) -> list[AttachmentRow]:
    agent = new.get("agent")
    compared = _COMPARED if agent is None else _COMPARED_AT_AGENT
    return [
        row
        for row in rows
        if row["kind"] == AttachmentKind.ATTACHMENT
        and row["agent"] == agent
        and row["state"] in unfinished
        and _has_equal(row, new, compared)
    ]


def _has_equal(row: Mapping[str, object], new: Mapping[str, Any], names: Iterable[str]) -> bool:
    return all(row[name] == new.get(name) for name in names)


def _find_same_reservation(
    connection: sa.Connection, new: Mapping[str, Any], rows: Sequence[AttachmentRow]
) -> AttachmentRow | None:
    request_id = getattr(oslo_context.get_current(), "global_request_id", None)
    same = _list_same(new, rows, {AttachmentState.RESERVED})
    if not same or request_id is None:
        return None
    made = events.list_reserved(connection, [row["id"] for row in same], request_id)
    return next((row for row in same if row["id"] in made), None)


class AlreadyConnected(attachment_rows.Refusal):
    """The attachment is connected already, with the same connector; ``row`` is its row."""

    def __init__(self, row: AttachmentRow) -> None:
        self.row = row


def check_connector(current: AttachmentRow, connector: Connector) -> None:
    """Check that an attachment is not connected, or only partly and with the same connector.

    :raises AlreadyConnected: it is connected with this connector
    :raises ConnectorConflict: it is connected, or may be, with another one
    """
    state = AttachmentState(current["state"])
    if state not in states.CONNECTOR_FIXED or current["connector"] is None:
        return
    stored = current["connector"]
    is_same = host_identity.is_same_name(f"{stored.get('host')}", f"{connector.get('host')}")
    if not is_same or _without_names(stored) != _without_names(connector):
        raise exception.ConnectorConflict(attachment_id=current["id"], host=current["host"])
    if state in states.ESTABLISHED:
        raise AlreadyConnected(current)


def _without_names(connector: Connector) -> dict[str, Any]:
    """Return the part of a connector that backends use: all keys but the host's name and the
    mountpoint.
    """
    return {key: value for key, value in connector.items() if key not in {"host", "mountpoint"}}


class AlreadyRequested(Exception):
    """The same request has been stored before."""


def check_not_requested(current: AttachmentRow, requested: AttachmentState) -> None:
    """Check that an attachment is not in the state already that a stored request sets.

    :raises AlreadyRequested: it is
    """
    if current["state"] == requested:
        raise AlreadyRequested


def find_connection(rows: Sequence[AttachmentRow], connector: Connector) -> AttachmentRow | None:
    """Return the first connection that os-initialize_connection has opened for the same host."""
    return next((row for row in rows if is_of_host(row, connector)), None)


def is_of_host(row: AttachmentRow, connector: Connector) -> bool:
    """Return whether a connection is of the host of a connector, and of equal initiators."""
    stored, requested = host_identity.of_row(row), host_identity.of_connector(connector)
    is_same = host_identity.is_same_host(stored, requested)
    return is_same and host_identity.has_equal_initiators(stored, requested)


def is_same_holder(row: AttachmentRow, server: str | None, host: str | None) -> bool:
    """Return whether an attachment is of the server of os-attach, or else of its host."""
    if server is not None:
        return bool(row["instance_uuid"] == server)
    if row["instance_uuid"] is not None or row["host"] is None or host is None:
        return False
    return host_identity.is_same_name(row["host"], host)
