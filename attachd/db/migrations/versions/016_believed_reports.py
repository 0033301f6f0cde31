# SPDX-License-Identifier: Apache-2.0
"""Add the column that says how long the reports of a host count for unknown attachments."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "016"
down_revision = "015"


def upgrade() -> None:
    """Add the column: no report counts."""
    moment = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    op.add_column("agents", sa.Column("believed_until", moment))
