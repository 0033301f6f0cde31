# SPDX-License-Identifier: Apache-2.0
"""Lists of attachments; read by the API, which shows them page by page.

A page is one statement, whatever its size.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict

import sqlalchemy as sa

from attachd.db import api, models, paging
from attachd.states import VISIBLE_KINDS, AttachmentState

Row = dict[str, Any]
_T = models.attachments
_SECRET = frozenset({"connector", "connection_info", "secret"})
_IS_SHOWN = _T.c.kind.in_(sorted(VISIBLE_KINDS))
BRIEF = [column for column in _T.c if column.name not in _SECRET]


class Filters(TypedDict, total=False):
    """Which attachments are wanted; a key that is absent filters nothing.

    :ivar states: in one of these, as states.attachment_states() gives them for a wire name
    :ivar like: columns, of SEARCHABLE, and a text that is somewhere in them
    :ivar times: comparisons which all have to hold; what never changed did when it was made
    """

    project_id: str
    volume_id: str
    instance_uuid: str
    host: str
    agent: str
    states: Collection[AttachmentState]
    like: Mapping[str, str]
    times: Sequence[paging.Comparison]


SEARCHABLE = frozenset({"volume_id", "instance_uuid", "host", "mountpoint"})
_CHANGED = {"updated_at": sa.func.coalesce(_T.c.updated_at, _T.c.created_at)}
_EQUAL = ("project_id", "volume_id", "instance_uuid", "host", "agent")
_SELECTIVE = frozenset({"volume_id", "instance_uuid", "host", "agent"})
SORTABLE = frozenset({"id", "volume_id", "instance_uuid", "host", "created_at", "updated_at"})


@api.retried
def page(filters: Filters, page: paging.Page) -> list[Row]:
    """Return one page of attachments, without what is secret in them.

    :raises MarkerNotFound: there is no such item
    """
    return _page(sa.select(*BRIEF), filters, page)


@api.retried
def page_in_full(filters: Filters, page: paging.Page) -> list[Row]:
    """Return one page of attachments, with connector and connection_info.

    :raises MarkerNotFound: there is no such item
    """
    return _page(sa.select(_T), filters, page)


@api.retried
def brief_of_volumes(volume_ids: Sequence[str]) -> dict[str, list[Row]]:
    """Return the attachments of some volumes, by volume, oldest first, without secrets."""
    found: dict[str, list[Row]] = {volume_id: [] for volume_id in volume_ids}
    if not found:
        return found
    statement = (
        sa.select(*BRIEF)
        .where(_T.c.volume_id.in_(volume_ids), _IS_SHOWN)
        .order_by(_T.c.created_at, _T.c.id)
    )
    with api.reader() as connection:
        for row in connection.execute(statement):
            found[row.volume_id].append(dict(row._mapping))
    return found


@api.retried
def count_attached(volume_ids: Sequence[str]) -> dict[str, int]:
    """Return how many attachments of each of some volumes are attached, by volume."""
    found = dict.fromkeys(volume_ids, 0)
    if not found:
        return found
    statement = (
        sa.select(_T.c.volume_id, sa.func.count())
        .where(
            _T.c.volume_id.in_(volume_ids), _IS_SHOWN, _T.c.state == AttachmentState.ATTACHED.value
        )
        .group_by(_T.c.volume_id)
    )
    with api.reader() as connection:
        found.update((volume_id, count) for volume_id, count in connection.execute(statement))
    return found


def _page(statement: sa.Select[Any], filters: Filters, page: paging.Page) -> list[Row]:
    statement = statement.where(*_conditions(filters))
    visible = paging.equal(_T, filters, ("project_id",))
    with api.reader() as connection:
        return paging.rows(
            connection,
            statement,
            _T,
            visible,
            page,
            paging.order_index(_T, filters, page, _SELECTIVE),
        )


def _conditions(filters: Filters) -> list[paging.Condition]:
    conditions: list[paging.Condition] = [_IS_SHOWN]
    conditions += paging.equal(_T, filters, _EQUAL)
    if "states" in filters:
        conditions.append(_T.c.state.in_(filters["states"]))
    conditions += paging.compared(_T, filters.get("times", ()), _CHANGED)
    return conditions + paging.like(_T, filters.get("like", {}), SEARCHABLE)
