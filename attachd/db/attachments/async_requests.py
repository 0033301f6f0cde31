# SPDX-License-Identifier: Apache-2.0
"""Requests stored in a row that a manager or an agent executes later; used by the API.

The message to a manager may be lost: the row is as if its manager had died right after the start,
and recovery finishes it. An agent fetches the desired state of its host by itself.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import sqlalchemy as sa

from attachd import exception
from attachd.db import host_fences, models
from attachd.db.attachments import (
    attachment_moves,
    attachment_rows,
    attachment_store,
    connect_rules,
    duplicates,
    legacy_rows,
)
from attachd.db.attachments.attachment_rows import Guard, LockedVolume
from attachd.db.attachments.connect_rules import Action, Request
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.states import DETACHING, AttachmentState, Event

_ATTACHMENTS = models.attachments
_PENDING: Final = (AttachmentState.CONNECTING.value, AttachmentState.DISCONNECTING.value)
"""States in which a manager has to work; in others it is the agent's turn, or nothing is open."""


def connect_shared(
    attachment_id: str,
    volume_id: str,
    connector: Mapping[str, Any],
    denied_rule: str | None = None,
) -> None:
    """Request that an attachment is connected, beside others of the same server.

    :param denied_rule: as of manager_api.attach()
    :raises AlreadyConnected: it is connected already
    :raises: as manager_api.attach(), as far as it is refused
    """
    _connect(attachment_id, volume_id, Request(Action.CONNECT, connector, denied_rule=denied_rule))


def connect_exclusive(
    attachment_id: str,
    volume_id: str,
    connector: Mapping[str, Any],
    denied_rule: str | None = None,
) -> None:
    """Request a connection as :func:`connect_shared`, with no other connection of an ordinary
    volume.
    """
    request = Request(Action.CONNECT_EXCLUSIVE, connector, denied_rule=denied_rule)
    _connect(attachment_id, volume_id, request)


def _connect(attachment_id: str, volume_id: str, request: Request) -> None:
    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        decision = connect_rules.decide(locked, request)
        duplicates.check_not_requested(locked.attachment, AttachmentState.CONNECTING)
        return decision.columns()

    _request(attachment_id, volume_id, Event.CONNECT, guard)


def disconnect(attachment_id: str, volume_id: str, states: Collection[str] | None = None) -> bool:
    """Request that an attachment is disconnected and removed.

    A manager that is connecting it at the moment can no longer store that it is connected.

    :param states: only if it is in one of these; None: in any state
    :returns: False: it was requested before
    :raises AttachmentNotFound: it does not exist any more
    :raises InvalidTransition: it is in another state
    """

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        current = locked.attachment
        duplicates.check_not_requested(current, AttachmentState.DISCONNECTING)
        attachment_rows.check_allowed_states(current, states)
        attachment_moves.check_may_roll_back(locked)
        return {**attachment_rows.next_generation(current), "error": None}

    return _request(attachment_id, volume_id, Event.DISCONNECT, guard)


def fence(attachment_id: str, volume_id: str) -> bool:
    """Request that an attachment is disconnected and removed, with proof, and without its agent.

    The result of an operation in progress on it can no longer be stored.

    :returns: False: it was requested before
    :raises AttachmentNotFound: it does not exist any more
    :raises Conflict: as of legacy_rows.check_may_be_fenced()
    """
    return _request(attachment_id, volume_id, Event.DISCONNECT, _fence)


def fence_on_host(attachment_id: str, volume_id: str) -> bool:
    """Do as :func:`fence` for an attachment of a fenced host, if that has not begun yet.

    :returns: as there
    :raises AttachmentNotFound: it does not exist any more
    :raises Conflict: the fence of its host was lifted, or it is detached meanwhile
    """

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        current = locked.attachment
        if not current["fenced"] and current["state"] in DETACHING:
            raise exception.Conflict(reason=f"Attachment {attachment_id} is detached already.")
        if not host_fences.is_fenced_in(locked.connection, current):
            raise exception.Conflict(reason=f"The fence of host {current['host']} was lifted.")
        return _fence(locked)

    return _request(attachment_id, volume_id, Event.DISCONNECT, guard)


def _fence(locked: LockedVolume) -> Mapping[str, Any]:
    if locked.attachment["fenced"]:
        duplicates.check_not_requested(locked.attachment, AttachmentState.DISCONNECTING)
    legacy_rows.check_may_be_fenced(locked.attachment, locked.others)
    return {**attachment_rows.fenced_generation(locked.attachment), "error": None}


def withdraw(
    attachment_id: str,
    volume_id: str,
    states: Collection[str] | None = None,
    destination_id: str | None = None,
) -> bool:
    """Request that an agent removes the device of an attachment, before anything else.

    An agent that creates the device at the moment can no longer report it.

    :param states: only if it is in one of these; None: in any state
    :param destination_id: only if the attachment moves to this one; None: in any case
    :returns: False: it was requested before
    :raises AttachmentNotFound: it does not exist any more
    :raises Conflict: it is one end of a move that is rolled back, or can no longer be
    :raises InvalidTransition: it is in another state, or in one without a device, or has no agent
    """

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        current = locked.attachment
        duplicates.check_not_requested(current, AttachmentState.WITHDRAWING)
        attachment_rows.check_allowed_states(current, states)
        if current["agent"] is None:
            raise exception.InvalidTransition(f"Attachment {attachment_id} has no agent.")
        if destination_id is None:
            attachment_moves.check_may_roll_back(locked)
        else:
            attachment_moves.check_may_finish(locked, destination_id)
        return {**attachment_rows.next_generation(current), "error": None}

    return _request(attachment_id, volume_id, Event.WITHDRAW, guard)


@retried
def count_pending(project_id: str) -> int:
    """Return how many attachments of a project wait for a manager, or are in its work."""
    statement = (
        sa.select(sa.func.count())
        .select_from(_ATTACHMENTS)
        .where(_ATTACHMENTS.c.state.in_(_PENDING), _ATTACHMENTS.c.project_id == project_id)
    )
    with session.reader() as connection:
        return int(connection.execute(statement).scalar_one())


def _request(attachment_id: str, volume_id: str, event: Event, guard: Guard) -> bool:
    """Store a request; return whether it is new."""
    try:
        attachment_store.transition(attachment_id, volume_id, event, guard=guard)
    except duplicates.AlreadyRequested:
        return False
    return True
