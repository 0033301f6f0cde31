# SPDX-License-Identifier: Apache-2.0
"""Add columns for the answers of managers to probes of the way of agents' reports."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "013"
down_revision = "012"


def upgrade() -> None:
    """Add the columns."""
    moment = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    op.add_column("members", sa.Column("consumers", sa.Integer))
    op.add_column("members", sa.Column("probed_at", moment))
    op.add_column("members", sa.Column("queue_probed_at", moment))
