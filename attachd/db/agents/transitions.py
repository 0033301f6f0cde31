# SPDX-License-Identifier: Apache-2.0
"""What the agent of a host says of its attachments, as moves; used by the managers' registry.

Each function is given the host whose key was shown, and the generation of what that host was told
to do.  An attachment that another host sees to, or about which has been decided anew since, is
left as it is.  What is said twice, because an answer was lost, is stored once.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.attachments import store as attachments
from attachd.db.attachments.transitions import Row
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.states import ESTABLISHED, WITH_ACCESS, AttachmentState, Event

__all__ = ["complete", "record_failure", "refuse_detach", "release"]

_ATTACHMENTS = models.attachments
_WITHDRAWING: Final = frozenset({AttachmentState.WITHDRAWING})


class _AlreadyReported(Exception):
    """It was said before."""


def complete(attachment_id: str, host: str, generation: int, device: str) -> Row:
    """Note that the device is there: the attachment is complete.

    :param device: its path at the host
    :returns: the row, as of attachments.get()
    :raises AttachmentNotFound: it is gone
    :raises InvalidTransition: it is not wanted any more, or in another generation, or another host
        sees to it
    """
    values = {"device": device, "error": None}
    return _move(attachment_id, host, generation, Event.COMPLETE, ESTABLISHED, values)


def record_failure(attachment_id: str, host: str, generation: int, error: str) -> Row:
    """Note why there is no device, or why one that is to go is still there; nothing moves.

    :returns: the row, as of attachments.get()
    :raises: as :func:`complete`
    """
    if not _store_error(attachment_id, host, generation, error):
        _refuse(attachments.get(attachment_id, None), host, "fail at its host")
    return attachments.get(attachment_id, None)


def release(attachment_id: str, host: str, generation: int) -> Row:
    """Note that the device is gone: the manager shuts the host out next.

    :returns: the row, as of attachments.get(), in DISCONNECTING
    :raises: as :func:`complete`
    """
    values = {"device": None}
    reported_state = AttachmentState.DISCONNECTING
    return _move(
        attachment_id, host, generation, Event.DISCONNECT, _WITHDRAWING, values, reported_state
    )


def refuse_detach(attachment_id: str, host: str, generation: int, error: str) -> Row:
    """Note that the device has to stay: the attachment is attached again.

    :param error: why, such as who uses it
    :returns: the row, as of attachments.get()
    :raises: as :func:`complete`
    """
    values = {"error": error}
    reported_state = AttachmentState.ATTACHED
    return _move(attachment_id, host, generation, Event.KEEP, _WITHDRAWING, values, reported_state)


def _move(
    attachment_id: str,
    host: str,
    generation: int,
    event: Event,
    sources: Collection[AttachmentState],
    values: Mapping[str, Any],
    reported_state: AttachmentState | None = None,
) -> Row:
    """Move an attachment as its agent says.

    :param reported_state: the state that it is in when the same agent has said so before; None:
        any
    """

    def guard(_volume: Row, current: Row, _others: Sequence[Row]) -> Mapping[str, Any]:
        its_own = current["agent"] == host and current["generation"] == generation
        if its_own and reported_state is not None and current["state"] == reported_state:
            raise _AlreadyReported
        if not its_own or current["state"] not in sources:
            _refuse(current, host, event.value)
        return values

    volume_id = attachments.get(attachment_id, None)["volume_id"]
    try:
        moved = attachments.move(attachment_id, volume_id, event, guard=guard)
    except _AlreadyReported:
        return attachments.get(attachment_id, None)
    of_volume = {f"volume_{name}": moved.volume[name] for name in _VOLUME_COLUMNS}
    return {**moved.attachment, **of_volume}


_VOLUME_COLUMNS: Final = ("host", "state", "status", "multiattach")


@retried
def _store_error(attachment_id: str, host: str, generation: int, error: str) -> bool:
    changed = (
        sa.update(_ATTACHMENTS)
        .where(
            _ATTACHMENTS.c.id == attachment_id,
            _ATTACHMENTS.c.agent == host,
            _ATTACHMENTS.c.generation == generation,
            _ATTACHMENTS.c.state.in_(sorted(WITH_ACCESS)),
        )
        .values(error=models.truncate_error(error))
    )
    with session.writer() as connection:
        return connection.execute(changed).rowcount == 1


def _refuse(current: Row, host: str, event: str) -> NoReturn:
    if current["agent"] != host:
        raise exception.InvalidTransition(
            f"Attachment {current['id']} is nothing that the agent of host {host} sees to."
        )
    raise exception.InvalidTransition(
        f"Attachment {current['id']} is {current['state']} in generation "
        f"{current['generation']}, and the agent's report for event '{event}' is out of date. "
        "Fetch the desired state again."
    )
