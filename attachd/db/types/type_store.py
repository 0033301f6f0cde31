# SPDX-License-Identifier: Apache-2.0
"""The volume_types and volume_type_access tables: types, extra specs and access; used by the API.

A volume has the properties that the extra specs of its type stated when it got the type. So a
transaction that sets the type of a volume checks by :func:`lock_unchanged` that the extra specs
are those by which it was checked, and extra specs change only while no volume has the type. The
type's row is locked after the project's quotas and before any volume.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.db import models, quotas
from attachd.db.engine import paging, session
from attachd.db.engine.retry import retried
from attachd.db.row_types import VolumeTypeRow

Specs = dict[str, str | None]
_VOLUME_TYPES = models.volume_types
_VOLUMES = models.volumes

_VOLUME_TYPE_ACCESS = models.volume_type_access
_DEFAULT_VOLUME_TYPES = models.default_volume_types

AVAILABILITY_ZONES: Final = "RESKEY:availability_zones"
"""The extra spec whose value is a list: a filter matches a part of it."""


class Filters(TypedDict, total=False):
    """Filters of a list; an absent key filters nothing.

    :ivar known_to: public types, and private ones that this project has access to
    :ivar extra_specs: pairs that all have to exist
    """

    is_public: bool
    known_to: str | None
    id: str
    name: str
    description: str
    qos_specs_id: str
    extra_specs: Mapping[str, str]


SORTABLE = frozenset({"id", "name", "created_at", "updated_at"})
_EQUAL = tuple(Filters.__annotations__.keys() - {"known_to", "extra_specs"})


@retried
def create(values: Mapping[str, Any]) -> VolumeTypeRow:
    """Store a new type and return its row.

    :raises TypeExists: there is one of that name
    """
    row: VolumeTypeRow = {
        "id": values.get("id") or models.new_id(),
        "name": values["name"],
        "description": values.get("description"),
        "is_public": values.get("is_public", True),
        "extra_specs": values.get("extra_specs", {}),
        "qos_specs_id": values.get("qos_specs_id"),
        "created_at": models.now(),
        "updated_at": None,
    }
    try:
        session.write(sa.insert(_VOLUME_TYPES).values(row))
    except db_exception.DBDuplicateEntry as error:
        raise exception.TypeExists(name=row["name"]) from error
    return row


@retried
def get(type_id: str, project_id: str | None = None) -> VolumeTypeRow:
    """Return one type.

    :param project_id: only if this project may see it; None: in any case
    :raises VolumeTypeNotFound: there is none
    """
    return _get_one(_VOLUME_TYPES.c.id == type_id, type_id, project_id)


@retried
def get_by_name(name: str, project_id: str | None = None) -> VolumeTypeRow:
    """Return the type of that name; see :func:`get`.

    :raises VolumeTypeNotFound: there is none
    """
    return _get_one(_VOLUME_TYPES.c.name == name, name, project_id)


def _get_one(condition: paging.Condition, name: str, project_id: str | None) -> VolumeTypeRow:
    statement = sa.select(_VOLUME_TYPES).where(condition)
    if project_id is not None:
        statement = statement.where(_visible_to(project_id))
    row = session.fetch_one(statement, VolumeTypeRow)
    if row is None:
        raise exception.VolumeTypeNotFound(volume_type_id=name)
    return row


def _visible_to(project_id: str | None) -> paging.Condition:
    has_access = sa.select(_VOLUME_TYPE_ACCESS.c.project_id).where(
        _VOLUME_TYPE_ACCESS.c.volume_type_id == _VOLUME_TYPES.c.id,
        _VOLUME_TYPE_ACCESS.c.project_id == project_id,
    )
    return sa.or_(_VOLUME_TYPES.c.is_public.is_(True), has_access.exists())


@retried
def page(filters: Filters, page: paging.Page) -> list[VolumeTypeRow]:
    """Return one page of types: one statement, or two where extra specs filter.

    :raises MarkerNotFound: there is no such item
    """
    visible = [_visible_to(filters["known_to"])] if "known_to" in filters else []
    conditions = [*visible, *paging.equal(_VOLUME_TYPES, filters, _EQUAL)]
    with session.reader() as connection:
        if specs := filters.get("extra_specs"):
            conditions.append(
                _VOLUME_TYPES.c.id.in_(_list_ids_with(connection, conditions, specs))
            )
        return paging.fetch_page(
            connection,
            sa.select(_VOLUME_TYPES).where(*conditions),
            _VOLUME_TYPES,
            visible,
            page,
            VolumeTypeRow,
        )


@retried
def list_names(filters: Filters) -> list[str]:
    """Return the names of the types that a project may see, or of all, sorted: one statement."""
    visible = [_visible_to(filters["known_to"])] if "known_to" in filters else []
    with session.reader() as connection:
        result = connection.execute(
            sa.select(_VOLUME_TYPES.c.name).where(*visible).order_by(_VOLUME_TYPES.c.name)
        )
        return list(result.scalars())


def _list_ids_with(
    connection: sa.Connection, conditions: Sequence[paging.Condition], specs: Mapping[str, str]
) -> list[str]:
    """Find types by their extra specs, which are JSON: there are not many types."""
    rows = connection.execute(
        sa.select(_VOLUME_TYPES.c.id, _VOLUME_TYPES.c.extra_specs).where(*conditions)
    )
    return [
        row.id for row in rows if all(_has_spec(row.extra_specs, *pair) for pair in specs.items())
    ]


def _has_spec(specs: Specs, key: str, value: str) -> bool:
    actual = specs.get(key)
    if actual is None:
        return False
    return value in actual if key == AVAILABILITY_ZONES else value == actual


@retried
def update(type_id: str, values: Mapping[str, Any]) -> None:
    """Store other columns: ``name``, ``description``, ``is_public``; quotas are renamed with the
    type.

    :raises VolumeTypeNotFound: there is none
    :raises TypeExists: there is another one of that name
    """
    try:
        with session.writer() as connection:
            before = _lock_name(connection, type_id)
            connection.execute(
                sa.update(_VOLUME_TYPES).where(_VOLUME_TYPES.c.id == type_id).values(**values)
            )
            if values.get("name", before) != before:
                quotas.rename_type(connection, before, values["name"])
    except db_exception.DBDuplicateEntry as error:
        raise exception.TypeExists(name=values.get("name")) from error


def _lock_name(connection: sa.Connection, type_id: str) -> str:
    statement = (
        sa.select(_VOLUME_TYPES.c.name).where(_VOLUME_TYPES.c.id == type_id).with_for_update()
    )
    name: str | None = connection.execute(statement).scalar_one_or_none()
    if name is None:
        raise exception.VolumeTypeNotFound(volume_type_id=type_id)
    return name


@retried
def delete(type_id: str) -> None:
    """Remove a type, its quotas and its access list.

    :raises VolumeTypeNotFound: there is none
    :raises TypeInUse: volumes or snapshots have it
    :raises TypeIsDefault: it is the default one of a project
    """
    try:
        with session.writer() as connection:
            name = _lock_name(connection, type_id)
            connection.execute(sa.delete(_VOLUME_TYPES).where(_VOLUME_TYPES.c.id == type_id))
            quotas.delete_type(connection, name)
    except db_exception.DBReferenceError as error:
        if _is_default(type_id):
            raise exception.TypeIsDefault(volume_type_id=type_id) from error
        raise exception.TypeInUse(volume_type_id=type_id) from error


def _is_default(type_id: str) -> bool:
    holds = sa.select(_DEFAULT_VOLUME_TYPES.c.project_id).where(
        _DEFAULT_VOLUME_TYPES.c.volume_type_id == type_id
    )
    with session.reader() as connection:
        return connection.execute(holds.limit(1)).first() is not None


@retried
def merge_specs(type_id: str, specs: Mapping[str, str | None]) -> Specs:
    """Set some extra specs, keep the others, and return all.

    :raises VolumeTypeNotFound: there is no such type
    :raises BadRequest: volumes have it
    """
    return _change_specs(type_id, lambda before: {**before, **specs})


@retried
def delete_spec(type_id: str, key: str) -> None:
    """Remove one extra spec.

    :raises VolumeTypeNotFound: there is no such type
    :raises NotFound: it has no such extra spec
    :raises BadRequest: volumes have the type
    """

    def without(before: Specs) -> Specs:
        if key not in before:
            raise exception.NotFound(f"Volume Type {type_id} has no extra specs with key {key}.")
        return {name: value for name, value in before.items() if name != key}

    _change_specs(type_id, without)


def _change_specs(type_id: str, change: Callable[[Specs], Specs]) -> Specs:
    condition = _VOLUME_TYPES.c.id == type_id
    with session.writer() as connection:
        before = connection.execute(
            sa.select(_VOLUME_TYPES.c.extra_specs).where(condition).with_for_update()
        ).one_or_none()
        if before is None:
            raise exception.VolumeTypeNotFound(volume_type_id=type_id)
        used = sa.select(_VOLUMES.c.id).where(_VOLUMES.c.volume_type_id == type_id).limit(1)
        if connection.execute(used).first():
            raise exception.BadRequest(reason="Volume Type is currently in use.")
        after = change(before.extra_specs)
        connection.execute(sa.update(_VOLUME_TYPES).where(condition).values(extra_specs=after))
    return after


def lock_unchanged(
    connection: sa.Connection, type_id: str, judged: Mapping[str, str | None]
) -> None:
    """Keep a type unchanged until this transaction ends.

    :param judged: its extra specs by which a volume was checked
    :raises VolumeTypeNotFound: it has been deleted since
    :raises Conflict: its extra specs have changed
    """
    statement = sa.select(_VOLUME_TYPES.c.extra_specs).where(_VOLUME_TYPES.c.id == type_id)
    # Other transactions may share the lock; a transaction that changes or deletes the type waits.
    row = connection.execute(statement.with_for_update(read=True)).one_or_none()
    if row is None:
        raise exception.VolumeTypeNotFound(volume_type_id=type_id)
    if row.extra_specs != judged:
        raise exception.Conflict(
            reason=f"Volume type {type_id} has been changed meanwhile. Try again."
        )


def check_known(connection: sa.Connection, type_id: str, project_id: str) -> None:
    """Check that a type is public, or that a project has access to it.

    :raises VolumeTypeNotFound: neither
    """
    statement = sa.select(_VOLUME_TYPES.c.id).where(
        _VOLUME_TYPES.c.id == type_id, _visible_to(project_id)
    )
    if connection.execute(statement).first() is None:
        raise exception.VolumeTypeNotFound(volume_type_id=type_id)


@retried
def list_access(type_id: str) -> list[str]:
    """Return the projects that have access to a type, sorted."""
    statement = sa.select(_VOLUME_TYPE_ACCESS.c.project_id).where(
        _VOLUME_TYPE_ACCESS.c.volume_type_id == type_id
    )
    with session.reader() as connection:
        return list(
            connection.execute(statement.order_by(_VOLUME_TYPE_ACCESS.c.project_id)).scalars()
        )


@retried
def add_access(type_id: str, project_id: str) -> None:
    """Give a project access to a type.

    :raises TypeAccessExists: it has it already
    :raises VolumeTypeNotFound: there is no such type
    """
    try:
        row = {"volume_type_id": type_id, "project_id": project_id}
        session.write(sa.insert(_VOLUME_TYPE_ACCESS).values(row))
    except db_exception.DBDuplicateEntry as error:
        raise exception.TypeAccessExists(volume_type_id=type_id, project_id=project_id) from error
    except db_exception.DBReferenceError as error:
        raise exception.VolumeTypeNotFound(volume_type_id=type_id) from error


@retried
def remove_access(type_id: str, project_id: str) -> None:
    """Remove a project's access to a type; its volumes of that type stay.

    :raises TypeAccessNotFound: it has none
    """
    condition = sa.and_(
        _VOLUME_TYPE_ACCESS.c.volume_type_id == type_id,
        _VOLUME_TYPE_ACCESS.c.project_id == project_id,
    )
    if session.write(sa.delete(_VOLUME_TYPE_ACCESS).where(condition)) != 1:
        raise exception.TypeAccessNotFound(volume_type_id=type_id, project_id=project_id)
