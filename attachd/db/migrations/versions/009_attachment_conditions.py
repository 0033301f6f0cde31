# SPDX-License-Identifier: Apache-2.0
"""Add columns for the condition of attachments: its state, and all that was observed."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "009"
down_revision = "008"


def upgrade() -> None:
    """Add the columns."""
    long_text = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
    op.add_column("attachments", sa.Column("condition_state", sa.String(16)))
    op.add_column("attachments", sa.Column("observed", long_text))
