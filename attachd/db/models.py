# SPDX-License-Identifier: Apache-2.0
"""The tables; the migrations are compared with them."""

import datetime
from typing import Any
import uuid

from oslo_utils import timeutils
import sqlalchemy as sa

from attachd.db.columns import (
    MARIADB_OPTIONS,
    AutoIncrementId,
    EncryptedJson,
    EncryptedText,
    Json,
    LongText,
    Moment,
    Uuid,
)
from attachd.linux.boot import boot_clock

ERROR_LENGTH = 1023


class _Clock:
    """The database's time when this machine was booted; None: the database has no own clock."""

    booted_at: datetime.datetime | None = None


_CLOCK_TOLERANCE = datetime.timedelta(seconds=0.5)


def now() -> datetime.datetime:
    """Return the present moment by the database's clock, as all processes store and compare it."""
    if _Clock.booted_at is None:
        return timeutils.utcnow()
    return _Clock.booted_at + _uptime()


def follow_clock(asked_at: float, database_time: datetime.datetime) -> None:
    """Have :func:`now` follow the database's clock, within half a second.

    It goes on by :func:`boot_clock`: it does not matter if this machine's clock is set meanwhile.
    Smaller differences are not corrected: the times of one process stay in their order.

    :param asked_at: by :func:`boot_clock`, just before the database was asked for its time
    """
    half = datetime.timedelta(seconds=boot_clock() - asked_at) / 2
    booted_at = database_time - half - datetime.timedelta(seconds=asked_at)
    known = _Clock.booted_at or timeutils.utcnow() - _uptime()
    changed = abs(booted_at - known) > half + _CLOCK_TOLERANCE
    _Clock.booted_at = booted_at if changed else known


def _uptime() -> datetime.timedelta:
    return datetime.timedelta(seconds=boot_clock())


def new_id() -> str:
    """Generate the id of a new row."""
    return str(uuid.uuid4())


def truncate_error(error: str | None) -> str | None:
    """Return an error message in one line of printable text, cut to its column's length.

    Hosts and backends can write any text into it, and names of files may be invalid text.
    """
    return error and printable(" ".join(error.split()))[:ERROR_LENGTH]


def printable(text: str) -> str:
    """Escape the characters of a text that would control a terminal or a log."""
    if text.isprintable():
        return text
    escaped = (char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return "".join(escaped)


def timestamps() -> tuple[sa.Column[datetime.datetime], sa.Column[datetime.datetime]]:
    """Return the columns for the times of creation and of the last change."""
    return (
        sa.Column("created_at", Moment, nullable=False, default=now),
        sa.Column("updated_at", Moment, onupdate=now),
    )


METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

qos_specs = sa.Table(
    "qos_specs",
    METADATA,
    sa.Column("id", Uuid, primary_key=True, default=new_id),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    # who enforces them: front-end, back-end or both
    sa.Column("consumer", sa.String(16), nullable=False),
    sa.Column("specs", Json, nullable=False, default=dict),
    *timestamps(),
    **MARIADB_OPTIONS,
)

volume_types = sa.Table(
    "volume_types",
    METADATA,
    sa.Column("id", Uuid, primary_key=True, default=new_id),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    sa.Column("description", sa.String(255)),
    sa.Column("is_public", sa.Boolean, nullable=False, default=True),
    sa.Column("extra_specs", Json, nullable=False, default=dict),
    sa.Column("qos_specs_id", Uuid, sa.ForeignKey("qos_specs.id")),
    *timestamps(),
    sa.Index(None, "qos_specs_id"),
    **MARIADB_OPTIONS,
)

volume_type_access = sa.Table(
    "volume_type_access",
    METADATA,
    sa.Column(
        "volume_type_id",
        Uuid,
        sa.ForeignKey("volume_types.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("project_id", sa.String(64), primary_key=True),
    **MARIADB_OPTIONS,
)

default_volume_types = sa.Table(
    "default_volume_types",
    METADATA,
    sa.Column("project_id", sa.String(64), primary_key=True),
    # Without a cascade: a project's default type cannot be deleted.
    sa.Column("volume_type_id", Uuid, sa.ForeignKey("volume_types.id"), nullable=False),
    sa.Index(None, "volume_type_id"),
    **MARIADB_OPTIONS,
)


def backend_of(host: str | None) -> str | None:
    """Return ``host@backend`` of ``host@backend#pool``."""
    return host.partition("#")[0] if host else None


def _backend_host_of_new(context: Any) -> str | None:
    """Return the value of the column backend_host of a row that is inserted."""
    return backend_of(context.get_current_parameters().get("host"))


volumes = sa.Table(
    "volumes",
    METADATA,
    sa.Column("id", Uuid, primary_key=True, default=new_id),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("user_id", sa.String(64)),
    sa.Column("name", sa.String(255)),
    sa.Column("description", sa.String(255)),
    sa.Column("size_gib", sa.Integer, nullable=False),
    # the size after the extend that is in progress
    sa.Column("new_size_gib", sa.Integer),
    sa.Column("state", sa.String(32), nullable=False),
    sa.Column("status", sa.String(32), nullable=False),
    sa.Column("attach_status", sa.String(32), nullable=False, default="detached"),
    # the number of its attachments that are about to be detached (os-begin_detaching)
    sa.Column("pending_detaches", sa.Integer, nullable=False, default=0),
    sa.Column("multiattach", sa.Boolean, nullable=False, default=False),
    # whether hosts have to take turns with its connections; None: depends on the connector
    sa.Column("shared_targets", sa.Boolean),
    sa.Column("bootable", sa.Boolean, nullable=False, default=False),
    sa.Column("volume_type_id", Uuid, sa.ForeignKey("volume_types.id")),
    sa.Column("availability_zone", sa.String(255)),
    # host@backend#pool, chosen at creation; host@backend is the RPC server
    sa.Column("host", sa.String(255)),
    # the host@backend of host
    sa.Column("backend_host", sa.String(255), default=_backend_host_of_new),
    sa.Column("provider", Json, nullable=False, default=dict),
    # the source of a clone, or of a volume that was made of a snapshot
    sa.Column("source_volid", Uuid),
    sa.Column("snapshot_id", Uuid),
    # the images whose data it has got, or is to get, and that it is uploaded to
    sa.Column("image_id", Uuid),
    sa.Column("upload_image_id", Uuid),
    # shown among the metadata, but not set there by users: readonly and the like
    sa.Column("admin_metadata", Json, nullable=False, default=dict),
    # host@backend whose manager has work to do on this row; None: no work is in progress
    sa.Column("owner", sa.String(255)),
    sa.Column("error", sa.String(ERROR_LENGTH)),
    sa.Column("launched_at", Moment),
    *timestamps(),
    # the process that works on it, or worked when it died; None: none; and how often the lease was
    # acquired, which fences off earlier holders
    sa.Column("lease_holder", Uuid),
    sa.Column("lease_generation", sa.Integer, nullable=False, default=0, server_default="0"),
    # the driver's own secrets of the volume
    sa.Column("provider_secrets", EncryptedJson),
    sa.Index(None, "project_id", "created_at", "id"),
    # for the usage of a project by entries alone
    sa.Index(
        "ix_volumes_usage",
        *("project_id", "volume_type_id", "state", "size_gib", "new_size_gib"),
    ),
    sa.Index(None, "created_at", "id"),
    sa.Index(None, "volume_type_id"),
    sa.Index(None, "host"),
    sa.Index(None, "backend_host", "id"),
    sa.Index(None, "name"),
    sa.Index(None, "user_id"),
    # with the state, and with the kind and condition below, for counts by entries alone
    sa.Index(None, "status", "state"),
    sa.Index(None, "owner"),
    sa.Index(None, "lease_holder"),
    sa.Index(None, "source_volid"),
    sa.Index(None, "snapshot_id"),
    **MARIADB_OPTIONS,
)

snapshots = sa.Table(
    "snapshots",
    METADATA,
    sa.Column("id", Uuid, primary_key=True, default=new_id),
    # Without a cascade: a volume is not removed before its snapshots.
    sa.Column("volume_id", Uuid, sa.ForeignKey("volumes.id"), nullable=False),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("user_id", sa.String(64)),
    sa.Column("name", sa.String(255)),
    sa.Column("description", sa.String(255)),
    # of the volume when the snapshot was requested; the type changes with that of the volume, as
    # long as both are of one project
    sa.Column("size_gib", sa.Integer, nullable=False),
    sa.Column("volume_type_id", Uuid, sa.ForeignKey("volume_types.id")),
    sa.Column("bootable", sa.Boolean, nullable=False, default=False),
    sa.Column("state", sa.String(32), nullable=False),
    # per cent that are copied
    sa.Column("progress", sa.Integer, nullable=False, default=0),
    sa.Column("provider", Json, nullable=False, default=dict),
    sa.Column("provider_secrets", EncryptedJson),
    # the next four as those of volumes
    sa.Column("owner", sa.String(255)),
    sa.Column("error", sa.String(ERROR_LENGTH)),
    sa.Column("lease_holder", Uuid),
    sa.Column("lease_generation", sa.Integer, nullable=False, default=0, server_default="0"),
    *timestamps(),
    sa.Index(None, "project_id", "created_at", "id"),
    sa.Index(None, "created_at", "id"),
    # for the usage of a project by entries alone
    sa.Index("ix_snapshots_usage", "project_id", "volume_type_id", "size_gib"),
    sa.Index(None, "volume_type_id"),
    sa.Index(None, "volume_id", "state"),
    *(sa.Index(None, name) for name in ("name", "user_id", "owner", "lease_holder")),
    **MARIADB_OPTIONS,
)

snapshot_metadata = sa.Table(
    "snapshot_metadata",
    METADATA,
    sa.Column(
        "snapshot_id", Uuid, sa.ForeignKey("snapshots.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("value", sa.String(255), nullable=False),
    sa.Index(None, "key", "value"),
    **MARIADB_OPTIONS,
)

# Of the volume when the snapshot was requested.
snapshot_image_metadata = sa.Table(
    "snapshot_image_metadata",
    METADATA,
    sa.Column(
        "snapshot_id", Uuid, sa.ForeignKey("snapshots.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("value", LongText, nullable=False),
    **MARIADB_OPTIONS,
)

# Offers of volumes to other projects: a row is there as long as its volume awaits its transfer.
volume_transfers = sa.Table(
    "volume_transfers",
    METADATA,
    sa.Column("id", Uuid, primary_key=True, default=new_id),
    sa.Column(
        "volume_id",
        Uuid,
        sa.ForeignKey("volumes.id", ondelete="CASCADE"),
        nullable=False,
        unique=True,
    ),
    # of the volume
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("name", sa.String(255)),
    # of the key: a reader of the table cannot accept a transfer
    sa.Column("salt", sa.String(64), nullable=False),
    sa.Column("key_digest", sa.String(64), nullable=False),
    # whether the snapshots of the volume stay in its former project
    sa.Column("no_snapshots", sa.Boolean, nullable=False, default=False),
    *timestamps(),
    sa.Index(None, "project_id", "created_at", "id"),
    sa.Index(None, "created_at", "id"),
    **MARIADB_OPTIONS,
)

volume_metadata = sa.Table(
    "volume_metadata",
    METADATA,
    sa.Column(
        "volume_id", Uuid, sa.ForeignKey("volumes.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("value", sa.String(255), nullable=False),
    sa.Index(None, "key", "value"),
    **MARIADB_OPTIONS,
)

volume_image_metadata = sa.Table(
    "volume_image_metadata",
    METADATA,
    sa.Column(
        "volume_id", Uuid, sa.ForeignKey("volumes.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("value", LongText, nullable=False),
    sa.Index(None, "key"),
    **MARIADB_OPTIONS,
)

attachments = sa.Table(
    "attachments",
    METADATA,
    sa.Column("id", Uuid, primary_key=True, default=new_id),
    sa.Column("volume_id", Uuid, sa.ForeignKey("volumes.id"), nullable=False),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("user_id", sa.String(64)),
    sa.Column("instance_uuid", Uuid),
    # states.AttachmentKind; and for a connection, the attachment that uses it
    sa.Column("kind", sa.String(16), nullable=False, default="attachment"),
    sa.Column("parent_id", Uuid),
    sa.Column("state", sa.String(32), nullable=False),
    # rw or ro: the mode of its host, once that is known; and the requested mode, if any
    sa.Column("mode", sa.String(2)),
    sa.Column("asked_mode", sa.String(2)),
    # from the connector, for searches
    sa.Column("host", sa.String(255)),
    sa.Column("mountpoint", sa.String(255)),
    sa.Column("connector", Json),
    sa.Column("connection_info", EncryptedJson),
    # equal for attachments that share one connection between a host and its backend
    sa.Column("connection_key", sa.String(64)),
    # generated before the first call of the driver, so that a repeated call uses the same
    sa.Column("secret", EncryptedText),
    # how often work was started on it: fences off a process that was believed dead
    sa.Column("generation", sa.Integer, nullable=False, default=0),
    sa.Column("error", sa.String(ERROR_LENGTH)),
    sa.Column("attached_at", Moment),
    *timestamps(),
    # when a reservation without a connection expires; None: never
    sa.Column("expires_at", Moment),
    # the host whose agent creates the device, and the path that it reported; None: the caller
    # creates the device
    sa.Column("agent", sa.String(255)),
    sa.Column("device", sa.String(255)),
    # whether a service with a service token made it; None: a user did
    sa.Column("by_service", sa.Boolean),
    # the driver's own secrets of the connection
    sa.Column("provider_secrets", EncryptedJson),
    # whether it is fenced: its removal needs the backend's proof that its host has no access
    sa.Column("fenced", sa.Boolean),
    # the state of its condition when it was observed last, and all that was observed; NULL: never
    sa.Column("condition_state", sa.String(16)),
    sa.Column("observed", Json),
    # the attachment of another host that this one takes over from, as long as the move is open
    sa.Column("move_from", Uuid),
    # whether its export shares no connection with others; None: no driver was called
    sa.Column("own_connection", sa.Boolean),
    # of host and connector, to find the attachments of a host: see host_identity.columns()
    sa.Column("host_key", sa.String(255)),
    sa.Column("initiator_key", sa.String(255)),
    # which agent has reported the device, as of agents/machines.py; NULL: not known
    sa.Column("device_origin", sa.String(96)),
    # the host whose agent defines a secret of libvirt for it, and of which generation; for Compute
    sa.Column("secret_agent", sa.String(255)),
    sa.Column("secret_generation", sa.Integer),
    sa.Index(None, "volume_id"),
    # with the parent, for counts of a project by entries alone
    sa.Index(None, "project_id", "created_at", "id", "parent_id"),
    sa.Index(None, "created_at", "id"),
    sa.Index(None, "instance_uuid"),
    sa.Index(None, "host"),
    sa.Index(None, "state", "kind", "condition_state"),
    sa.Index(None, "connection_key"),
    sa.Index(None, "expires_at"),
    sa.Index(None, "agent"),
    sa.Index(None, "secret_agent"),
    sa.Index(None, "move_from"),
    sa.Index(None, "host_key"),
    sa.Index(None, "initiator_key"),
    **MARIADB_OPTIONS,
)

services = sa.Table(
    "services",
    METADATA,
    sa.Column("id", Uuid, primary_key=True, default=new_id),
    sa.Column("binary", sa.String(64), nullable=False),
    # host@backend for a manager's backend
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("availability_zone", sa.String(255), nullable=False),
    sa.Column("disabled", sa.Boolean, nullable=False, default=False),
    sa.Column("disabled_reason", sa.String(255)),
    sa.Column("frozen", sa.Boolean, nullable=False, default=False),
    # whether the backend's driver is ready, and why it is not
    sa.Column("up", sa.Boolean, nullable=False, default=False),
    sa.Column("error", sa.String(ERROR_LENGTH)),
    # the capabilities that the driver reported last, as a dict
    sa.Column("report", Json),
    sa.Column("seen_at", Moment, nullable=False, default=now),
    *timestamps(),
    # the oldest versions among its processes, and when such a process reported last; NULL: of a
    # release that did not report versions
    sa.Column("rpc_version", sa.String(16)),
    sa.Column("object_version", sa.String(255)),
    sa.Column("versioned_at", Moment),
    sa.UniqueConstraint("binary", "host"),
    **MARIADB_OPTIONS,
)

# The identity of the storage of each pool of a backend, as its driver reads it: where the volumes
# of that pool are.
storages = sa.Table(
    "storages",
    METADATA,
    # host@backend
    sa.Column("backend", sa.String(255), primary_key=True),
    # the name of the backend, if it reports no pools
    sa.Column("pool", sa.String(255), primary_key=True),
    sa.Column("storage_id", sa.String(255), nullable=False),
    **MARIADB_OPTIONS,
)

# The living manager processes. A process that is not in it is dead, and never returns under this
# id: other processes may take over its leases.
members = sa.Table(
    "members",
    METADATA,
    sa.Column("id", Uuid, primary_key=True),
    # host name and process id, for operators
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("started_at", Moment, nullable=False, default=now),
    # by the database's clock, as all values that it is compared with
    sa.Column("seen_at", Moment, nullable=False),
    # how many consumers of the queues of agents' calls it has; NULL: it serves no agents
    sa.Column("consumers", sa.Integer),
    # when the last probe was sent that it has answered: of those to all, and by the common queue
    sa.Column("probed_at", Moment),
    sa.Column("queue_probed_at", Moment),
    **MARIADB_OPTIONS,
)

# The hosts that run an agent, which attaches volumes by itself.
agents = sa.Table(
    "agents",
    METADATA,
    sa.Column("host", sa.String(255), primary_key=True),
    # what all spellings of the name have in common that differ in case only
    sa.Column("normal_name", sa.String(255), nullable=False),
    # of the agent's key: a reader of the table cannot use it
    sa.Column("key_digest", sa.String(64), nullable=False),
    # the agent's last report; NULL: it has not reported yet
    sa.Column("connector", Json),
    sa.Column("devices", Json),
    sa.Column("connector_type", sa.String(32)),
    sa.Column("version", sa.String(32)),
    sa.Column("error", sa.String(ERROR_LENGTH)),
    sa.Column("seen_at", Moment),
    *timestamps(),
    # those of the last connector that was accepted
    sa.Column("initiators", Json),
    # those of its devices that had no attachment; NULL: none
    sa.Column("orphan_devices", Json),
    # of the operating system, drawn at each start; NULL: the agent does not report it
    sa.Column("boot_id", sa.String(64)),
    # when its lease was renewed, by the database's clock; NULL: by no release that has leases
    sa.Column("heartbeat_at", Moment),
    # the most seconds that it lasts, as far as the agent may know; NULL: it was given none
    sa.Column("lease", sa.Integer),
    # from when on it counts as silent, by the same clock; NULL: it has not reported, or is fenced
    sa.Column("silent_at", Moment),
    # since when the host counts as lost, and what was done; NULL: it does not
    sa.Column("lost_at", Moment),
    sa.Column("lost_action", sa.String(16)),
    # of its last report: the machine, the token that the next one has to know, the process, how
    # many processes there were before, and its number in that process; see agents/machines.py
    sa.Column("machine_id", sa.String(64)),
    sa.Column("report_token", sa.String(64)),
    sa.Column("report_process", sa.String(64)),
    sa.Column("report_start", sa.BigInteger),
    sa.Column("report_number", sa.BigInteger),
    # the number of the one, of the same process, that had what is stored; NULL: the next one has
    # to have everything
    sa.Column("content_number", sa.BigInteger),
    # how often the journal was lost while the machine ran on
    sa.Column("journal_losses", sa.Integer),
    # when the machine reported last before it was started again, by the database's clock
    sa.Column("former_boot_at", Moment),
    # what is known of another machine that reports for the host; NULL: there is none
    sa.Column("conflict", Json),
    # the boot ids whose reports an administrator has refused; NULL: none
    sa.Column("refused_boots", Json),
    # until when its report counts for attachments that are not in the database; NULL: it does not
    sa.Column("believed_until", Moment),
    # whether it defines secrets of libvirt
    sa.Column("libvirt_secrets", sa.Boolean),
    # what its host has that others have made; NULL: it does not report that
    sa.Column("observed", Json),
    # how many attachments its host can take; NULL: any number
    sa.Column("max_attachments", sa.Integer),
    sa.UniqueConstraint("normal_name"),
    sa.Index(None, "believed_until"),
    sa.Index(None, "created_at"),
    sa.Index(None, "silent_at"),
    sa.Index(None, "lease"),
    sa.Index(None, "lost_action", "lost_at"),
    **MARIADB_OPTIONS,
)

# The hosts that were ever fenced or drained; while they are, nothing is attached there.
host_fences = sa.Table(
    "host_fences",
    METADATA,
    sa.Column("host", sa.String(255), primary_key=True),
    # how often it was fenced
    sa.Column("generation", sa.Integer, nullable=False, default=0),
    # since when, why and by whom; NULL: it is not fenced any more
    sa.Column("fenced_at", Moment),
    sa.Column("reason", sa.String(255)),
    sa.Column("user_id", sa.String(64)),
    # of the host's agent when it was fenced; NULL: not known
    sa.Column("boot_id", sa.String(64)),
    *timestamps(),
    # since when the host is drained, why and by whom; NULL: it is not
    sa.Column("drained_at", Moment),
    sa.Column("drain_reason", sa.String(255)),
    sa.Column("drain_user_id", sa.String(64)),
    # the attachments that are to be detached from it: the ids of their volumes, by their own ids
    sa.Column("drain_detach", Json),
    # whether the end of the drain was notified: it waits for nothing more
    sa.Column("drain_ended", sa.Boolean),
    # when it was fenced last, also after that has ended
    sa.Column("last_fenced_at", Moment),
    # the last notification about that fence, as of host_fences.Notified, and when a process may
    # send the next one: until then another one does; NULL: none, and at once
    sa.Column("notified", sa.String(16)),
    sa.Column("notify_after", Moment),
    # how the last fence ends, as of host_fences.Lift
    sa.Column("lift", sa.String(16)),
    # host_identity.host_key() of its name
    sa.Column("host_key", sa.String(255)),
    sa.Index(None, "host_key"),
    sa.Index(None, "fenced_at"),
    sa.Index(None, "drained_at"),
    **MARIADB_OPTIONS,
)

# The host of each initiator and machine id that a connector or an agent has named.
host_identities = sa.Table(
    "host_identities",
    METADATA,
    # as of host_identity.identifier()
    sa.Column("identifier", sa.String(255), primary_key=True),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("host_key", sa.String(255), nullable=False),
    # who has said so, as of host_identities.Source
    sa.Column("source", sa.String(16), nullable=False),
    *timestamps(),
    sa.Index(None, "host_key"),
    **MARIADB_OPTIONS,
)

quotas = sa.Table(
    "quotas",
    METADATA,
    sa.Column("project_id", sa.String(64), primary_key=True),
    # volumes, gigabytes, per_volume_gigabytes, volumes_TYPE, gigabytes_TYPE and the like
    sa.Column("resource", sa.String(300), primary_key=True),
    # -1: unlimited
    sa.Column("hard_limit", sa.Integer, nullable=False),
    *timestamps(),
    **MARIADB_OPTIONS,
)

quota_classes = sa.Table(
    "quota_classes",
    METADATA,
    sa.Column("class_name", sa.String(255), primary_key=True),
    sa.Column("resource", sa.String(300), primary_key=True),
    sa.Column("hard_limit", sa.Integer, nullable=False),
    *timestamps(),
    **MARIADB_OPTIONS,
)

# One row for each project that has ever had a volume: locked while its usage is counted and a
# volume is added, so that two requests cannot both take the rest of a quota.
quota_locks = sa.Table(
    "quota_locks",
    METADATA,
    sa.Column("project_id", sa.String(64), primary_key=True),
    **MARIADB_OPTIONS,
)

# One row for each host that has ever been counted: as quota_locks.
host_locks = sa.Table(
    "host_locks",
    METADATA,
    sa.Column("host", sa.String(255), primary_key=True),
    **MARIADB_OPTIONS,
)

messages = sa.Table(
    "messages",
    METADATA,
    sa.Column("id", Uuid, primary_key=True, default=new_id),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("request_id", sa.String(64)),
    sa.Column("resource_type", sa.String(64), nullable=False),
    sa.Column("resource_uuid", Uuid),
    # the action and its outcome, as numbers of three digits
    sa.Column("action_id", sa.String(10), nullable=False),
    sa.Column("detail_id", sa.String(10), nullable=False),
    # values for the placeholders of the message, by name; None: none
    sa.Column("details", Json),
    sa.Column("event_id", sa.String(255), nullable=False),
    sa.Column("message_level", sa.String(16), nullable=False),
    sa.Column("expires_at", Moment, nullable=False),
    *timestamps(),
    sa.Index(None, "project_id", "created_at", "id"),
    sa.Index(None, "resource_uuid"),
    sa.Index(None, "expires_at"),
    **MARIADB_OPTIONS,
)

# Events that Compute is still to be sent, one for each server, event and tag.
compute_events = sa.Table(
    "compute_events",
    METADATA,
    # another one for each event: a sender never removes the one that replaced its own
    sa.Column("id", Uuid, primary_key=True, default=new_id),
    sa.Column("volume_id", Uuid, nullable=False),
    sa.Column("server_id", Uuid, nullable=False),
    # as Compute takes them
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("tag", sa.String(255), nullable=False),
    # how often it was sent, and when a process may send it again; until then another one does
    sa.Column("attempts", sa.Integer, nullable=False, default=0),
    sa.Column("next_attempt_at", Moment, nullable=False),
    # why the last attempt failed; NULL: there was none
    sa.Column("error", sa.String(ERROR_LENGTH)),
    sa.Column("created_at", Moment, nullable=False, default=now),
    sa.UniqueConstraint("server_id", "name", "tag"),
    sa.Index(None, "volume_id"),
    sa.Index(None, "next_attempt_at"),
    **MARIADB_OPTIONS,
)

# Requests with an Idempotency-Key, each to be executed once. The key is stored as a hash: a reader
# of the table cannot use it.
# Attachments of which either all are attached in the end or none: a row is there until all are.
attachment_sets = sa.Table(
    "attachment_sets",
    METADATA,
    sa.Column("id", Uuid, primary_key=True),
    sa.Column("attachment_ids", Json, nullable=False),
    # until then the process of the API that attaches them renews it; then a manager undoes the set
    sa.Column("expires_at", Moment, nullable=False),
    # whether they are being removed again
    sa.Column("undoing", sa.Boolean, nullable=False),
    sa.Column("created_at", Moment, nullable=False, default=now),
    sa.Index(None, "expires_at"),
    **MARIADB_OPTIONS,
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    METADATA,
    # of project, user and key; and of the content of the request
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    # generated with the row, as the id of the resource; and whether that has been created
    sa.Column("resource_id", Uuid, nullable=False),
    sa.Column("made", sa.Boolean, nullable=False, default=False),
    # the final answer, once there is one, without secrets
    sa.Column("status", sa.Integer),
    sa.Column("answer", Json),
    sa.Column("expires_at", Moment, nullable=False),
    sa.Column("created_at", Moment, nullable=False, default=now),
    sa.Index(None, "expires_at"),
    **MARIADB_OPTIONS,
)

# Events of attachments, for watchers and for later queries.
events = sa.Table(
    "events",
    METADATA,
    sa.Column("id", AutoIncrementId, primary_key=True, autoincrement=True),
    # its number among all events; NULL: not assigned yet
    sa.Column("revision", sa.BigInteger, unique=True),
    sa.Column("created_at", Moment, nullable=False, default=now),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("volume_id", Uuid, nullable=False),
    sa.Column("attachment_id", Uuid, nullable=False),
    # one of events.TYPES, and the details as of events.record()
    sa.Column("type", sa.String(32), nullable=False),
    sa.Column("details", Json, nullable=False),
    sa.Index(None, "attachment_id"),
    sa.Index(None, "created_at"),
    sa.Index(None, "project_id", "revision"),
    # for lists of deleted attachments: all, of a project, of a volume
    sa.Index(None, "type", "created_at", "id"),
    sa.Index(None, "project_id", "type", "created_at", "id"),
    sa.Index(None, "volume_id", "type", "created_at", "id"),
    **MARIADB_OPTIONS,
)

# One row: the last revision that was assigned, and the last one that was purged.
event_sequence = sa.Table(
    "event_sequence",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("assigned", sa.BigInteger, nullable=False),
    sa.Column("purged", sa.BigInteger, nullable=False),
    **MARIADB_OPTIONS,
)

# One row: the last count of the rows of large tables, and since when a process counts again.
row_counts = sa.Table(
    "row_counts",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("counted_at", Moment),
    sa.Column("claimed_at", Moment),
    sa.Column("numbers", Json),
    **MARIADB_OPTIONS,
)


def on_backend(backend: str) -> sa.ColumnElement[bool]:
    """Match the volumes of ``host@backend`` in all its pools."""
    return volumes.c.backend_host == backend
