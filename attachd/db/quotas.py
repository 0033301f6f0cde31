# SPDX-License-Identifier: Apache-2.0
"""Limits and usage of projects, and their enforcement.

A limit is what was set for the project, else what was set for the class ``default``, else what the
configuration says. Usage is counted each time, by entries of indexes alone: there is no counter
that could be wrong, and none that all attachments of a project would have to change in turn.

Projects are locked while a request is checked and executed, so that two requests cannot both take
the rest of a quota. In each transaction the project's lock comes first and the volume's row
second.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.states import VolumeState

Limits = Mapping[str, int]
"""Limits by resource; -1 is unlimited."""

VOLUMES: Final = "volumes"
GIGABYTES: Final = "gigabytes"
PER_VOLUME: Final = "per_volume_gigabytes"
SNAPSHOTS: Final = "snapshots"
ATTACHMENTS: Final = "attachments"
DEFAULT_CLASS: Final = "default"
UNLIMITED: Final = -1

UNSUPPORTED_RESOURCES: Final[Limits] = MappingProxyType(
    {"backups": 10, "backup_gigabytes": 1000, "groups": 10}
)
"""Resources of other services: clients show and set their limits, and nothing is used."""

TYPE_RESOURCES: Final = (VOLUMES, GIGABYTES, SNAPSHOTS)
"""Resources that are limited for each volume type as well, as ``volumes_TYPE``."""

_QUOTAS = models.quotas
_QUOTA_CLASSES = models.quota_classes
_VOLUMES = models.volumes
_SNAPSHOTS = models.snapshots
_VOLUME_TYPES = models.volume_types
_ATTACHMENTS = models.attachments

# While a volume is extended, the growth counts already.
GROWTH: Final = sa.case(
    (
        _VOLUMES.c.state == VolumeState.EXTENDING.value,
        _VOLUMES.c.new_size_gib - _VOLUMES.c.size_gib,
    ),
    else_=0,
)


class ResourceUsage(NamedTuple):
    """How much of a resource is in use, and how much is being added."""

    in_use: int
    coming: int = 0

    @property
    def total(self) -> int:
        """The sum of both."""
        return self.in_use + self.coming

    def plus(self, more: "ResourceUsage") -> "ResourceUsage":
        """Return the sum of two usages."""
        return ResourceUsage(self.in_use + more.in_use, self.coming + more.coming)


def type_resource(resource: str, type_name: str) -> str:
    """Return the name of a resource that counts the volumes of one type only."""
    return f"{resource}_{type_name}"


def configured_limits() -> dict[str, int]:
    """Return the limits of the configuration; it has none for types."""
    return {
        VOLUMES: CONF.quota.quota_volumes,
        GIGABYTES: CONF.quota.quota_gigabytes,
        PER_VOLUME: CONF.quota.per_volume_size_limit,
        ATTACHMENTS: CONF.quota.quota_attachments,
        SNAPSHOTS: CONF.quota.quota_snapshots,
        **UNSUPPORTED_RESOURCES,
    }


@retried
def project_limits(project_id: str) -> dict[str, int]:
    """Return the limits that were set for a project, or for all by the class ``default``."""
    with session.reader() as connection:
        return fetch_limits(connection, project_id)


def fetch_limits(
    connection: sa.Connection, project_id: str, names: Iterable[Any] = ()
) -> dict[str, int]:
    """Do as :func:`project_limits`, in one statement of a transaction.

    :param names: lists of names, or queries for them; none: all
    """
    of_all = sa.select(
        sa.literal(0).label("rank"), _QUOTA_CLASSES.c.resource, _QUOTA_CLASSES.c.hard_limit
    ).where(_QUOTA_CLASSES.c.class_name == DEFAULT_CLASS)
    own = sa.select(sa.literal(1), _QUOTAS.c.resource, _QUOTAS.c.hard_limit).where(
        _QUOTAS.c.project_id == project_id
    )
    both = sa.union_all(of_all, own).subquery()
    statement = sa.select(both.c.resource, both.c.hard_limit).order_by(both.c.rank)
    if conditions := [both.c.resource.in_(item) for item in names]:
        statement = statement.where(sa.or_(*conditions))
    return {row.resource: int(row.hard_limit) for row in connection.execute(statement)}


@retried
def class_limits(class_name: str) -> dict[str, int]:
    """Return the limits that were set for a class."""
    statement = sa.select(_QUOTA_CLASSES.c.resource, _QUOTA_CLASSES.c.hard_limit).where(
        _QUOTA_CLASSES.c.class_name == class_name
    )
    with session.reader() as connection:
        return {row.resource: row.hard_limit for row in connection.execute(statement)}


@retried
def usage(project_id: str) -> dict[str, ResourceUsage]:
    """Return the usage of a project by resource, with those of types."""
    with session.reader() as connection:
        return _fetch_usage(connection, project_id)


def _fetch_usage(connection: sa.Connection, project_id: str) -> dict[str, ResourceUsage]:
    statement = (
        sa.select(
            _VOLUME_TYPES.c.name,
            sa.func.count(),
            sa.func.sum(_VOLUMES.c.size_gib),
            sa.func.sum(GROWTH),
        )
        .select_from(_VOLUMES)
        .outerjoin(_VOLUME_TYPES, _VOLUME_TYPES.c.id == _VOLUMES.c.volume_type_id)
        .where(_VOLUMES.c.project_id == project_id)
        .group_by(_VOLUME_TYPES.c.name)
    )
    nothing = ResourceUsage(0)
    usages = {
        **dict.fromkeys((VOLUMES, GIGABYTES, SNAPSHOTS), nothing),
        ATTACHMENTS: ResourceUsage(_count_attachments(connection, project_id)),
    }

    def add(name: str | None, amounts: Mapping[str, ResourceUsage]) -> None:
        for resource, amount in amounts.items():
            usages[resource] = usages[resource].plus(amount)
            if name is not None:
                of_type = type_resource(resource, name)
                usages[of_type] = usages.get(of_type, nothing).plus(amount)

    for name, *numbers in connection.execute(statement):
        volumes, gib, growing = map(int, numbers)
        add(name, {VOLUMES: ResourceUsage(volumes), GIGABYTES: ResourceUsage(gib, growing)})
    for name, snapshots, gib in connection.execute(_snapshots_by_type(project_id)):
        counted = {} if CONF.quota.no_snapshot_gb_quota else {GIGABYTES: ResourceUsage(int(gib))}
        add(name, {SNAPSHOTS: ResourceUsage(int(snapshots)), **counted})
    return usages


def _snapshots_by_type(project_id: str) -> sa.Select[Any]:
    return (
        sa.select(_VOLUME_TYPES.c.name, sa.func.count(), sa.func.sum(_SNAPSHOTS.c.size_gib))
        .select_from(_SNAPSHOTS)
        .outerjoin(_VOLUME_TYPES, _VOLUME_TYPES.c.id == _SNAPSHOTS.c.volume_type_id)
        .where(_SNAPSHOTS.c.project_id == project_id)
        .group_by(_VOLUME_TYPES.c.name)
    )


@retried
def set_limits(project_id: str, limits: Limits) -> None:
    """Set some of a project's limits, even below its usage."""
    with session.writer() as connection:
        lock_project(connection, project_id)
        _replace_limits(connection, _QUOTAS, {"project_id": project_id}, limits)


@retried
def set_limits_above_usage(project_id: str, limits: Limits) -> None:
    """Set some of a project's limits, none of them below its usage.

    :raises BadRequest: naming a limit that would be
    """
    with session.writer() as connection:
        lock_project(connection, project_id)
        has = _fetch_usage(connection, project_id)
        for resource, limit in limits.items():
            taken = has.get(resource, ResourceUsage(0)).total
            if UNLIMITED < limit < taken:
                raise exception.BadRequest(
                    reason=f"The quota for {resource} cannot be {limit}: {taken} are used "
                    "already. Remove some first, or use force."
                )
        _replace_limits(connection, _QUOTAS, {"project_id": project_id}, limits)


@retried
def set_class_limits(class_name: str, limits: Limits) -> None:
    """Set some of a class's limits."""
    with session.writer() as connection:
        # No project has such an id.
        lock_project(connection, f"class/{class_name}")
        _replace_limits(connection, _QUOTA_CLASSES, {"class_name": class_name}, limits)


def _replace_limits(
    connection: sa.Connection, table: sa.Table, owner: Mapping[str, str], limits: Limits
) -> None:
    if not limits:
        return
    condition = [table.c[key] == value for key, value in owner.items()]
    connection.execute(sa.delete(table).where(*condition, table.c.resource.in_(limits)))
    rows = [{**owner, "resource": name, "hard_limit": limit} for name, limit in limits.items()]
    connection.execute(sa.insert(table), rows)


@retried
def delete_limits(project_id: str) -> None:
    """Delete the limits of a project: the defaults apply again."""
    with session.writer() as connection:
        lock_project(connection, project_id)
        connection.execute(sa.delete(_QUOTAS).where(_QUOTAS.c.project_id == project_id))


def rename_type(connection: sa.Connection, old: str, new: str) -> None:
    """Rename the limits of a type, in the transaction that renames the type."""
    delete_type(connection, new)  # of a type that there was once
    for table in (_QUOTAS, _QUOTA_CLASSES):
        for resource in TYPE_RESOURCES:
            statement = sa.update(table).where(table.c.resource == type_resource(resource, old))
            connection.execute(statement.values(resource=type_resource(resource, new)))


def delete_type(connection: sa.Connection, name: str) -> None:
    """Delete the limits of a type, in the transaction that deletes the type."""
    gone = [type_resource(resource, name) for resource in TYPE_RESOURCES]
    for table in (_QUOTAS, _QUOTA_CLASSES):
        connection.execute(sa.delete(table).where(table.c.resource.in_(gone)))


def lock_project(connection: sa.Connection, project_id: str) -> None:
    """Lock a project: no other transaction adds to it until this one ends.

    A transaction that also locks a volume's row does so after this.
    """
    session.lock_row(connection, models.quota_locks, project_id)


Amounts = Mapping[str, int]


class Deltas(NamedTuple):
    """The amounts that a request adds.

    :ivar volume_type_id: whose limits count as well; None: of no type
    :ivar size_gib: the size of the one volume; 0: of none
    :ivar more: how many more volumes, snapshots and GiB the project will have
    :ivar more_of_type: how many of them will be of the type
    """

    volume_type_id: str | None
    size_gib: int
    more: Amounts
    more_of_type: Amounts


def deltas_of_create(volume_type_id: str | None, size_gib: int) -> Deltas:
    """Return the amounts of a new volume."""
    more = {VOLUMES: 1, GIGABYTES: size_gib}
    return Deltas(volume_type_id, size_gib, more, more)


def deltas_of_extend(volume_type_id: str | None, size_gib: int, new_size_gib: int) -> Deltas:
    """Return the amounts of a volume that is extended."""
    more = {GIGABYTES: new_size_gib - size_gib}
    return Deltas(volume_type_id, new_size_gib, more, more)


def deltas_of_snapshot(volume_type_id: str | None, size_gib: int) -> Deltas:
    """Return the amounts of a new snapshot."""
    counted = {} if CONF.quota.no_snapshot_gb_quota else {GIGABYTES: size_gib}
    more = {SNAPSHOTS: 1, **counted}
    return Deltas(volume_type_id, 0, more, more)


class SnapshotsOfVolume(NamedTuple):
    """How many snapshots a volume has, and the sum of their sizes."""

    snapshots: int = 0
    gib: int = 0


def count_snapshots(
    connection: sa.Connection, volume_id: str, project_id: str
) -> SnapshotsOfVolume:
    """Count the snapshots of a project of a volume, whose row is locked."""
    of_project = (_SNAPSHOTS.c.volume_id == volume_id, _SNAPSHOTS.c.project_id == project_id)
    statement = sa.select(sa.func.count(), sa.func.sum(_SNAPSHOTS.c.size_gib)).where(*of_project)
    found = connection.execute(statement).one()
    return SnapshotsOfVolume(int(found[0]), int(found[1] or 0))


def deltas_of_retype(
    new_type_id: str, size_gib: int, snapshots: SnapshotsOfVolume | None = None
) -> Deltas:
    """Return the amounts of a volume that gets another type, with its snapshots."""
    counted = snapshots or SnapshotsOfVolume()
    gib = size_gib + (0 if CONF.quota.no_snapshot_gb_quota else counted.gib)
    more = {VOLUMES: 1, GIGABYTES: gib, SNAPSHOTS: counted.snapshots}
    return Deltas(new_type_id, 0, {}, more)


def deltas_of_transfer(
    volume_type_id: str | None, size_gib: int, snapshots: SnapshotsOfVolume
) -> Deltas:
    """Return the amounts of a volume that a project accepts, with its snapshots."""
    gib = size_gib + (0 if CONF.quota.no_snapshot_gb_quota else snapshots.gib)
    more = {VOLUMES: 1, GIGABYTES: gib, SNAPSHOTS: snapshots.snapshots}
    return Deltas(volume_type_id, size_gib, more, more)


@retried
def check(project_id: str, deltas: Deltas) -> None:
    """Check, without a lock, whether a request exceeds a limit now; for better messages only.

    :raises QuotaExceeded: it does
    """
    with session.reader() as connection:
        enforce(connection, project_id, deltas)


def enforce(connection: sa.Connection, project_id: str, deltas: Deltas) -> None:
    """Check a request against the project's limits, after a call of lock_project().

    :raises QuotaExceeded: naming the limit, and its usage
    """
    limits = {
        **configured_limits(),
        **_relevant_limits(connection, project_id, deltas.volume_type_id),
    }
    limit = limits[PER_VOLUME]
    if UNLIMITED < limit < deltas.size_gib:
        raise exception.VolumeSizeExceeded(size=deltas.size_gib, limit=limit)
    requested = {
        name: more
        for name, more in _limited_deltas(limits, deltas).items()
        if more > 0 and limits[name] > UNLIMITED
    }
    used = _count_usage(connection, project_id, deltas.volume_type_id) if requested else {}
    for name in sorted(requested):
        taken = used[_split_resource(name)]
        if taken + requested[name] > limits[name]:
            raise exception.QuotaExceeded(
                resource=name, requested=requested[name], limit=limits[name], used=taken
            )


def _relevant_limits(
    connection: sa.Connection, project_id: str, volume_type_id: str | None
) -> dict[str, int]:
    """Return the limits that matter, by the present name of the type."""
    names = [
        sa.select(sa.literal(f"{resource}_") + _VOLUME_TYPES.c.name).where(
            _VOLUME_TYPES.c.id == volume_type_id
        )
        for resource in TYPE_RESOURCES
    ]
    everywhere = (*TYPE_RESOURCES, PER_VOLUME)
    return fetch_limits(connection, project_id, [everywhere, *(names if volume_type_id else ())])


def _limited_deltas(limits: Amounts, deltas: Deltas) -> dict[str, int]:
    """Return the amounts that are requested of each limited resource."""
    requested = dict(deltas.more)
    for name in limits:
        kind, of_type = _split_resource(name)
        if of_type and kind in deltas.more_of_type:
            requested[name] = deltas.more_of_type[kind]
    return requested


def _split_resource(name: str) -> tuple[str, bool]:
    """Return the resource, and whether it counts the volumes of one type only."""
    for kind in TYPE_RESOURCES:
        if name.startswith(f"{kind}_"):
            return kind, True
    return name, False


def _count_usage(
    connection: sa.Connection, project_id: str, volume_type_id: str | None
) -> dict[tuple[str, bool], int]:
    """Count the usage of a project in one statement, by :func:`_split_resource`."""
    gib = _VOLUMES.c.size_gib + GROWTH
    of_type = _VOLUMES.c.volume_type_id == volume_type_id
    counted = {
        (VOLUMES, False): sa.func.count(),
        (GIGABYTES, False): sa.func.sum(gib),
        (VOLUMES, True): sa.func.sum(sa.case((of_type, 1), else_=0)),
        (GIGABYTES, True): sa.func.sum(sa.case((of_type, gib), else_=0)),
    }
    snapshots = {
        (SNAPSHOTS, False): _of_snapshots(project_id, sa.func.count()),
        (GIGABYTES, False): _of_snapshots(project_id, sa.func.sum(_SNAPSHOTS.c.size_gib)),
        (SNAPSHOTS, True): _of_snapshots(project_id, sa.func.count(), volume_type_id),
        (GIGABYTES, True): _of_snapshots(
            project_id, sa.func.sum(_SNAPSHOTS.c.size_gib), volume_type_id
        ),
    }
    statement = sa.select(*counted.values(), *snapshots.values()).where(
        _VOLUMES.c.project_id == project_id
    )
    numbers = iter(connection.execute(statement.select_from(_VOLUMES)).one())
    usages = {key: int(next(numbers) or 0) for key in counted}
    for key in snapshots:
        number = int(next(numbers) or 0)
        if key[0] == SNAPSHOTS or not CONF.quota.no_snapshot_gb_quota:
            usages[key] = usages.get(key, 0) + number
    return usages


def _of_snapshots(
    project_id: str, counted: sa.ColumnElement[Any], volume_type_id: str | None = None
) -> sa.ScalarSelect[Any]:
    """Count the snapshots of a project; of one type if that is given."""
    statement = sa.select(counted).select_from(_SNAPSHOTS)
    statement = statement.where(_SNAPSHOTS.c.project_id == project_id)
    if volume_type_id is not None:
        statement = statement.where(_SNAPSHOTS.c.volume_type_id == volume_type_id)
    return statement.scalar_subquery()


# ---- Attachments ----

SET_FOR_ATTACHMENTS: Final = sa.func.coalesce(
    sa.select(_QUOTAS.c.hard_limit)
    .where(_QUOTAS.c.project_id == _VOLUMES.c.project_id, _QUOTAS.c.resource == ATTACHMENTS)
    .scalar_subquery(),
    sa.select(_QUOTA_CLASSES.c.hard_limit)
    .where(_QUOTA_CLASSES.c.class_name == DEFAULT_CLASS, _QUOTA_CLASSES.c.resource == ATTACHMENTS)
    .scalar_subquery(),
    UNLIMITED,
)
"""The limit that is set for the attachments of a volume's project, in a statement on volumes.

Most projects have none, and need no statement of their own to find that out.
"""


def lock_attachments(connection: sa.Connection, project_id: str) -> int:
    """Lock a project if its attachments are limited, and return the limit.

    A transaction that also locks a volume's row does so after this.
    """
    limits = fetch_limits(connection, project_id, [(ATTACHMENTS,)])
    limit = limits.get(ATTACHMENTS, configured_limits()[ATTACHMENTS])
    if limit != UNLIMITED:
        lock_project(connection, project_id)
    return limit


def check_attachments(connection: sa.Connection, project_id: str, limit: int) -> None:
    """Check that a project may have one more attachment.

    :param limit: as of :func:`lock_attachments`
    :raises QuotaExceeded: it has as many as it may have; more are not counted
    """
    if limit == UNLIMITED:
        return
    counted = _attachments_of(project_id).limit(limit).subquery()
    used = connection.execute(sa.select(sa.func.count()).select_from(counted)).scalar_one()
    if used >= limit:
        raise exception.QuotaExceeded(
            kind="AttachmentLimitExceeded",
            resource=ATTACHMENTS,
            requested=1,
            limit=limit,
            used=used,
        )


def _count_attachments(connection: sa.Connection, project_id: str) -> int:
    """Count attachments, and the holds and connections of the older calls that have none yet."""
    counted = _attachments_of(project_id).subquery()
    statement = sa.select(sa.func.count()).select_from(counted)
    return int(connection.execute(statement).scalar_one())


def _attachments_of(project_id: str) -> sa.Select[Any]:
    return sa.select(_ATTACHMENTS.c.id).where(
        _ATTACHMENTS.c.project_id == project_id, _ATTACHMENTS.c.parent_id.is_(None)
    )
