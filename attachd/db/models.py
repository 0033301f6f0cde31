# SPDX-License-Identifier: Apache-2.0
"""The tables; db's functions query them, the migrations are compared with them."""

import datetime
import functools
import json
from typing import Any
import uuid

from oslo_utils import timeutils
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from attachd.db.secrets import encryption
from attachd.db.secrets.encryption import Encrypted

ERROR_LENGTH = 1023
Uuid = sa.String(36)
Moment = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
"""UTC without a zone, to the microsecond: lists are sorted by it."""
AutoIncrementId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""Of a row that is numbered as it comes; in SQLite every integer is big, and only this one counts
by itself."""
LongText = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


_to_json = json.JSONEncoder(separators=(",", ":")).encode


class Json(sa.TypeDecorator[Any]):
    """Any JSON value, kept as text: MariaDB's own JSON refuses what is nested 32 deep.

    The text is ASCII, so that even half a surrogate pair, or a NUL, which JSON allows, is
    stored and read as it came.  None is NULL.
    """

    impl = LongText
    cache_ok = True

    def process_bind_param(self, value: Any, _dialect: sa.Dialect) -> str | None:
        """Turn a value into JSON text."""
        return None if value is None else _to_json(value)

    def process_result_value(self, value: str | None, _dialect: sa.Dialect) -> Any:
        """Turn JSON text into a value."""
        return None if value is None else json.loads(value)


# Strings differ also when only case or accents do, as on the other databases.
MARIADB_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def now() -> datetime.datetime:
    """Return the present moment as the tables store it."""
    return timeutils.utcnow()


def new_id() -> str:
    """Draw the id of a new row."""
    return str(uuid.uuid4())


def truncate_error(error: str | None) -> str | None:
    """Cut an error's text to what its column holds; names of files in it may be no text."""
    return error and error.encode(errors="backslashreplace").decode()[:ERROR_LENGTH]


def timestamps() -> tuple[sa.Column[datetime.datetime], sa.Column[datetime.datetime]]:
    """Return the columns that say when a row was made and changed."""
    return (
        sa.Column("created_at", Moment, nullable=False, default=now),
        sa.Column("updated_at", Moment, onupdate=now),
    )


_ENCRYPTED_LENGTH = 255


class EncryptedJson(Json):
    """Any JSON value, kept as text that is sealed; None is NULL."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        """Seal a value."""
        if isinstance(value, Encrypted):
            return value.text
        text = super().process_bind_param(value, dialect)
        return None if text is None else encryption.encrypt(text)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        """Return a value, or what opens it."""
        read = super().process_result_value
        if value is not None and encryption.is_encrypted(value):
            return Encrypted(value, functools.partial(read, _dialect=dialect))
        return read(value, dialect)


class EncryptedText(sa.TypeDecorator[Any]):
    """A short text that is sealed: up to 64 characters; None is NULL."""

    impl = sa.String(_ENCRYPTED_LENGTH)
    cache_ok = True

    def process_bind_param(self, value: Any, _dialect: sa.Dialect) -> str | None:
        """Seal a text."""
        if isinstance(value, Encrypted):
            return value.text
        return None if value is None else encryption.encrypt(value)

    def process_result_value(self, value: str | None, _dialect: sa.Dialect) -> Any:
        """Return a text, or what opens it."""
        if value is not None and encryption.is_encrypted(value):
            return Encrypted(value, str)
        return value


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
    # who keeps to them: front-end, back-end or both
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

volumes = sa.Table(
    "volumes",
    METADATA,
    sa.Column("id", Uuid, primary_key=True, default=new_id),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("user_id", sa.String(64)),
    sa.Column("name", sa.String(255)),
    sa.Column("description", sa.String(255)),
    sa.Column("size_gib", sa.Integer, nullable=False),
    # the size it is growing to, while it is extending
    sa.Column("new_size_gib", sa.Integer),
    sa.Column("state", sa.String(32), nullable=False),
    sa.Column("status", sa.String(32), nullable=False),
    sa.Column("attach_status", sa.String(32), nullable=False, default="detached"),
    # how many of its attachments somebody has begun to detach (os-begin_detaching)
    sa.Column("pending_detaches", sa.Integer, nullable=False, default=0),
    sa.Column("multiattach", sa.Boolean, nullable=False, default=False),
    # whether hosts have to take turns with its connections; None: whatever they connect with
    sa.Column("shared_targets", sa.Boolean),
    sa.Column("bootable", sa.Boolean, nullable=False, default=False),
    sa.Column("volume_type_id", Uuid, sa.ForeignKey("volume_types.id")),
    sa.Column("availability_zone", sa.String(255)),
    # host@backend#pool, chosen at creation; host@backend is the RPC server
    sa.Column("host", sa.String(255)),
    sa.Column("provider", Json, nullable=False, default=dict),
    # the volume that its data was copied from
    sa.Column("source_volid", Uuid),
    # what the wire shows among the metadata, and users do not set there: readonly and the like
    sa.Column("admin_metadata", Json, nullable=False, default=dict),
    # host@backend that has work to do on this row; None while nothing is under way
    sa.Column("owner", sa.String(255)),
    sa.Column("error", sa.String(ERROR_LENGTH)),
    sa.Column("launched_at", Moment),
    *timestamps(),
    # the process that works on it, or worked when it died; None: nobody; and how many times it
    # changed hands, which fences off whoever had it before
    sa.Column("lease_holder", Uuid),
    sa.Column("lease_generation", sa.Integer, nullable=False, default=0, server_default="0"),
    sa.Index(None, "project_id", "created_at", "id"),
    sa.Index(None, "created_at", "id"),
    sa.Index(None, "volume_type_id"),
    sa.Index(None, "host"),
    sa.Index(None, "name"),
    sa.Index(None, "user_id"),
    sa.Index(None, "status"),
    sa.Index(None, "owner"),
    sa.Index(None, "lease_holder"),
    sa.Index(None, "source_volid"),
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
    # states.AttachmentKind: what it is; and for a connection, the attachment that it serves
    sa.Column("kind", sa.String(16), nullable=False, default="attachment"),
    sa.Column("parent_id", Uuid),
    sa.Column("state", sa.String(32), nullable=False),
    # rw or ro: what its host may do, once that is known; and what was asked for, if it was
    sa.Column("mode", sa.String(2)),
    sa.Column("asked_mode", sa.String(2)),
    # from the connector, for searching
    sa.Column("host", sa.String(255)),
    sa.Column("mountpoint", sa.String(255)),
    sa.Column("connector", Json),
    sa.Column("connection_info", EncryptedJson),
    # equal for attachments that share one connection between a host and its backend
    sa.Column("connection_key", sa.String(64)),
    # drawn before the driver is called first, so that a repeated call uses the same
    sa.Column("secret", EncryptedText),
    # how many times work was begun on it: it fences off a process that was believed dead
    sa.Column("generation", sa.Integer, nullable=False, default=0),
    sa.Column("error", sa.String(ERROR_LENGTH)),
    sa.Column("attached_at", Moment),
    *timestamps(),
    # when a reservation ends that nobody has connected; None: never
    sa.Column("expires_at", Moment),
    # the host whose agent makes the device, and the path that it told; None: its caller does
    sa.Column("agent", sa.String(255)),
    sa.Column("device", sa.String(255)),
    sa.Index(None, "volume_id"),
    sa.Index(None, "project_id", "created_at", "id"),
    sa.Index(None, "created_at", "id"),
    sa.Index(None, "instance_uuid"),
    sa.Index(None, "host"),
    sa.Index(None, "state"),
    sa.Index(None, "connection_key"),
    sa.Index(None, "expires_at"),
    sa.Index(None, "agent"),
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
    # drivers.base.BackendStats as a dict, from the last time that the backend was asked
    sa.Column("report", Json),
    sa.Column("seen_at", Moment, nullable=False, default=now),
    *timestamps(),
    # the oldest that one of its processes speaks, and when such a one said so last; NULL: of a
    # release that did not tell
    sa.Column("rpc_version", sa.String(16)),
    sa.Column("object_version", sa.String(255)),
    sa.Column("versioned_at", Moment),
    sa.UniqueConstraint("binary", "host"),
    **MARIADB_OPTIONS,
)

# The manager processes that live.  Whoever is not in it is dead, and never comes back under this
# id: what it held is anybody's.
members = sa.Table(
    "members",
    METADATA,
    sa.Column("id", Uuid, primary_key=True),
    # host name and process id, for people
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("started_at", Moment, nullable=False, default=now),
    # by the clock of the database, as all that it is compared with
    sa.Column("seen_at", Moment, nullable=False),
    **MARIADB_OPTIONS,
)

# The hosts that connect by themselves what they are told to: each runs an agent.
agents = sa.Table(
    "agents",
    METADATA,
    sa.Column("host", sa.String(255), primary_key=True),
    # of the key that the agent proves itself with: whoever reads the table cannot use it
    sa.Column("key_digest", sa.String(64), nullable=False),
    # what it said of itself last: agent_manager_api.Report; NULL: it has not reported yet
    sa.Column("connector", Json),
    sa.Column("devices", Json),
    sa.Column("connector_type", sa.String(32)),
    sa.Column("version", sa.String(32)),
    sa.Column("error", sa.String(ERROR_LENGTH)),
    sa.Column("seen_at", Moment),
    *timestamps(),
    **MARIADB_OPTIONS,
)

quotas = sa.Table(
    "quotas",
    METADATA,
    sa.Column("project_id", sa.String(64), primary_key=True),
    # volumes, gigabytes, per_volume_gigabytes, volumes_TYPE, gigabytes_TYPE and the like
    sa.Column("resource", sa.String(300), primary_key=True),
    # -1: as much as one likes
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
# volume is added to it, so that two cannot both take what is left.
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
    # what was done, and what went wrong with it, as numbers of three digits
    sa.Column("action_id", sa.String(10), nullable=False),
    sa.Column("detail_id", sa.String(10), nullable=False),
    # what the words of these numbers leave open, by name; None: nothing
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

# What was asked for with an Idempotency-Key, to be done once however often it is asked for.  There
# is no key in it, only its hash: whoever reads the table cannot use it.
idempotency_keys = sa.Table(
    "idempotency_keys",
    METADATA,
    # of project, user and key; and of all that makes the request another one
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    # drawn with the row, and what the resource gets for its id; and whether it did
    sa.Column("resource_id", Uuid, nullable=False),
    sa.Column("made", sa.Boolean, nullable=False, default=False),
    # of the answer, once there is a final one; and what of the answer is no secret
    sa.Column("status", sa.Integer),
    sa.Column("answer", Json),
    sa.Column("expires_at", Moment, nullable=False),
    sa.Column("created_at", Moment, nullable=False, default=now),
    sa.Index(None, "expires_at"),
    **MARIADB_OPTIONS,
)

# What has become of attachments, for those who watch and for whoever asks later.
events = sa.Table(
    "events",
    METADATA,
    sa.Column("id", AutoIncrementId, primary_key=True, autoincrement=True),
    # its place among all that is told; NULL: whoever reads next gives it one
    sa.Column("revision", sa.BigInteger, unique=True),
    sa.Column("created_at", Moment, nullable=False, default=now),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("volume_id", Uuid, nullable=False),
    sa.Column("attachment_id", Uuid, nullable=False),
    # one of db.events.TYPES, and the rest that is known: see db.events.Details
    sa.Column("type", sa.String(32), nullable=False),
    sa.Column("details", Json, nullable=False),
    sa.Index(None, "attachment_id"),
    sa.Index(None, "created_at"),
    **MARIADB_OPTIONS,
)

# One row: the last place that was given, and the last one that is not kept any more.
event_sequence = sa.Table(
    "event_sequence",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("assigned", sa.BigInteger, nullable=False),
    sa.Column("purged", sa.BigInteger, nullable=False),
    **MARIADB_OPTIONS,
)


def on_backend(backend: str) -> sa.ColumnElement[bool]:
    """Match the volumes of ``host@backend``, whatever their pools; case counts everywhere."""
    host, prefix = volumes.c.host, f"{backend}#"
    return sa.or_(host == backend, sa.func.substr(host, 1, len(prefix)) == prefix)


def backend_of(host: str | None) -> str | None:
    """Cut the pool off ``host@backend#pool``."""
    return host.partition("#")[0] if host else None
