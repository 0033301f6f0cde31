# SPDX-License-Identifier: Apache-2.0
"""Add columns for the notifications about fences: of which, the last one, and when the next."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "011"
down_revision = "010"


def upgrade() -> None:
    """Add the columns."""
    moment = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    op.add_column("host_fences", sa.Column("last_fenced_at", moment))
    op.add_column("host_fences", sa.Column("notified", sa.String(16)))
    op.add_column("host_fences", sa.Column("notify_after", moment))
