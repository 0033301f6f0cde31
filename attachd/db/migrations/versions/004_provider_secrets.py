# SPDX-License-Identifier: Apache-2.0
"""Add columns for secrets that drivers keep of volumes and of connections."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "004"
down_revision = "003"

LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    """Add the columns."""
    for table in ("attachments", "volumes"):
        op.add_column(table, sa.Column("provider_secrets", LONG_TEXT))
