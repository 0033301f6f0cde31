# SPDX-License-Identifier: Apache-2.0
"""Keyset paging: each page is found by the last item of the page before; used by all lists of db.

The thousandth page costs the same as the first, and an item that appears or goes between two pages
neither repeats nor hides another one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
import dataclasses
import datetime
import operator
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF

Direction = Literal["asc", "desc"]
RowT = TypeVar("RowT")
Condition = sa.ColumnElement[bool]

OPERATORS: Final = MappingProxyType(
    {
        "gt": operator.gt,
        "gte": operator.ge,
        "eq": operator.eq,
        "neq": operator.ne,
        "lt": operator.lt,
        "lte": operator.le,
    }
)
"""How a column can be compared with a moment."""

_MAX_CLOCK_SKEW = datetime.timedelta(hours=1)
_LAST = datetime.datetime.max - _MAX_CLOCK_SKEW  # noqa: DTZ901  the tables' times have no zone


class Comparison(NamedTuple):
    """A column that is compared with a moment: ``verb`` is one of :data:`OPERATORS`."""

    column: str
    verb: str
    moment: datetime.datetime


@dataclasses.dataclass(frozen=True)
class Page:
    """A part of a list, and its order.

    :ivar limit: the maximum number of items
    :ivar marker: the id of the last item of the page before
    :ivar offset: how many items to skip
    :ivar sort: columns and directions; equal items are sorted by id
    """

    limit: int
    marker: str | None = None
    offset: int = 0
    sort: tuple[tuple[str, Direction], ...] = (("created_at", "desc"),)


class NamePage(NamedTuple):
    """A part of a list that is sorted by names, which are unique.

    :ivar limit: the maximum number of items
    :ivar marker: the last name of the page before, which may have gone since
    :ivar offset: how many items to skip
    """

    limit: int
    marker: str | None = None
    offset: int = 0


def select_by_name(
    statement: sa.Select[Any], name: sa.Column[str], page: NamePage
) -> sa.Select[Any]:
    """Return a statement for one page of what another one selects, sorted by name."""
    if page.marker is not None:
        statement = statement.where(name > page.marker)
    return statement.order_by(name).limit(page.limit).offset(page.offset or None)


def fetch_page(
    connection: sa.Connection,
    statement: sa.Select[Any],
    table: sa.Table,
    visible: Sequence[Condition],
    page: Page,
    row_type: type[RowT],  # noqa: ARG001
    index: str | None = None,
) -> list[RowT]:
    """Return the items of one page in one statement; an empty page after a marker needs two.

    :param statement: selects from ``table`` with all filters, without an order
    :param visible: conditions that a marker has to fulfil to be visible to the caller
    :param row_type: as of session.fetch_all()
    :param index: as of order_index()
    :raises MarkerNotFound: there is no such item, or the caller may not see it
    :raises BadRequest: there is no such sort key
    """
    order = _order(table, page.sort)
    statement = statement.order_by(*(term for key in order for term in _sort_terms(*key)))
    if page.marker is not None:
        statement = statement.where(*_after([table.c.id == page.marker, *visible], order))
        if index is not None:
            for dialect in ("mysql", "mariadb"):
                statement = statement.with_hint(table, f"FORCE INDEX ({index})", dialect)
    statement = statement.limit(page.limit)
    if page.offset:
        statement = statement.offset(page.offset)
    items: list[Any] = [dict(row._mapping) for row in connection.execute(statement)]
    if not items and page.marker is not None:
        _check_marker(connection, table, visible, page.marker)
    return items


def check_examined(
    connection: sa.Connection,
    table: sa.Table,
    bounding: Sequence[Condition],
    page: Page | None = None,
    *,
    is_search: bool = False,
) -> None:
    """Check that a list, or a count, examines no more rows than may be.

    Only entries of an index are read, and one more than that number at most; none for a page in
    the order of creation.

    :param bounding: those of the conditions that have an index
    :param page: None: all are counted
    :param is_search: whether another condition is a part of a text
    :raises BadRequest: it would examine more
    """
    most: int = CONF.api.max_examined_rows
    if page is not None:
        if page.offset > most:
            raise exception.BadRequest(
                reason=f"The offset is more than {most}: use the marker, the last id of the page "
                "before."
            )
        if is_in_order_of_creation(page) and not is_search:
            return
    next_one = sa.select(table.c.id).where(*bounding).limit(1).offset(most)
    if connection.execute(next_one).first() is not None:
        raise exception.BadRequest(
            reason=f"More than {most} items would be sorted, searched or counted: add a filter by "
            "a whole value, such as a name or a host, or list all by created_at and marker."
        )


def is_in_order_of_creation(page: Page) -> bool:
    """Return whether the items of a page are next to each other in an index."""
    return [column for column, _direction in page.sort] == ["created_at"]


def order_index(
    table: sa.Table, filters: Mapping[str, Any], page: Page, selective: Collection[str]
) -> str | None:
    """Return the index that has the rows in the order of a page; None: another one may be better.

    MariaDB estimates every large range of an index as half of the table. Where that is as much as
    a whole project has, it would rather read all rows of the project up to the marker.

    :param selective: filters that find their few rows by an index of their own
    """
    if not is_in_order_of_creation(page) or filters.keys() & selective:
        return None
    columns = (
        ("project_id", "created_at", "id") if "project_id" in filters else ("created_at", "id")
    )
    order = [table.c[name] for name in columns]
    (name,) = [item.name for item in table.indexes if list(item.columns)[: len(order)] == order]
    return str(name)


def equal(table: sa.Table, filters: Mapping[str, Any], names: Iterable[str]) -> list[Condition]:
    """Match the rows whose columns equal the values of ``filters``, for the names that it has."""
    return [table.c[name] == filters[name] for name in names if name in filters]


def compare(
    table: sa.Table,
    comparisons: Iterable[Comparison],
    instead: Mapping[str, sa.ColumnElement[Any]] = MappingProxyType({}),
) -> list[Condition]:
    """Match the rows that fulfil all comparisons.

    :param instead: expressions that replace some columns
    """
    conditions: list[Condition] = []
    for column, verb, moment in comparisons:
        conditions.append(OPERATORS[verb](instead.get(column, table.c[column]), moment))
        if verb in {"lt", "lte", "eq"} and column != "created_at":
            # This follows from the other conditions, in a form that has an index: no event
            # precedes the creation, though two machines may have stored the times.
            conditions.append(table.c.created_at <= min(moment, _LAST) + _MAX_CLOCK_SKEW)
    return conditions


def like(
    table: sa.Table, texts: Mapping[str, str], searchable: Collection[str]
) -> list[Condition]:
    """Match the rows whose columns contain a text, taken literally."""
    assert texts.keys() <= set(searchable), texts
    return [table.c[name].contains(text, autoescape=True) for name, text in texts.items()]


def _order(
    table: sa.Table, sort: Sequence[tuple[str, Direction]]
) -> list[tuple[sa.Column[Any], Direction]]:
    order = []
    for name, direction in sort:
        if name not in table.c:
            raise exception.BadRequest(reason=f"Sort key supplied is invalid: {name}")
        order.append((table.c[name], direction))
    if not any(column is table.c.id for column, _ in order):
        order.append((table.c.id, order[-1][1] if order else "desc"))
    return order


def _sort_terms(column: sa.Column[Any], direction: Direction) -> list[sa.ColumnElement[Any]]:
    """Sort by a column; NULL is the smallest value, where databases differ."""
    if direction == "asc":
        return [column.is_not(None).asc(), column.asc()] if column.nullable else [column.asc()]
    return [column.is_(None).asc(), column.desc()] if column.nullable else [column.desc()]


def _after(
    is_marker: Sequence[Condition], order: Sequence[tuple[sa.Column[Any], Direction]]
) -> list[Condition]:
    """Match what is sorted after the marker: greater by one key and equal by those before."""

    def value(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
        return sa.select(column).where(*is_marker).correlate(None).scalar_subquery()

    alternatives: list[Condition] = []
    equal: list[Condition] = []
    for column, direction in order:
        alternatives.append(sa.and_(*equal, _beyond(column, direction, value(column))))
        equal.append(column.is_not_distinct_from(value(column)))
    first, direction = order[0]
    conditions: list[Condition] = [sa.or_(*alternatives)]
    if first.nullable:
        # Whether the marker's value is NULL here is known only to the database.
        conditions.append(sa.exists(value(first).element))
    else:
        # This follows from the other conditions, in a form for which every database uses its
        # index.
        conditions.append(first >= value(first) if direction == "asc" else first <= value(first))
    return conditions


def _beyond(
    column: sa.Column[Any], direction: Direction, value: sa.ColumnElement[Any]
) -> Condition:
    beyond = column > value if direction == "asc" else column < value
    if not column.nullable:
        return beyond
    if direction == "asc":
        return sa.or_(beyond, sa.and_(value.is_(None), column.is_not(None)))
    return sa.or_(beyond, sa.and_(column.is_(None), value.is_not(None)))


def _check_marker(
    connection: sa.Connection, table: sa.Table, visible: Sequence[Condition], marker: str
) -> None:
    known = sa.select(table.c.id).where(table.c.id == marker, *visible)
    if connection.execute(known).first() is None:
        raise exception.MarkerNotFound(marker=marker)
