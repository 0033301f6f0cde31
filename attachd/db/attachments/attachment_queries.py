# SPDX-License-Identifier: Apache-2.0
"""Lists of attachments for the API.

A page of any size is one statement.

Several attachments can share a connection between a host and a backend: a manager stores with each
connection a key that is equal for all that share it. An attachment of the older calls has its
connection in a row of its own, whose parent it is.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypedDict

import sqlalchemy as sa

from attachd import states
from attachd.db import models
from attachd.db.attachments import statements
from attachd.db.engine import paging, session
from attachd.db.engine.retry import retried
from attachd.db.row_types import AttachmentRow, AttachmentWithVolumeRow
from attachd.db.secrets import encryption
from attachd.states import VISIBLE_KINDS, AttachmentState

_ATTACHMENTS = models.attachments
_SECRET_COLUMNS = frozenset(
    {"connector", "host_key", "initiator_key", *encryption.COLUMNS[encryption.ATTACHMENTS]}
)
_IS_VISIBLE = _ATTACHMENTS.c.kind.in_(sorted(VISIBLE_KINDS))
PUBLIC_COLUMNS = [column for column in _ATTACHMENTS.c if column.name not in _SECRET_COLUMNS]


class Filters(TypedDict, total=False):
    """Filters of a list; an absent key filters nothing.

    :ivar states: in one of these, as states.attachment_states() returns them for a wire name
    :ivar like: columns, of SEARCHABLE, and a text that they contain
    :ivar times: comparisons that all have to hold; a row that never changed did so at its creation
    """

    project_id: str
    volume_id: str
    instance_uuid: str
    host: str
    agent: str
    move_from: str
    condition_state: str
    states: Collection[AttachmentState]
    like: Mapping[str, str]
    times: Sequence[paging.Comparison]


SEARCHABLE = frozenset({"volume_id", "instance_uuid", "host", "mountpoint"})
_LAST_CHANGE = {
    "updated_at": sa.func.coalesce(_ATTACHMENTS.c.updated_at, _ATTACHMENTS.c.created_at)
}
_SELECTIVE = frozenset(
    {"volume_id", "instance_uuid", "host", "agent", "move_from", "condition_state"}
)
_EQUAL = ("project_id", *sorted(_SELECTIVE))
SORTABLE = frozenset({"id", "volume_id", "instance_uuid", "host", "created_at", "updated_at"})


@retried
def page(filters: Filters, page: paging.Page) -> list[AttachmentRow]:
    """Return one page of attachments, without secrets.

    :raises MarkerNotFound: there is no such item
    :raises BadRequest: it would examine too many rows
    """
    return _page(sa.select(*PUBLIC_COLUMNS), filters, page)


@retried
def page_with_secrets(filters: Filters, page: paging.Page) -> list[AttachmentRow]:
    """Return one page of attachments, with connector and connection_info.

    :raises: as :func:`page`
    """
    return _page(sa.select(_ATTACHMENTS), filters, page)


@retried
def list_of_volumes(volume_ids: Sequence[str]) -> dict[str, list[AttachmentRow]]:
    """Return the attachments of some volumes, by volume, oldest first, without secrets."""
    rows: dict[str, list[AttachmentRow]] = {volume_id: [] for volume_id in volume_ids}
    if not rows:
        return rows
    statement = (
        sa.select(*PUBLIC_COLUMNS)
        .where(_ATTACHMENTS.c.volume_id.in_(volume_ids), _IS_VISIBLE)
        .order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)
    )
    for row in session.fetch_all(statement, AttachmentRow):
        rows[row["volume_id"]].append(row)
    return rows


@retried
def list_by_ids(attachment_ids: Collection[str]) -> dict[str, AttachmentWithVolumeRow]:
    """Return those of some attachments that exist, with columns of their volumes, by their ids."""
    statement = statements.WITH_VOLUME.where(_ATTACHMENTS.c.id.in_(attachment_ids))
    return {row["id"]: row for row in session.fetch_all(statement, AttachmentWithVolumeRow)}


@retried
def count_attached(volume_ids: Sequence[str]) -> dict[str, int]:
    """Return how many attachments of each of some volumes are attached, by volume."""
    counts = dict.fromkeys(volume_ids, 0)
    if not counts:
        return counts
    statement = (
        sa.select(_ATTACHMENTS.c.volume_id, sa.func.count())
        .where(
            _ATTACHMENTS.c.volume_id.in_(volume_ids),
            _IS_VISIBLE,
            _ATTACHMENTS.c.state == AttachmentState.ATTACHED.value,
        )
        .group_by(_ATTACHMENTS.c.volume_id)
    )
    with session.reader() as connection:
        counts.update((volume_id, count) for volume_id, count in connection.execute(statement))
    return counts


@retried
def count(filters: Filters) -> int:
    """Return the number of attachments on all pages; raises BadRequest if they are too many."""
    statement = sa.select(sa.func.count()).select_from(_ATTACHMENTS).where(*_conditions(filters))
    with session.reader() as connection:
        paging.check_examined(connection, _ATTACHMENTS, _bounding(filters))
        return int(connection.execute(statement).scalar_one())


def _page(statement: sa.Select[Any], filters: Filters, page: paging.Page) -> list[AttachmentRow]:
    statement = statement.where(*_conditions(filters))
    visible = paging.equal(_ATTACHMENTS, filters, ("project_id",))
    with session.reader() as connection:
        paging.check_examined(
            connection, _ATTACHMENTS, _bounding(filters), page, is_search="like" in filters
        )
        return paging.fetch_page(
            connection,
            statement,
            _ATTACHMENTS,
            visible,
            page,
            AttachmentRow,
            paging.order_index(_ATTACHMENTS, filters, page, _SELECTIVE),
        )


def _bounding(filters: Filters) -> list[paging.Condition]:
    """Return the conditions that have an index."""
    return paging.equal(_ATTACHMENTS, filters, _EQUAL)


def _conditions(filters: Filters) -> list[paging.Condition]:
    conditions: list[paging.Condition] = [_IS_VISIBLE]
    conditions += paging.equal(_ATTACHMENTS, filters, _EQUAL)
    if "states" in filters:
        conditions.append(_ATTACHMENTS.c.state.in_(filters["states"]))
    conditions += paging.compare(_ATTACHMENTS, filters.get("times", ()), _LAST_CHANGE)
    return conditions + paging.like(_ATTACHMENTS, filters.get("like", {}), SEARCHABLE)


USING_CONNECTION: Final = states.LIVE | states.ACCESS_UNKNOWN
"""States in which a host uses its connection, or may still use it."""

_PARENT = sa.func.coalesce(_ATTACHMENTS.c.parent_id, _ATTACHMENTS.c.id)
_HAS_PARENT = sa.or_(
    _ATTACHMENTS.c.kind.in_(sorted(VISIBLE_KINDS)), _ATTACHMENTS.c.parent_id.is_not(None)
)


class AttachmentIds(TypedDict):
    """The ids of an attachment, which every row of one has."""

    id: str
    volume_id: str


@retried
def list_sharing(
    attachments: Sequence[AttachmentIds], project_id: str | None
) -> dict[str, list[str]]:
    """Return the other attachments that use the connection of each of some attachments, oldest
    first.

    :param project_id: only those of this project; None: of all projects
    :returns: ids of attachments, by the id of each given attachment
    """
    if not attachments:
        return {}
    volumes = {row["volume_id"] for row in attachments}
    keys_in_use = sa.select(_ATTACHMENTS.c.connection_key).where(
        _ATTACHMENTS.c.volume_id.in_(sorted(volumes)), _ATTACHMENTS.c.connection_key.is_not(None)
    )
    statement = (
        sa.select(
            _PARENT.label("owner_id"),
            _ATTACHMENTS.c.connection_key,
            _ATTACHMENTS.c.state,
            _ATTACHMENTS.c.project_id,
        )
        .where(_ATTACHMENTS.c.connection_key.in_(keys_in_use), _HAS_PARENT)
        .order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)
    )
    keys = defaultdict(set)
    users = defaultdict(list)
    with session.reader() as connection:
        for row in connection.execute(statement):
            if AttachmentState(row.state) not in states.INACTIVE:
                keys[row.owner_id].add(row.connection_key)
            if AttachmentState(row.state) in USING_CONNECTION and project_id in {
                None,
                row.project_id,
            }:
                users[row.connection_key].append(row.owner_id)
    return {item["id"]: _list_others(item["id"], keys[item["id"]], users) for item in attachments}


def _list_others(
    attachment_id: str, keys: Collection[str], users: dict[str, list[str]]
) -> list[str]:
    result = dict.fromkeys(user for key in sorted(keys) for user in users[key])
    return [user_id for user_id in result if user_id != attachment_id]


@retried
def connection_keys(attachment_id: str, volume_id: str) -> list[str]:
    """Return the keys that are equal for all that share a connection with an attachment."""
    statement = sa.select(_ATTACHMENTS.c.connection_key).where(
        _ATTACHMENTS.c.volume_id == volume_id,
        sa.or_(_ATTACHMENTS.c.id == attachment_id, _ATTACHMENTS.c.parent_id == attachment_id),
        _ATTACHMENTS.c.connection_key.is_not(None),
        _ATTACHMENTS.c.state.not_in(states.INACTIVE),
    )
    with session.reader() as connection:
        return list(connection.execute(statement).scalars())


@retried
def list_users_of(keys: Collection[str], project_id: str | None) -> list[AttachmentRow]:
    """Return the attachments that use one of these connections, without secrets, oldest first.

    :param keys: as of :func:`connection_keys`
    :param project_id: as of :func:`list_sharing`
    """
    if not keys:
        return []
    owners = sa.select(_PARENT).where(
        _ATTACHMENTS.c.connection_key.in_(sorted(keys)),
        _ATTACHMENTS.c.state.in_(sorted(USING_CONNECTION)),
    )
    users = _ATTACHMENTS.alias()
    statement = sa.select(*(users.c[column.name] for column in PUBLIC_COLUMNS)).where(
        users.c.id.in_(owners), users.c.kind.in_(sorted(VISIBLE_KINDS))
    )
    if project_id is not None:
        statement = statement.where(users.c.project_id == project_id)
    return session.fetch_all(statement.order_by(users.c.created_at, users.c.id), AttachmentRow)
