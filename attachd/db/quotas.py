# SPDX-License-Identifier: Apache-2.0
"""How much a project may have and has; read by the API, and by quota_claims.py.

A limit is what was set for the project, else what was set for the class ``default``, else what
the configuration says.  What a project has is counted in the volumes table each time: there is
no counter that could be wrong.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import api, locks, models
from attachd.states import VolumeState

Limits = Mapping[str, int]
"""Limits by resource; -1 is none."""

VOLUMES: Final = "volumes"
GIGABYTES: Final = "gigabytes"
PER_VOLUME: Final = "per_volume_gigabytes"
DEFAULT_CLASS: Final = "default"
UNLIMITED: Final = -1

ELSEWHERE: Final[Limits] = MappingProxyType(
    {"snapshots": 10, "backups": 10, "backup_gigabytes": 1000, "groups": 10}
)
"""What is not in this service: clients show and set limits of it, and nothing is used."""

OF_A_TYPE: Final = (VOLUMES, GIGABYTES, "snapshots")
"""What is limited for a type's volumes as well, as ``volumes_TYPE``."""

_Q = models.quotas
_C = models.quota_classes
_V = models.volumes
_T = models.volume_types

# While a volume grows, what it grows by is taken already.
GROWING: Final = sa.case(
    (_V.c.state == VolumeState.EXTENDING.value, _V.c.new_size_gib - _V.c.size_gib), else_=0
)


class Used(NamedTuple):
    """How much of something there is, and how much of it is being added."""

    there: int
    coming: int = 0

    @property
    def total(self) -> int:
        """What counts."""
        return self.there + self.coming

    def plus(self, more: "Used") -> "Used":
        """Return the sum of both."""
        return Used(self.there + more.there, self.coming + more.coming)


def of_type(resource: str, type_name: str) -> str:
    """Return what a resource is called where only the volumes of one type count."""
    return f"{resource}_{type_name}"


def configured() -> dict[str, int]:
    """Return the limits that hold where nothing was set; for a type there are none then."""
    return {
        VOLUMES: CONF.quota.quota_volumes,
        GIGABYTES: CONF.quota.quota_gigabytes,
        PER_VOLUME: CONF.quota.per_volume_size_limit,
        **ELSEWHERE,
    }


@api.retried
def of_project(project_id: str) -> dict[str, int]:
    """Return what was set for a project, or for all by the class ``default``."""
    with api.reader() as connection:
        return limits(connection, project_id)


def limits(
    connection: sa.Connection, project_id: str, names: Iterable[Any] = ()
) -> dict[str, int]:
    """Do as :func:`of_project`, in one statement of a transaction.

    :param names: what the limits are of: lists of names, or queries for them; none: all
    """
    of_all = sa.select(sa.literal(0).label("rank"), _C.c.resource, _C.c.hard_limit).where(
        _C.c.class_name == DEFAULT_CLASS
    )
    own = sa.select(sa.literal(1), _Q.c.resource, _Q.c.hard_limit).where(
        _Q.c.project_id == project_id
    )
    both = sa.union_all(of_all, own).subquery()
    wanted = sa.select(both.c.resource, both.c.hard_limit).order_by(both.c.rank)
    if conditions := [both.c.resource.in_(each) for each in names]:
        wanted = wanted.where(sa.or_(*conditions))
    return {row.resource: int(row.hard_limit) for row in connection.execute(wanted)}


@api.retried
def of_class(class_name: str) -> dict[str, int]:
    """Return what was set for a class."""
    wanted = sa.select(_C.c.resource, _C.c.hard_limit).where(_C.c.class_name == class_name)
    with api.reader() as connection:
        return {row.resource: row.hard_limit for row in connection.execute(wanted)}


@api.retried
def used(project_id: str) -> dict[str, Used]:
    """Return what a project has, in one statement: by resource, those of types included."""
    with api.reader() as connection:
        return _used(connection, project_id)


def _used(connection: sa.Connection, project_id: str) -> dict[str, Used]:
    statement = (
        sa.select(
            _T.c.name,
            sa.func.count(),
            sa.func.sum(_V.c.size_gib),
            sa.func.sum(GROWING),
        )
        .select_from(_V)
        .outerjoin(_T, _T.c.id == _V.c.volume_type_id)
        .where(_V.c.project_id == project_id)
        .group_by(_T.c.name)
    )
    found = {VOLUMES: Used(0), GIGABYTES: Used(0)}
    for name, *numbers in connection.execute(statement):
        volumes, gib, growing = map(int, numbers)
        amounts = {VOLUMES: Used(volumes), GIGABYTES: Used(gib, growing)}
        for resource, amount in amounts.items():
            found[resource] = found[resource].plus(amount)
            if name is not None:
                found[of_type(resource, name)] = amount
    return found


@api.retried
def store(project_id: str, wanted: Limits) -> None:
    """Set some of a project's limits, whatever it has."""
    with api.writer() as connection:
        lock(connection, project_id)
        _store(connection, _Q, {"project_id": project_id}, wanted)


@api.retried
def store_if_kept(project_id: str, wanted: Limits) -> None:
    """Set some of a project's limits, none of them below what it has.

    :raises BadRequest: naming one that would be
    """
    with api.writer() as connection:
        lock(connection, project_id)
        has = _used(connection, project_id)
        for resource, limit in wanted.items():
            taken = has.get(resource, Used(0)).total
            if UNLIMITED < limit < taken:
                raise exception.BadRequest(
                    reason=f"The quota for {resource} cannot be {limit}: {taken} are used "
                    "already. Remove some first, or use force."
                )
        _store(connection, _Q, {"project_id": project_id}, wanted)


@api.retried
def store_of_class(class_name: str, wanted: Limits) -> None:
    """Set some of a class's limits."""
    with api.writer() as connection:
        # No project has such an id.
        lock(connection, f"class/{class_name}"[:64])
        _store(connection, _C, {"class_name": class_name}, wanted)


def _store(
    connection: sa.Connection, table: sa.Table, owner: Mapping[str, str], wanted: Limits
) -> None:
    if not wanted:
        return
    mine = [table.c[key] == value for key, value in owner.items()]
    connection.execute(sa.delete(table).where(*mine, table.c.resource.in_(wanted)))
    rows = [{**owner, "resource": name, "hard_limit": limit} for name, limit in wanted.items()]
    connection.execute(sa.insert(table), rows)


@api.retried
def remove(project_id: str) -> None:
    """Forget what was set for a project: what holds for all holds for it again."""
    with api.writer() as connection:
        lock(connection, project_id)
        connection.execute(sa.delete(_Q).where(_Q.c.project_id == project_id))


def rename_type(connection: sa.Connection, old: str, new: str) -> None:
    """Have the limits of a type go by its new name; in the transaction that renames it."""
    forget_type(connection, new)  # of a type that there was once
    for table in (_Q, _C):
        for resource in OF_A_TYPE:
            statement = sa.update(table).where(table.c.resource == of_type(resource, old))
            connection.execute(statement.values(resource=of_type(resource, new)))


def forget_type(connection: sa.Connection, name: str) -> None:
    """Remove the limits of a type; in the transaction that deletes it."""
    gone = [of_type(resource, name) for resource in OF_A_TYPE]
    for table in (_Q, _C):
        connection.execute(sa.delete(table).where(table.c.resource.in_(gone)))


def lock(connection: sa.Connection, project_id: str) -> None:
    """Keep everybody else from adding to a project until this transaction ends.

    Whoever locks a volume's row as well does so after this.
    """
    locks.take(connection, models.quota_locks, project_id)
