# SPDX-License-Identifier: Apache-2.0
"""Tells of this manager's work; called by the verbs of attachments.py and volumes.py."""

from collections.abc import Iterable, Mapping
from typing import Any

from attachd import notifications
from attachd.db.attachments import Moved
from attachd.manager import messages, nudging
from attachd.manager.backends import Backend
from attachd.states import VISIBLE_KINDS, Event

Row = Mapping[str, Any]


def of_attachment(backend: Backend, event: str, moved: Moved) -> None:
    """Tell what happens to a volume by one of its attachments, which is still there."""
    _tell(backend, event, moved, [moved.attachment, *moved.others])


def of_the_others(backend: Backend, event: str, moved: Moved) -> None:
    """Tell what happened to a volume by an attachment that is gone."""
    _tell(backend, event, moved, moved.others)


def the_user(row: Row, event: Event, cause: Exception) -> None:
    """Tell whom an attachment belongs to why it failed, by a message of their own."""
    messages.of_attachment(row, event, cause)


def of_expiry(row: Row) -> None:
    """Tell whom a reservation belonged to that it has ended."""
    messages.of_expiry(row)


def of_force(row: Row, user_id: str | None) -> None:
    """Tell whom an attachment belongs to that this user has it detached by force."""
    messages.of_force(row, user_id)


def agents_of(rows: Iterable[Row]) -> None:
    """Have the agents look that see to any of these attachments; see nudging.py."""
    nudging.agents_of(rows)


def _tell(backend: Backend, event: str, moved: Moved, attachments: Iterable[Row]) -> None:
    if moved.attachment["kind"] in VISIBLE_KINDS:  # others belong to one that is, and is told of
        volume = moved.volume
        notifications.volume(event, volume["id"], volume, attachments, host=backend.host)


def until_heard() -> None:
    """Wait, for a moment at most, until all of it is sent, because the API tells how it ends."""
    notifications.flush()


def of_volume(
    backend: Backend, event: str, row: Row, attachments: Iterable[Row] = (), **changed: Any
) -> None:
    """Tell what happens to a volume itself.

    :param row: all of it, as of db.volumes.get()
    :param changed: columns that are others by now
    """
    # A new volume is told of by its pool.
    host = row["host"] if event.startswith("create.") else backend.host
    notifications.volume(event, row["id"], {**row, **changed}, attachments, host=host)
