# SPDX-License-Identifier: Apache-2.0
"""The tables; db's functions query them, the migrations are compared with them."""

import datetime
import uuid

from oslo_utils import timeutils
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Uuid = sa.String(36)
Moment = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
"""UTC without a zone, to the microsecond: lists are sorted by it."""
ExactString = sa.String(255).with_variant(
    mysql.VARCHAR(255, collation="utf8mb4_bin"), "mysql", "mariadb"
)
"""A string that differs from another one also when only case or accents differ."""
Json = sa.JSON(none_as_null=True)


def now() -> datetime.datetime:
    """Return the present moment as the tables store it."""
    return timeutils.utcnow()


def new_id() -> str:
    """Draw the id of a new row."""
    return str(uuid.uuid4())


def _times() -> tuple[sa.Column[datetime.datetime], sa.Column[datetime.datetime]]:
    return (
        sa.Column("created_at", Moment, nullable=False, default=now),
        sa.Column("updated_at", Moment, onupdate=now),
    )


volume_types = sa.Table(
    "volume_types",
    METADATA,
    sa.Column("id", Uuid, primary_key=True, default=new_id),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    sa.Column("description", sa.String(255)),
    sa.Column("is_public", sa.Boolean, nullable=False, default=True),
    sa.Column("extra_specs", Json, nullable=False, default=dict),
    *_times(),
    mysql_engine="InnoDB",
    mysql_charset="utf8mb4",
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
    sa.Column("state", sa.String(32), nullable=False),
    sa.Column("status", sa.String(32), nullable=False),
    sa.Column("attach_status", sa.String(32), nullable=False, default="detached"),
    sa.Column("multiattach", sa.Boolean, nullable=False, default=False),
    sa.Column("bootable", sa.Boolean, nullable=False, default=False),
    sa.Column("volume_type_id", Uuid, sa.ForeignKey("volume_types.id")),
    sa.Column("availability_zone", sa.String(255)),
    # host@backend#pool, chosen at creation; host@backend is the RPC server
    sa.Column("host", sa.String(255)),
    sa.Column("provider", Json, nullable=False, default=dict),
    # host@backend that has work to do on this row; None while nothing is under way
    sa.Column("owner", sa.String(255)),
    # GiB it is growing to, while it is
    sa.Column("new_size_gib", sa.Integer),
    sa.Column("error", sa.String(1023)),
    sa.Column("launched_at", Moment),
    *_times(),
    sa.Index(None, "project_id", "created_at", "id"),
    sa.Index(None, "created_at", "id"),
    sa.Index(None, "volume_type_id"),
    sa.Index(None, "host"),
    sa.Index(None, "status"),
    sa.Index(None, "owner"),
    mysql_engine="InnoDB",
    mysql_charset="utf8mb4",
)

volume_metadata = sa.Table(
    "volume_metadata",
    METADATA,
    sa.Column(
        "volume_id", Uuid, sa.ForeignKey("volumes.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("key", ExactString, primary_key=True),
    sa.Column("value", sa.String(255), nullable=False),
    mysql_engine="InnoDB",
    mysql_charset="utf8mb4",
)

attachments = sa.Table(
    "attachments",
    METADATA,
    sa.Column("id", Uuid, primary_key=True, default=new_id),
    sa.Column("volume_id", Uuid, sa.ForeignKey("volumes.id"), nullable=False),
    sa.Column("project_id", sa.String(64), nullable=False),
    sa.Column("user_id", sa.String(64)),
    sa.Column("instance_uuid", Uuid),
    sa.Column("state", sa.String(32), nullable=False),
    # rw or ro once it is known, that is from a mode at creation or from the connector
    sa.Column("mode", sa.String(2)),
    # from the connector, for searching
    sa.Column("host", sa.String(255)),
    sa.Column("mountpoint", sa.String(255)),
    sa.Column("connector", Json),
    sa.Column("connection_info", Json),
    # drawn before the driver is called first, so that a repeated call uses the same
    sa.Column("secret", sa.String(64)),
    # the manager process that works on it; and how many times work was begun on it, which
    # fences off a process that was believed dead
    sa.Column("owner", sa.String(255)),
    sa.Column("generation", sa.Integer, nullable=False, default=0),
    sa.Column("error", sa.String(1023)),
    sa.Column("attached_at", Moment),
    *_times(),
    sa.Index(None, "volume_id"),
    sa.Index(None, "project_id", "created_at", "id"),
    sa.Index(None, "created_at", "id"),
    sa.Index(None, "instance_uuid"),
    sa.Index(None, "host"),
    sa.Index(None, "owner"),
    mysql_engine="InnoDB",
    mysql_charset="utf8mb4",
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
    # whether the backend's driver is ready, and why it is not
    sa.Column("up", sa.Boolean, nullable=False, default=False),
    sa.Column("error", sa.String(1023)),
    # drivers.base.Report as a dict, from the last time that the backend was asked
    sa.Column("report", Json),
    sa.Column("seen_at", Moment, nullable=False, default=now),
    *_times(),
    sa.UniqueConstraint("binary", "host"),
    mysql_engine="InnoDB",
    mysql_charset="utf8mb4",
)
