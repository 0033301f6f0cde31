# SPDX-License-Identifier: Apache-2.0
"""The qos_specs table, and the volume types that its rows are associated with; used by the API."""

from collections.abc import Collection, Mapping
from typing import Any, TypedDict

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.engine import paging, session
from attachd.db.engine.retry import retried
from attachd.db.row_types import QosSpecsRow

Specs = dict[str, str | None]
_QOS_SPECS = models.qos_specs
_VOLUME_TYPES = models.volume_types


class Filters(TypedDict, total=False):
    """Filters of a list; an absent key filters nothing."""

    id: str
    name: str
    consumer: str


class AssociatedType(TypedDict):
    """A volume type that QoS specs are associated with."""

    id: str
    name: str


SORTABLE = frozenset({"id", "name", "consumer", "created_at", "updated_at"})


@retried
def create(name: str, consumer: str, specs: Mapping[str, str | None]) -> QosSpecsRow:
    """Store new QoS specs and return their row.

    :raises QosSpecsExist: there are some of that name
    """
    row: QosSpecsRow = {
        "id": models.new_id(),
        "name": name,
        "consumer": consumer,
        "specs": dict(specs),
        "created_at": models.now(),
        "updated_at": None,
    }
    try:
        session.write(sa.insert(_QOS_SPECS).values(row))
    except db_exception.DBDuplicateEntry as error:
        raise exception.QosSpecsExist(name=name) from error
    return row


@retried
def get(qos_specs_id: str) -> QosSpecsRow:
    """Return one row.

    :raises QosSpecsNotFound: there is none
    """
    row = session.fetch_one(
        sa.select(_QOS_SPECS).where(_QOS_SPECS.c.id == qos_specs_id), QosSpecsRow
    )
    if row is None:
        raise exception.QosSpecsNotFound(qos_specs_id=qos_specs_id)
    return row


@retried
def page(filters: Filters, page: paging.Page) -> list[QosSpecsRow]:
    """Return one page of rows, in one statement.

    :raises MarkerNotFound: there is no such item
    """
    statement = sa.select(_QOS_SPECS).filter_by(**filters)
    with session.reader() as connection:
        return paging.fetch_page(connection, statement, _QOS_SPECS, [], page, QosSpecsRow)


@retried
def update(qos_specs_id: str, consumer: str | None, specs: Mapping[str, str | None]) -> None:
    """Set some keys and keep the others.

    :param consumer: None: unchanged
    :raises QosSpecsNotFound: there are no such QoS specs
    """
    with session.writer() as connection:
        before = _lock_specs(connection, qos_specs_id)
        values: dict[str, Any] = {"specs": {**before, **specs}}
        if consumer is not None:
            values["consumer"] = consumer
        connection.execute(
            sa.update(_QOS_SPECS).where(_QOS_SPECS.c.id == qos_specs_id).values(values)
        )


@retried
def delete_keys(qos_specs_id: str, keys: Collection[str]) -> None:
    """Remove some keys, all of them or none.

    :raises QosSpecsNotFound: there are no such QoS specs
    :raises NotFound: they lack one of the keys
    """
    with session.writer() as connection:
        before = _lock_specs(connection, qos_specs_id)
        for key in keys:
            if key not in before:
                raise exception.NotFound(f"QoS spec {qos_specs_id} has no spec with key {key}.")
        remaining = {key: value for key, value in before.items() if key not in keys}
        connection.execute(
            sa.update(_QOS_SPECS).where(_QOS_SPECS.c.id == qos_specs_id).values(specs=remaining)
        )


def _lock_specs(connection: sa.Connection, qos_specs_id: str) -> Specs:
    row = connection.execute(
        sa.select(_QOS_SPECS.c.specs).where(_QOS_SPECS.c.id == qos_specs_id).with_for_update()
    ).one_or_none()
    if row is None:
        raise exception.QosSpecsNotFound(qos_specs_id=qos_specs_id)
    specs: Specs = row.specs
    return specs


@retried
def delete(qos_specs_id: str) -> None:
    """Remove QoS specs that are not associated with a volume type.

    :raises QosSpecsNotFound: there are none
    :raises QosSpecsInUse: they are associated with a volume type
    """
    _delete(qos_specs_id)


@retried
def delete_and_disassociate(qos_specs_id: str) -> None:
    """Disassociate QoS specs from all volume types, and remove them.

    :raises QosSpecsNotFound: there are none
    :raises QosSpecsInUse: they have just been associated with a volume type
    """
    _delete(qos_specs_id, _disassociate_statement(qos_specs_id))


def _delete(qos_specs_id: str, *before: sa.Update) -> None:
    try:
        with session.writer() as connection:
            for statement in before:
                connection.execute(statement)
            result = connection.execute(
                sa.delete(_QOS_SPECS).where(_QOS_SPECS.c.id == qos_specs_id)
            )
    except db_exception.DBReferenceError as error:
        raise exception.QosSpecsInUse from error
    if result.rowcount != 1:
        raise exception.QosSpecsNotFound(qos_specs_id=qos_specs_id)


@retried
def list_types(qos_specs_id: str) -> list[AssociatedType]:
    """Return ids and names of the volume types with these QoS specs, sorted by name."""
    statement = sa.select(_VOLUME_TYPES.c.id, _VOLUME_TYPES.c.name).where(
        _VOLUME_TYPES.c.qos_specs_id == qos_specs_id
    )
    return session.fetch_all(statement.order_by(_VOLUME_TYPES.c.name), AssociatedType)


@retried
def associate(qos_specs_id: str, type_id: str) -> None:
    """Associate a volume type with these QoS specs, if it has no others.

    :raises QosSpecsNotFound: there are no such QoS specs
    :raises VolumeTypeNotFound: there is no such type
    :raises InvalidVolumeType: it has others
    """
    free = sa.or_(
        _VOLUME_TYPES.c.qos_specs_id.is_(None), _VOLUME_TYPES.c.qos_specs_id == qos_specs_id
    )
    try:
        with session.writer() as connection:
            result = connection.execute(
                sa.update(_VOLUME_TYPES)
                .where(_VOLUME_TYPES.c.id == type_id, free)
                .values(qos_specs_id=qos_specs_id)
            )
            if result.rowcount != 1:
                raise _association_error(connection, type_id)
    except db_exception.DBReferenceError as error:
        raise exception.QosSpecsNotFound(qos_specs_id=qos_specs_id) from error


def _association_error(connection: sa.Connection, type_id: str) -> exception.AttachdError:
    row = connection.execute(
        sa.select(_VOLUME_TYPES.c.qos_specs_id).where(_VOLUME_TYPES.c.id == type_id)
    ).one_or_none()
    if row is None:
        return exception.VolumeTypeNotFound(volume_type_id=type_id)
    return exception.InvalidVolumeType(
        reason=f"Type {type_id} is already associated with another qos specs: {row.qos_specs_id}"
    )


@retried
def disassociate(qos_specs_id: str, type_id: str) -> None:
    """Disassociate a volume type from these QoS specs, if it has them."""
    session.write(_disassociate_statement(qos_specs_id).where(_VOLUME_TYPES.c.id == type_id))


@retried
def disassociate_all(qos_specs_id: str) -> None:
    """Disassociate all volume types from these QoS specs."""
    session.write(_disassociate_statement(qos_specs_id))


def _disassociate_statement(qos_specs_id: str) -> sa.Update:
    return (
        sa.update(_VOLUME_TYPES)
        .where(_VOLUME_TYPES.c.qos_specs_id == qos_specs_id)
        .values(qos_specs_id=None)
    )
