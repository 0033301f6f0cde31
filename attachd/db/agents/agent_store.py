# SPDX-License-Identifier: Apache-2.0
"""The agents table: the hosts that attach by themselves; used by the API, managers and operators.

The key of an agent is stored as a digest. The key of a deleted agent is not accepted any more: its
attachments can only be removed by force, until its host is registered again.
"""

from collections.abc import Collection, Iterable, Mapping
import datetime
import hashlib
from typing import Any, Final, NamedTuple, NotRequired, TypedDict

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception, host_identity
from attachd.conf import CONF
from attachd.db import host_fences, host_identities, models
from attachd.db.agents import host_leases, machines
from attachd.db.agents.host_leases import RuleRow
from attachd.db.attachments import statements
from attachd.db.engine import paging, session
from attachd.db.engine.compiled import CompiledSelect
from attachd.db.engine.retry import retried
from attachd.db.row_types import AgentRow, AttachmentRow, MachineRow
from attachd.host_identity import HostIdentity
from attachd.states import WITH_ACCESS

_AGENTS = models.agents
_ATTACHMENTS = models.attachments
_VOLUMES = models.volumes

STATES: Final = ("up", "down", "new", "conflict")
"""What :func:`state` returns."""
MAX_REPORTED: Final = 16
"""How many initiators and machine ids an agent may report, and its host keep by its reports."""


def digest(key: str) -> str:
    """Return the stored digest of a key; the key is long and random, so one round is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


@retried
def create(host: str, key: str) -> bool:
    """Register a host; False if it is registered already, with any key.

    Its reports are believed as those of others, after the database was restored.

    :raises Conflict: it is registered under another spelling of its name
    """
    latest = session.fetch_one(sa.select(sa.func.max(_AGENTS.c.believed_until).label("until")))
    values = {
        "host": host,
        "normal_name": host_identity.normal_name(host),
        "key_digest": digest(key),
        "believed_until": latest and latest["until"],
    }
    try:
        session.write(sa.insert(_AGENTS).values(values))
    except db_exception.DBDuplicateEntry:
        same = _AGENTS.c.normal_name == values["normal_name"]
        known = session.fetch_one(sa.select(_AGENTS.c.host).where(same), AgentRow)
        if known is not None and known["host"] != host:
            reason = f"Host {host} is registered as {known['host']}."
            raise exception.Conflict(reason=reason) from None
        return False
    return True


@retried
def _delete(host: str) -> bool:
    """Delete a host and its key; False if it is not registered."""
    with session.writer() as connection:
        return _delete_in(connection, host)


def _delete_in(connection: sa.Connection, host: str) -> bool:
    host_identities.release_in(connection, host)
    return connection.execute(sa.delete(_AGENTS).where(_AGENTS.c.host == host)).rowcount == 1


@retried
def get(host: str) -> AgentRow:
    """Return a host.

    :returns: the row, without the digest, and ``alive``
    :raises AgentNotFound: it is not registered
    """
    row = session.fetch_one(sa.select(_AGENTS).where(_AGENTS.c.host == host), AgentRow)
    if row is None:
        raise exception.AgentNotFound(host=host)
    return to_row(row)


@retried
def list_all() -> list[AgentRow]:
    """Return all hosts, by name; rows as of :func:`get`."""
    rows = session.fetch_all(sa.select(_AGENTS).order_by(_AGENTS.c.host), AgentRow)
    return [to_row(row) for row in rows]


@retried
def list_named(hosts: Collection[str]) -> list[AgentRow]:
    """Return some hosts, by name; rows as of :func:`get`."""
    statement = sa.select(_AGENTS).where(_AGENTS.c.host.in_(hosts)).order_by(_AGENTS.c.host)
    return [to_row(row) for row in session.fetch_all(statement, AgentRow)]


@retried
def list_seen_at(hosts: Collection[str]) -> dict[str, datetime.datetime | None]:
    """Return when the agents of some hosts have reported last, by host."""
    statement = sa.select(_AGENTS.c.host, _AGENTS.c.seen_at).where(_AGENTS.c.host.in_(hosts))
    with session.reader() as connection:
        return {row.host: row.seen_at for row in connection.execute(statement)}


class DeviceReportRow(TypedDict):
    """What the agent of a host has reported last of the devices that it makes.

    :ivar alive: as of :func:`get`
    """

    host: str
    devices: list[dict[str, Any]] | None
    error: str | None
    seen_at: datetime.datetime | None
    alive: NotRequired[bool]


@retried
def list_reports(hosts: Collection[str]) -> dict[str, DeviceReportRow]:
    """Return the last reports of some hosts, by host; one that is not registered is missing."""
    columns = (_AGENTS.c[name] for name in ("host", "devices", "error", "seen_at"))
    statement = sa.select(*columns).where(_AGENTS.c.host.in_(hosts))
    rows = session.fetch_all(statement, DeviceReportRow)
    for row in rows:
        row["alive"] = _is_alive(row["seen_at"])
    return {row["host"]: row for row in rows}


class Filters(TypedDict, total=False):
    """Filters of a list of hosts; an absent key filters nothing.

    :ivar state: as of :func:`state`
    :ivar name: a text that the name of the host contains, in any case of letters
    :ivar in_trouble: whether the agent is down or in conflict, or reports an error
    """

    state: str
    name: str
    in_trouble: bool


@retried
def page(filters: Filters, page: paging.NamePage) -> list[AgentRow]:
    """Return a page of hosts, by name; rows as of :func:`get`."""
    statement = sa.select(_AGENTS).where(*_conditions(filters))
    rows = session.fetch_all(paging.select_by_name(statement, _AGENTS.c.host, page), AgentRow)
    return [to_row(row) for row in rows]


@retried
def count(filters: Filters) -> int:
    """Return the number of hosts on all pages."""
    statement = sa.select(sa.func.count()).select_from(_AGENTS).where(*_conditions(filters))
    with session.reader() as connection:
        return int(connection.execute(statement).scalar_one())


def _conditions(filters: Filters) -> list[paging.Condition]:
    conditions: list[paging.Condition] = []
    if "name" in filters:
        conditions.append(_AGENTS.c.host.icontains(filters["name"], autoescape=True))
    oldest = models.now() - datetime.timedelta(seconds=CONF.agent.down_time)
    single, reported = _AGENTS.c.conflict.is_(None), _AGENTS.c.seen_at.is_not(None)
    by_state = {
        "conflict": ~single,
        "new": single & ~reported,
        "up": single & (_AGENTS.c.seen_at >= oldest),
        "down": single & (_AGENTS.c.seen_at < oldest),
    }
    if "state" in filters:
        conditions.append(by_state[filters["state"]])
    if filters.get("in_trouble"):
        has_error = _AGENTS.c.error.is_not(None)
        conditions.append(sa.or_(by_state["conflict"], by_state["down"], has_error))
    return conditions


@retried
def list_states(hosts: Collection[str]) -> dict[str, str]:
    """Return the states of those of some hosts that have an agent, by host."""
    if not hosts:
        return {}
    columns = (_AGENTS.c.host, _AGENTS.c.conflict, _AGENTS.c.seen_at)
    rows = session.fetch_all(sa.select(*columns).where(_AGENTS.c.host.in_(hosts)), AgentRow)
    for row in rows:
        row["alive"] = _is_alive(row["seen_at"])
    return {row["host"]: state(row) for row in rows}


@retried
def list_hosts(since: datetime.datetime | None = None) -> list[str]:
    """Return the names of the hosts that were registered since a moment; None: of all."""
    statement = sa.select(_AGENTS.c.host)
    if since is not None:
        statement = statement.where(_AGENTS.c.created_at >= since)
    return [row["host"] for row in session.fetch_all(statement, AgentRow)]


def to_row(row: AgentRow) -> AgentRow:
    """Return a row as of :func:`get`: without the digest, and with ``alive``."""
    row.pop("key_digest")
    row["alive"] = _is_alive(row["seen_at"])
    return row


def state(row: AgentRow) -> str:
    """Return the state of an agent: "up", "down", "new" if it has never reported, or "conflict".

    The last one: two machines report for its host.

    :param row: as of :func:`get`
    """
    if row["conflict"] is not None:
        return "conflict"
    if row["seen_at"] is None:
        return "new"
    return "up" if row["alive"] else "down"


def _is_alive(seen_at: datetime.datetime | None) -> bool:
    limit = datetime.timedelta(seconds=CONF.agent.down_time)
    return seen_at is not None and models.now() - seen_at <= limit


def check_key(host: str, key: str) -> MachineRow:
    """Check the key of a host's agent.

    :returns: what is stored about the machine of the host, as of machines.read()
    :raises AgentNotFound: the host is not registered
    :raises Forbidden: the host has another key
    """
    return machines.read(host, digest(key))


@retried
def record_report(
    host: str,
    values: Mapping[str, Any],
    assigned: Collection[str] = frozenset(),
    *,
    host_lease: int | None = None,
    reported_lease: int | None = None,
    read: MachineRow | None = None,
) -> bool:
    """Store the report of a registered host, and renew its lease, unless its end was stored.

    A backend distinguishes hosts by their initiators.  A connector with one of another host is not
    stored, so that nothing can be attached there, and the stored error names that host.  A report
    without a connector, such as because a command hangs, leaves a host its initiators.

    :param values: connector, devices, connector_type, version, error
    :param assigned: the ids of the attachments of the host, as of :func:`list_assigned`
    :param host_lease: how many seconds the lease lasts that the agent is given; None: it is given
        none
    :param reported_lease: how many seconds that lasts by which the agent goes on, as
        host_leases.renew() takes it
    :param read: the row that the report was judged by, as of :func:`check_key`; None: any
    :returns: whether the host counted as lost, and does not any more
    :raises Changed: another report was stored since the row was read
    """
    devices = values.get("devices") or ()
    orphans = [item for item in devices if item["attachment_id"] not in assigned]
    stored = {**values, "orphan_devices": orphans or None, "seen_at": models.now()}
    if stored.get("connector"):
        try:
            stored["initiators"] = _claim_initiators(host, stored["connector"], read)
        except exception.Conflict as error:
            # The next report claims them again.
            stored |= {"connector": None, "error": str(error), "content_number": None}
    stored["error"] = models.truncate_error(stored.get("error"))
    with session.writer() as connection:
        return host_leases.renew(connection, host, stored, host_lease, reported_lease, read)


def _claim_initiators(
    host: str, connector: Mapping[str, Any], row: MachineRow | None = None
) -> list[str]:
    """Return the identifiers that a host reports, after those that are new were claimed for it.

    :raises Conflict: they are another host's, too many, or not those that were assigned to it
    """
    reported = host_identity.of_connector({**connector, "host": host})
    if row is None:
        statement = sa.select(_AGENTS.c.initiators).where(_AGENTS.c.host == host)
        row = session.fetch_one(statement, MachineRow)
    if row is None or reported.identifiers - {*(row["initiators"] or ())}:
        if len(reported.identifiers) > MAX_REPORTED:
            raise exception.Conflict(
                reason=f"Host {host} reports {len(reported.identifiers)} initiators, and may "
                f"report {MAX_REPORTED}."
            )
        _check_assigned(reported)
        host_identities.release_former(reported, MAX_REPORTED)
        # A new host ends what users have claimed before.  One that was taken over ends no use.
        is_new = row is None or row["initiators"] is None
        host_identities.claim(reported, host_identities.Source.AGENT, ends_use=is_new)
    return sorted(reported.identifiers)


def _check_assigned(reported: HostIdentity) -> None:
    """Check that a host reports only initiators of those that an administrator assigned to it."""
    assigned = host_identities.list_assigned(reported.name)
    others = reported.initiators - assigned
    if assigned and others:
        raise exception.Conflict(
            reason=f"Host {reported.name} reports the initiator "
            f"{host_identity.value(min(others))}, which is not assigned to it. An administrator "
            f"assigns it, see POST /hosts/{reported.name}/claim."
        )


@retried
def find_device(host: str, attachment_id: str) -> str | None:
    """Return the path of an attachment's device in the last report of a host.

    :returns: None: the host is not registered, or has reported no device of the attachment
    """
    statement = sa.select(_AGENTS.c.devices).where(_AGENTS.c.host == host)
    row = session.fetch_one(statement, AgentRow)
    devices = [] if row is None else row["devices"] or []
    paths = (item["path"] for item in devices if item["attachment_id"] == attachment_id)
    return next((path for path in paths if path), None)


class AssignedRow(AttachmentRow):
    """An attachment of a host's agent, with columns of its volume and the extra specs of its type.

    :ivar type_specs: None: the volume has no type
    """

    volume_size_gib: int
    volume_shared_targets: bool | None
    volume_host: str | None
    volume_multiattach: bool
    type_specs: dict[str, str | None] | None


@retried
def list_assigned(host: str, attachment_id: str | None = None) -> list[AssignedRow]:
    """Return the attachments of a host's agent, which creates or removes a device for each.

    :param attachment_id: only this one
    :returns: oldest first, with secrets
    """
    return session.fetch_all(
        _select_assigned(_ATTACHMENTS.c.agent, host, attachment_id), AssignedRow
    )


class DesiredRow(RuleRow):
    """What a report of a host needs of one of its attachments, and of its volume."""

    id: str
    volume_id: str
    state: str
    mode: str | None
    generation: int
    secret_generation: int | None
    volume_size_gib: int
    volume_shared_targets: bool | None


_OF_DESIRED_VOLUME: Final = ("size_gib", "shared_targets", "host")
_WITH_ACCESS: Final = _ATTACHMENTS.c.state.in_(
    [sa.literal_column(f"'{state.value}'") for state in sorted(WITH_ACCESS)]
)


def _select_with_volume(
    columns: Iterable[sa.ColumnElement[Any]], of_volume: Iterable[str], agent: sa.Column[Any]
) -> sa.Select[Any]:
    """Select the attachments of an agent with access, oldest first; it is bound as match_host.

    :param columns: of the attachment
    :param of_volume: columns of its volume, which become ``volume_...``
    :param agent: the column that has the name of the agent
    """
    return (
        sa.select(
            *columns,
            *(_VOLUMES.c[name].label(f"volume_{name}") for name in of_volume),
            statements.TYPE_SPECS,
        )
        .join(_VOLUMES, _VOLUMES.c.id == _ATTACHMENTS.c.volume_id)
        .where(agent == sa.bindparam("match_host"), _WITH_ACCESS)
        .order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)
    )


def _select_desired(agent: sa.Column[Any]) -> CompiledSelect[DesiredRow]:
    names = ("id", "volume_id", "state", "mode", "generation", "secret_generation")
    columns = (_ATTACHMENTS.c[name] for name in names)
    return CompiledSelect(_select_with_volume(columns, _OF_DESIRED_VOLUME, agent), DesiredRow)


_DESIRED: Final = _select_desired(_ATTACHMENTS.c.agent)
_DESIRED_SECRETS: Final = _select_desired(_ATTACHMENTS.c.secret_agent)


@retried
def list_desired(host: str) -> list[DesiredRow]:
    """Return the attachments as of :func:`list_assigned`, without what no report needs."""
    with session.reader() as connection:
        return _DESIRED.fetch_all(connection, {"match_host": host})


@retried
def list_desired_secrets(host: str) -> list[DesiredRow]:
    """Return the attachments as of :func:`list_secrets`, without what no report needs."""
    with session.reader() as connection:
        return _DESIRED_SECRETS.fetch_all(connection, {"match_host": host})


@retried
def list_secrets(host: str, attachment_id: str | None = None) -> list[AssignedRow]:
    """Return the attachments of Compute for which a host's agent defines a secret of libvirt.

    :param attachment_id: only this one
    :returns: as :func:`list_assigned`
    """
    return session.fetch_all(
        _select_assigned(_ATTACHMENTS.c.secret_agent, host, attachment_id), AssignedRow
    )


def _select_assigned(
    agent: sa.Column[Any], host: str, attachment_id: str | None
) -> sa.Select[Any]:
    names = (*_OF_DESIRED_VOLUME, "multiattach")
    statement = _select_with_volume(_ATTACHMENTS.c, names, agent).params(match_host=host)
    if attachment_id is not None:
        statement = statement.where(_ATTACHMENTS.c.id == attachment_id)
    return statement


def find_secret_agent(connection: sa.Connection, host: str) -> str | None:
    """Return the name of a host if its agent defines secrets of libvirt; None: it does not.

    :param connection: of a transaction
    """
    statement = sa.select(_AGENTS.c.host).where(
        _AGENTS.c.host == host, _AGENTS.c.libvirt_secrets.is_(True)
    )
    found: str | None = connection.execute(statement).scalar()
    return found


@retried
def is_shared(row: AttachmentRow) -> bool:
    """Return whether a host other than that of an agent's attachment may have its device."""
    statement = sa.select(_ATTACHMENTS.c.id).where(
        _ATTACHMENTS.c.volume_id == row["volume_id"],
        _ATTACHMENTS.c.id != row["id"],
        _ATTACHMENTS.c.state.in_(sorted(WITH_ACCESS)),
        sa.or_(_ATTACHMENTS.c.agent.is_(None), _ATTACHMENTS.c.agent != row["agent"]),
    )
    with session.reader() as connection:
        return connection.execute(statement.limit(1)).first() is not None


class Progress(NamedTuple):
    """What is stored about the work of an agent on an attachment.

    :ivar error: the last error that the agent reported; None: none since it was cleared
    :ivar seen_at: when the agent reported last; None: it has not, or was removed
    :ivar is_alive: whether that was lately
    """

    state: str
    error: str | None
    seen_at: datetime.datetime | None
    is_alive: bool


def get_progress(attachment_id: str) -> Progress | None:
    """Return the progress of an attachment; None: it does not exist."""
    return list_progress([attachment_id]).get(attachment_id)


@retried
def list_progress(attachment_ids: Collection[str]) -> dict[str, Progress]:
    """Return the progress of attachments, by id; one that does not exist is missing."""
    columns = _ATTACHMENTS.c
    statement = (
        sa.select(columns.id, columns.state, columns.error, _AGENTS.c.seen_at)
        .outerjoin(_AGENTS, _AGENTS.c.host == columns.agent)
        .where(columns.id.in_(attachment_ids))
    )
    with session.reader() as connection:
        return {
            row.id: Progress(row.state, row.error, row.seen_at, _is_alive(row.seen_at))
            for row in connection.execute(statement)
        }


class SecretProgress(NamedTuple):
    """What is stored about the secret of libvirt that an agent defines for an attachment.

    :ivar host: that of the agent
    :ivar error: the last error that the agent reported; None: none since it was cleared
    """

    host: str
    is_defined: bool
    error: str | None


@retried
def get_secret_progress(attachment_id: str) -> SecretProgress | None:
    """Return the progress of a secret; None: the attachment has none, or its host no access."""
    columns = _ATTACHMENTS.c
    statement = sa.select(
        columns.secret_agent,
        (columns.secret_generation == columns.generation).label("is_defined"),
        columns.error,
    ).where(
        columns.id == attachment_id,
        columns.secret_agent.is_not(None),
        columns.state.in_(sorted(WITH_ACCESS)),
    )
    with session.reader() as connection:
        row = connection.execute(statement).first()
    if row is None:
        return None
    return SecretProgress(row.secret_agent, bool(row.is_defined), row.error)


_MAX_LISTED: Final = 10


def delete(host: str) -> None:
    """Delete a host that has no attachments with an agent.

    :raises AgentNotFound: it is not registered
    :raises Conflict: its agent has attachments; ten of them are named
    """
    if not _delete_unused(host):
        get(host)
        raise _in_use_error(host, list_attachment_ids(host))


def force_delete(host: str) -> None:
    """Delete a host, even with attachments; no other machine proves that their devices are gone.

    Its fence, if there is one, is not lifted by an agent that is registered under its name.

    :raises AgentNotFound: it is not registered
    """
    if not _force_delete(host):
        raise exception.AgentNotFound(host=host)


@retried
def _force_delete(host: str) -> bool:
    origin, removed = _ATTACHMENTS.c.device_origin, machines.REMOVED
    former = sa.func.coalesce(origin, "")
    of_host = sa.and_(_ATTACHMENTS.c.agent == host, ~former.startswith(removed, autoescape=True))
    marked = sa.update(_ATTACHMENTS).where(of_host)
    with session.writer() as connection:
        connection.execute(marked.values(device_origin=sa.literal(removed) + former))
        host_fences.keep_in(connection, host)
        return _delete_in(connection, host)


@retried
def list_attachment_ids(host: str) -> list[str]:
    """Return the ids of the attachments of a host's agent, oldest first."""
    statement = (
        sa.select(_ATTACHMENTS.c.id)
        .where(_ATTACHMENTS.c.agent == host)
        .order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)
    )
    with session.reader() as connection:
        return [str(item) for item in connection.execute(statement).scalars()]


@retried
def _delete_unused(host: str) -> bool:
    with session.writer() as connection:
        # A transaction that is about to give it an attachment is waited for, or waits; see
        # host_limits.py.
        connection.execute(
            sa.select(_AGENTS.c.host).where(_AGENTS.c.host == host).with_for_update()
        )
        if connection.execute(
            sa.select(_ATTACHMENTS.c.id).where(_ATTACHMENTS.c.agent == host).limit(1)
        ).first():
            return False
        return _delete_in(connection, host)


def _in_use_error(host: str, remaining: list[str]) -> exception.Conflict:
    more = f" and {len(remaining) - _MAX_LISTED} more" if len(remaining) > _MAX_LISTED else ""
    return exception.Conflict(
        reason=f"The agent of host {host} has {len(remaining)} attachments: "
        f"{', '.join(remaining[:_MAX_LISTED])}{more}. Delete them first."
    )
