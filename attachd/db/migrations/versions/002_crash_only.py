# SPDX-License-Identifier: Apache-2.0
"""Who works on a volume, which processes live, reservations that end, and who speaks what.

Everything is added, nothing changed: the release before goes on working with it.
"""

from typing import Any

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "002"
down_revision = "001"

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
        "processes",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("seen_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_processes"),
        **IN_MARIADB,
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("resource_id", sa.String(36), nullable=False),
        sa.Column("made", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("answer", LONG_TEXT),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_idempotency_keys"),
        **IN_MARIADB,
    )
    op.create_index("ix_idempotency_keys_expires_at", "idempotency_keys", ["expires_at"])
    op.add_column("volumes", sa.Column("lease_holder", sa.String(36)))
    op.add_column(
        "volumes",
        sa.Column("lease_generation", sa.Integer(), nullable=False, server_default="0"),
    )
    op.create_index("ix_volumes_lease_holder", "volumes", ["lease_holder"])
    op.add_column("attachments", sa.Column("expires_at", MOMENT))
    op.create_index("ix_attachments_expires_at", "attachments", ["expires_at"])
    op.add_column("services", sa.Column("rpc_version", sa.String(16)))
    op.add_column("services", sa.Column("object_version", sa.String(255)))
    op.add_column("services", sa.Column("versioned_at", MOMENT))
