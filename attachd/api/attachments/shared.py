# SPDX-License-Identifier: Apache-2.0
"""Who shares a connection with an attachment, as far as the caller may know; for attachd 1.0.

A service that vouches for a request, with a token of its own, sees those of all projects: it
decides for a host whether to close a connection.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attachd.api import guard
from attachd.context import RequestContext
from attachd.db import shared_connections
from attachd.objects import Attachment, base

Row = Mapping[str, Any]


def beside(ctx: RequestContext, rows: Sequence[Row]) -> Mapping[str, list[str]]:
    """Return the ids of those who share a connection with each of these, by its id.

    :param rows: with ``id`` and ``volume_id``
    """
    return shared_connections.beside(rows, _scope(ctx))


class Connection:
    """The connection of an attachment that is about to be deleted."""

    def __init__(self, ctx: RequestContext, attachment: Attachment) -> None:
        self._ctx = ctx
        self._mine = attachment.id
        self._keys = shared_connections.keys_of(attachment.id, attachment.volume_id)

    def users(self) -> list[Row]:
        """Return the rows of those who still use it."""
        found = shared_connections.users_of(self._keys, _scope(self._ctx))
        return [row for row in found if row["id"] != self._mine]


def _scope(ctx: RequestContext) -> str | None:
    return None if guard.is_service(ctx) else base.scope(ctx)
