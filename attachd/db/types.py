# SPDX-License-Identifier: Apache-2.0
"""The volume_types table, extra specs included; used by the API and by placement."""

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.db import api, models, paging

Row = dict[str, Any]
Specs = dict[str, str]
_T = models.volume_types


class Filters(TypedDict, total=False):
    """Which types are wanted; a key that is absent filters nothing."""

    is_public: bool
    name: str


SORTABLE = frozenset({"id", "name", "created_at", "updated_at"})


@api.retried
def create(values: Mapping[str, Any]) -> Row:
    """Store a new type and return its row.

    :raises TypeExists: there is one of that name
    """
    row: Row = {
        "description": None,
        "is_public": True,
        "extra_specs": {},
        "updated_at": None,
        **values,
        "id": values.get("id") or models.new_id(),
        "created_at": models.now(),
    }
    try:
        with api.writer() as connection:
            connection.execute(sa.insert(_T).values(row))
    except db_exception.DBDuplicateEntry as error:
        raise exception.TypeExists(name=row["name"]) from error
    return row


@api.retried
def get(type_id: str) -> Row:
    """Return one type.

    :raises VolumeTypeNotFound: there is none
    """
    return _one(_T.c.id == type_id, type_id)


@api.retried
def get_by_name(name: str) -> Row:
    """Return the type of that name.

    :raises VolumeTypeNotFound: there is none
    """
    return _one(_T.c.name == name, name)


def _one(condition: paging.Condition, wanted: str) -> Row:
    with api.reader() as connection:
        row = connection.execute(sa.select(_T).where(condition)).one_or_none()
    if row is None:
        raise exception.VolumeTypeNotFound(volume_type_id=wanted)
    return dict(row._mapping)


@api.retried
def page(filters: Filters, page: paging.Page) -> list[Row]:
    """Return one page of types, in one statement.

    :raises BadRequest: there is no such marker
    """
    wanted = sa.select(_T).filter_by(**filters)
    with api.reader() as connection:
        return paging.rows(connection, wanted, _T, [], page)


@api.retried
def update(type_id: str, values: Mapping[str, Any]) -> None:
    """Store other columns: ``name``, ``description``, ``is_public``.

    :raises VolumeTypeNotFound: there is none
    :raises TypeExists: there is another one of that name
    """
    try:
        with api.writer() as connection:
            done = connection.execute(sa.update(_T).where(_T.c.id == type_id).values(**values))
    except db_exception.DBDuplicateEntry as error:
        raise exception.TypeExists(name=values.get("name")) from error
    if done.rowcount != 1:
        raise exception.VolumeTypeNotFound(volume_type_id=type_id)


@api.retried
def delete(type_id: str) -> None:
    """Remove a type.

    :raises VolumeTypeNotFound: there is none
    :raises TypeInUse: volumes have it
    """
    try:
        with api.writer() as connection:
            done = connection.execute(sa.delete(_T).where(_T.c.id == type_id))
    except db_exception.DBReferenceError as error:
        raise exception.TypeInUse(volume_type_id=type_id) from error
    if done.rowcount != 1:
        raise exception.VolumeTypeNotFound(volume_type_id=type_id)


@api.retried
def merge_specs(type_id: str, specs: Mapping[str, str]) -> Specs:
    """Set some extra specs, keep the others, and return all.

    :raises VolumeTypeNotFound: there is no such type
    """
    return _change_specs(type_id, lambda before: {**before, **specs})


@api.retried
def delete_spec(type_id: str, key: str) -> None:
    """Remove one extra spec.

    :raises VolumeTypeNotFound: there is no such type
    :raises NotFound: it has no such extra spec
    """

    def without(before: Specs) -> Specs:
        if key not in before:
            raise exception.NotFound(f"Volume Type {type_id} has no extra specs with key {key}.")
        return {name: value for name, value in before.items() if name != key}

    _change_specs(type_id, without)


def _change_specs(type_id: str, change: Callable[[Specs], Specs]) -> Specs:
    mine = _T.c.id == type_id
    with api.writer() as connection:
        before = connection.execute(
            sa.select(_T.c.extra_specs).where(mine).with_for_update()
        ).one_or_none()
        if before is None:
            raise exception.VolumeTypeNotFound(volume_type_id=type_id)
        after = change(before.extra_specs)
        connection.execute(sa.update(_T).where(mine).values(extra_specs=after))
    return after
