# SPDX-License-Identifier: Apache-2.0
"""Notes in a row that work is due, which a manager or an agent does later; used by the API.

Whether the message comes to a manager does not matter then: what it would do is in the row, as if
its manager had died right after it began, and is done by whoever recovers that.  An agent asks by
itself what is due at its host.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from attachd import exception
from attachd.db.attachments import connect_rules
from attachd.db.attachments import store as attachments
from attachd.db.attachments import transitions as steps
from attachd.db.attachments.connect_rules import AlreadyConnected
from attachd.db.attachments.transitions import Guard, Row
from attachd.states import AttachmentState, Event

__all__ = ["AlreadyConnected", "connect_exclusive", "connect_shared", "disconnect", "withdraw"]


class _AlreadyRequested(Exception):
    """It was noted before."""


def connect_shared(
    attachment_id: str,
    volume_id: str,
    connector: Mapping[str, Any],
    denied_rule: str | None = None,
) -> None:
    """Note that an attachment is to be connected, beside others of the same server.

    :param denied_rule: as of manager_api.attach()
    :raises Replay: it is connected already
    :raises: as manager_api.attach(), as far as it is refused
    """
    _connect(attachment_id, volume_id, connector, denied_rule, connect_rules.require_same_server)


def connect_exclusive(
    attachment_id: str,
    volume_id: str,
    connector: Mapping[str, Any],
    denied_rule: str | None = None,
) -> None:
    """Do as :func:`connect_shared`, but suffer no other connection of an ordinary volume at
    all.
    """
    _connect(attachment_id, volume_id, connector, denied_rule, connect_rules.require_exclusive)


def _connect(
    attachment_id: str,
    volume_id: str,
    connector: Mapping[str, Any],
    denied_rule: str | None,
    allow: Guard,
) -> None:
    def guard(volume: Row, current: Row, others: Sequence[Row]) -> Mapping[str, Any]:
        connect_rules.check(volume, current, others, connector, allow, denied_rule)
        if current["state"] == AttachmentState.CONNECTING:
            raise _AlreadyRequested
        return connect_rules.connect_values(volume, current, others, connector)

    _request(attachment_id, volume_id, Event.CONNECT, guard)


def disconnect(attachment_id: str, volume_id: str, states: Collection[str] | None = None) -> None:
    """Note that an attachment is to be disconnected and removed.

    Whoever connects it at the moment can no longer write that it is.

    :param states: only if it is in one of these; None: in whatever state it is
    :raises AttachmentNotFound: it is gone
    :raises InvalidTransition: it is in another state
    """

    def guard(_volume: Row, current: Row, _others: Sequence[Row]) -> Mapping[str, Any]:
        if current["state"] == AttachmentState.DISCONNECTING:
            raise _AlreadyRequested
        steps.check_allowed_states(current, states)
        return steps.next_generation(current)

    _request(attachment_id, volume_id, Event.DISCONNECT, guard)


def withdraw(attachment_id: str, volume_id: str, states: Collection[str] | None = None) -> None:
    """Note that an agent is to take the device of an attachment away, before anything else.

    An agent that makes it at the moment can no longer say that it is there.

    :param states: only if it is in one of these; None: in whatever state it is
    :raises AttachmentNotFound: it is gone
    :raises InvalidTransition: it is in another state, or in none in which there can be a device,
        or no agent sees to it
    """

    def guard(_volume: Row, current: Row, _others: Sequence[Row]) -> Mapping[str, Any]:
        if current["state"] == AttachmentState.WITHDRAWING:
            raise _AlreadyRequested
        steps.check_allowed_states(current, states)
        if current["agent"] is None:
            raise exception.InvalidTransition(f"Attachment {attachment_id} has no agent.")
        return {**steps.next_generation(current), "error": None}

    _request(attachment_id, volume_id, Event.WITHDRAW, guard)


def _request(attachment_id: str, volume_id: str, event: Event, guard: Guard) -> None:
    try:
        attachments.move(attachment_id, volume_id, event, guard=guard)
    except _AlreadyRequested:
        return
