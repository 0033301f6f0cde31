# SPDX-License-Identifier: Apache-2.0
"""Add a table of fenced and drained hosts, and columns for fenced attachments and boots."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "007"
down_revision = "006"


def upgrade() -> None:
    """Add the table and the columns."""
    moment = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    op.create_table(
        "host_fences",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("fenced_at", moment),
        sa.Column("reason", sa.String(255)),
        sa.Column("user_id", sa.String(64)),
        sa.Column("boot_id", sa.String(64)),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("updated_at", moment),
        sa.Column("drained_at", moment),
        sa.Column("drain_reason", sa.String(255)),
        sa.Column("drain_user_id", sa.String(64)),
        sa.Column("drain_detach", sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")),
        sa.PrimaryKeyConstraint("host", name="pk_host_fences"),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )
    op.create_index("ix_host_fences_fenced_at", "host_fences", ["fenced_at"])
    op.create_index("ix_host_fences_drained_at", "host_fences", ["drained_at"])
    op.add_column("attachments", sa.Column("fenced", sa.Boolean()))
    op.add_column("agents", sa.Column("boot_id", sa.String(64)))
