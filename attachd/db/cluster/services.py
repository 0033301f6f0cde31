# SPDX-License-Identifier: Apache-2.0
"""The services table: reports of backends, written by managers, read by API and scheduler."""

from collections.abc import Mapping
import datetime
from typing import Any, Final, NamedTuple, TypedDict

from oslo_db import exception as db_exception
from oslo_utils.versionutils import convert_version_to_tuple as number
import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.engine import session
from attachd.db.engine.compiled import CompiledSelect
from attachd.db.engine.retry import retried
from attachd.db.row_types import ServiceRow

_SERVICES = models.services

BINARY: Final = "attachd-manager"
"""The name of the service of each backend."""


class Versions(NamedTuple):
    """The versions that a service supports.

    :ivar contract: of the RPC contract; None: of a release that did not report it
    :ivar objects: of the objects, as objects.manifests.to_text() writes them
    :ivar alive: whether it reported within ``service_down_time``
    """

    contract: str | None
    objects: str | None
    alive: bool = True


class Filters(TypedDict, total=False):
    """Filters of a list; an absent key filters nothing."""

    binary: str
    host: str


@retried
def report(
    *,
    binary: str,
    host: str,
    availability_zone: str,
    up: bool,
    error: str | None,
    report: Mapping[str, Any] | None,
    supported: Versions | None = None,
) -> None:
    """Store that a service lives, and its state; its first report registers it.

    :param report: the backend's, as drivers.base.Driver reports it; None keeps the last one
    :param supported: the versions of this process. Of several processes of one backend the oldest
        counts, until it has not reported for ``service_down_time``
    """
    values: dict[str, Any] = {
        "availability_zone": availability_zone,
        "up": up,
        "error": models.truncate_error(error),
        "seen_at": models.now(),
    }
    if report is not None:
        values["report"] = dict(report)
    version_values = _version_values(supported) if supported is not None else {}
    try:
        if not _update(binary, host, {**values, **version_values}, *_not_older(supported)):
            _insert_or_update(binary, host, values, version_values)
    except db_exception.DBDuplicateEntry:
        # Another process of the same service was first.
        _update(binary, host, values)


def _version_values(supported: Versions) -> dict[str, Any]:
    return {
        "rpc_version": supported.contract,
        "object_version": supported.objects,
        "versioned_at": models.now(),
    }


def _not_older(supported: Versions | None) -> list[sa.ColumnElement[bool]]:
    """Match where no process reported other versions recently."""
    if supported is None:
        return []
    same = _SERVICES.c.rpc_version == supported.contract
    silent = _SERVICES.c.versioned_at < alive_since()
    return [sa.or_(_SERVICES.c.rpc_version.is_(None), same, silent)]


def _insert_or_update(
    binary: str, host: str, values: dict[str, Any], version_values: dict[str, Any]
) -> None:
    """Register a service; or, where processes of two releases report, keep the older versions."""
    statement = sa.select(_SERVICES.c.rpc_version).where(
        _SERVICES.c.binary == binary, _SERVICES.c.host == host
    )
    row = session.fetch_one(statement, ServiceRow)
    if row is None:
        new = {"binary": binary, "host": host, **values, **version_values}
        session.write(sa.insert(_SERVICES).values(new))
    elif version_values and (
        row["rpc_version"] is None
        or number(version_values["rpc_version"]) < number(row["rpc_version"])
    ):
        _update(binary, host, {**values, **version_values})
    else:
        _update(binary, host, values)


def _update(
    binary: str, host: str, values: Mapping[str, Any], *only: sa.ColumnElement[bool]
) -> bool:
    condition = sa.and_(_SERVICES.c.binary == binary, _SERVICES.c.host == host, *only)
    return session.write(sa.update(_SERVICES).where(condition).values(**values)) == 1


@retried
def versions() -> dict[str, Versions]:
    """Return the versions that the services support, by their hosts."""
    statement = sa.select(
        _SERVICES.c.host, _SERVICES.c.rpc_version, _SERVICES.c.object_version, _SERVICES.c.seen_at
    )
    with session.reader() as connection:
        rows = connection.execute(statement).all()
    return {row[0]: Versions(row[1], row[2], row[3] >= alive_since()) for row in rows}


@retried
def page(filters: Filters) -> list[ServiceRow]:
    """Return the services, sorted by binary and host; there is one per backend.

    :returns: rows, with ``alive``: whether it reported within ``service_down_time``
    """
    statement = (
        sa.select(_SERVICES).filter_by(**filters).order_by(_SERVICES.c.binary, _SERVICES.c.host)
    )
    rows = session.fetch_all(statement, ServiceRow)
    return [{**row, "alive": row["seen_at"] >= alive_since()} for row in rows]


@retried
def get_report(backend: str) -> dict[str, Any] | None:
    """Return the last report of a backend; None: it has not reported.

    :param backend: ``host@backend``
    """
    with session.reader() as connection:
        row = _GET_REPORT.fetch_one(connection, {"match_host": backend})
    return row and row["report"]


_GET_REPORT: Final = CompiledSelect(
    sa.select(_SERVICES.c.report).where(
        _SERVICES.c.binary == sa.literal_column(f"'{BINARY}'"),
        _SERVICES.c.host == sa.bindparam("match_host"),
    ),
    ServiceRow,
)


def list_capability(name: str) -> dict[str, Any]:
    """Return what each backend reports as one of its capabilities, by ``host@backend``.

    Those that have not reported it are left out.
    """
    reports = {row["host"]: row["report"] for row in page({})}
    return {
        host: report["capabilities"][name]
        for host, report in reports.items()
        if report and name in report["capabilities"]
    }


def alive_since() -> datetime.datetime:
    """Return the moment since when a service must have reported to count as alive."""
    return models.now() - datetime.timedelta(seconds=CONF.manager.service_down_time)


@retried
def enable(binary: str, host: str) -> ServiceRow:
    """Let the scheduler choose a backend again.

    :raises NotFound: it never reported
    """
    return _set_values(binary, host, {"disabled": False, "disabled_reason": None})


@retried
def disable(binary: str, host: str, reason: str | None) -> ServiceRow:
    """Keep the scheduler from choosing a backend; its volumes keep working.

    :raises NotFound: it never reported
    """
    return _set_values(binary, host, {"disabled": True, "disabled_reason": reason})


def _set_values(binary: str, host: str, values: Mapping[str, Any]) -> ServiceRow:
    if not _update(binary, host, values):
        raise _not_found(binary, host)
    return page({"binary": binary, "host": host})[0]


def _not_found(binary: str, host: str) -> exception.NotFound:
    return exception.NotFound(f"Service {binary} on host {host} could not be found.")


@retried
def freeze(binary: str, host: str) -> None:
    """Keep a backend from creating, deleting and extending volumes.

    :raises NotFound: it never reported
    :raises BadRequest: it is frozen already
    """
    _set_frozen(binary, host, frozen=True)


@retried
def thaw(binary: str, host: str) -> None:
    """Undo :func:`freeze`.

    :raises NotFound: it never reported
    :raises BadRequest: it is not frozen
    """
    _set_frozen(binary, host, frozen=False)


def _set_frozen(binary: str, host: str, *, frozen: bool) -> None:
    condition = sa.and_(_SERVICES.c.binary == binary, _SERVICES.c.host == host)
    change = sa.update(_SERVICES).where(condition, _SERVICES.c.frozen == (not frozen))
    if session.write(change.values(frozen=frozen)) == 1:
        return
    if not page({"binary": binary, "host": host}):
        raise _not_found(binary, host)
    state = "frozen already" if frozen else "not frozen"
    raise exception.BadRequest(reason=f"Backend {host} is {state}.")


@retried
def is_frozen(binary: str, host: str) -> bool:
    """Return whether a backend is frozen; one that never reported is not."""
    statement = sa.select(_SERVICES.c.frozen).where(
        _SERVICES.c.binary == binary, _SERVICES.c.host == host
    )
    with session.reader() as connection:
        return bool(connection.execute(statement).scalar())


class ProjectUsage(NamedTuple):
    """Numbers and total sizes of a project's volumes and snapshots at one backend."""

    volumes: int = 0
    gib: int = 0
    snapshots: int = 0
    snapshot_gib: int = 0


@retried
def usage_by_project(backend: str) -> dict[str, ProjectUsage]:
    """Return numbers and total sizes of what is at ``host@backend``, by project."""
    volumes, snapshots = models.volumes, models.snapshots
    at_backend = models.on_backend(backend)
    of_volumes = _sums(volumes).where(at_backend)
    of_snapshots = (
        _sums(snapshots).join(volumes, volumes.c.id == snapshots.c.volume_id).where(at_backend)
    )
    with session.reader() as connection:
        found = {
            row[0]: ProjectUsage(int(row[1]), int(row[2]))
            for row in connection.execute(of_volumes)
        }
        for project, number, gib in connection.execute(of_snapshots):
            used = found.get(project, ProjectUsage())
            found[project] = used._replace(snapshots=int(number), snapshot_gib=int(gib))
    return dict(sorted(found.items()))


def _sums(table: sa.Table) -> sa.Select[Any]:
    """Select number and total size of the rows of a table by project."""
    columns = (table.c.project_id, sa.func.count(), sa.func.sum(table.c.size_gib))
    return sa.select(*columns).group_by(table.c.project_id)
