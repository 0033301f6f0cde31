# SPDX-License-Identifier: Apache-2.0
"""Add the identities of the storage of backends."""

from alembic import op
import sqlalchemy as sa

revision = "017"
down_revision = "016"


def upgrade() -> None:
    """Create the table, empty: the next start of each manager stores what it serves."""
    op.create_table(
        "storages",
        sa.Column("backend", sa.String(255), primary_key=True),
        sa.Column("pool", sa.String(255), primary_key=True),
        sa.Column("storage_id", sa.String(255), nullable=False),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )
