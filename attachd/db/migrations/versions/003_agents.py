# SPDX-License-Identifier: Apache-2.0
"""Agents of hosts, and what they attach.

Everything is added, nothing changed: the release before goes on working with it.
"""

from typing import Any

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "003"
down_revision = "002"

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
IN_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    """Add to what there is."""
    op.create_table(
        "agents",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("key_digest", sa.String(64), nullable=False),
        sa.Column("connector", LONG_TEXT),
        sa.Column("devices", LONG_TEXT),
        sa.Column("connector_type", sa.String(32)),
        sa.Column("version", sa.String(32)),
        sa.Column("error", sa.String(1023)),
        sa.Column("seen_at", MOMENT),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT),
        sa.PrimaryKeyConstraint("host", name="pk_agents"),
        **IN_MARIADB,
    )
    op.add_column("attachments", sa.Column("agent", sa.String(255)))
    op.add_column("attachments", sa.Column("device", sa.String(255)))
    op.create_index("ix_attachments_agent", "attachments", ["agent"])
