# SPDX-License-Identifier: Apache-2.0
"""Add the identities of hosts, and the columns by which their rows are found."""

from typing import Any

from alembic import context, op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from attachd import host_identity
from attachd.db import models

revision = "014"
down_revision = "013"

_KEY = {"host_key": sa.String(255), "initiator_key": sa.String(255)}


def upgrade() -> None:
    """Add table and columns, and fill them from what is attached."""
    moment = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    op.create_table(
        "host_identities",
        sa.Column("identifier", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("host_key", sa.String(255), nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("updated_at", moment),
        sa.PrimaryKeyConstraint("identifier", name="pk_host_identities"),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )
    op.create_index("ix_host_identities_host_key", "host_identities", ["host_key"])
    for name, kind in _KEY.items():
        op.add_column("attachments", sa.Column(name, kind))
        op.create_index(f"ix_attachments_{name}", "attachments", [name])
    op.add_column("host_fences", sa.Column("host_key", sa.String(255)))
    op.create_index("ix_host_fences_host_key", "host_fences", ["host_key"])
    if not context.is_offline_mode():
        _fill(op.get_bind())


def _fill(connection: sa.Connection) -> None:
    """Store what the rows of now say; of two hosts with one initiator the first one keeps it."""
    fences = sa.table("host_fences", sa.column("host"), sa.column("host_key"))
    for (host,) in connection.execute(sa.select(fences.c.host)).all():
        key = host_identity.host_key(host)
        connection.execute(fences.update().where(fences.c.host == host).values(host_key=key))
    attachments = sa.table(
        "attachments",
        *(sa.column(name) for name in ("id", "host", "created_at", *_KEY)),
        sa.column("connector", models.Json),
    )
    owners: dict[str, tuple[str, str]] = {}
    agents = sa.table("agents", sa.column("host"), sa.column("connector", models.Json))
    for host, connector in connection.execute(sa.select(agents.c.host, agents.c.connector)):
        _add_owners(owners, host, connector, "agent")
    columns = (attachments.c.id, attachments.c.host, attachments.c.connector)
    rows = connection.execute(sa.select(*columns).order_by(attachments.c.created_at)).all()
    for row_id, host, connector in rows:
        keys = host_identity.columns(host, connector)
        connection.execute(attachments.update().where(attachments.c.id == row_id).values(keys))
        if host:
            _add_owners(owners, host, connector, "connector")
    for identifier, (host, source) in owners.items():
        values: dict[str, Any] = {"identifier": identifier, "host": host, "source": source}
        values |= {"host_key": host_identity.host_key(host), "created_at": models.now()}
        connection.execute(sa.insert(models.host_identities).values(values))


def _add_owners(
    owners: dict[str, tuple[str, str]], host: str, connector: dict[str, Any] | None, source: str
) -> None:
    for identifier in host_identity.of_connector(connector or {}).identifiers:
        owners.setdefault(identifier, (host, source))
