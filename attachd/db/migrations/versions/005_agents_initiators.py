# SPDX-License-Identifier: Apache-2.0
"""Add a column for the initiators that belong to the host of an agent."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "005"
down_revision = "004"


def upgrade() -> None:
    """Add the column."""
    long_text = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
    op.add_column("agents", sa.Column("initiators", long_text))
