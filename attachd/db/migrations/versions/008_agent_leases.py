# SPDX-License-Identifier: Apache-2.0
"""Add columns for the leases of agents: the last renewal, the length, what followed the end."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "008"
down_revision = "007"


def upgrade() -> None:
    """Add the columns."""
    moment = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    op.add_column("agents", sa.Column("heartbeat_at", moment))
    op.add_column("agents", sa.Column("lease", sa.Integer()))
    op.add_column("agents", sa.Column("lost_at", moment))
    op.add_column("agents", sa.Column("lost_action", sa.String(16)))
