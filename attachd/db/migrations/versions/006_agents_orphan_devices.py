# SPDX-License-Identifier: Apache-2.0
"""Add a column for the devices of a host that have no attachment."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "006"
down_revision = "005"


def upgrade() -> None:
    """Add the column."""
    long_text = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
    op.add_column("agents", sa.Column("orphan_devices", long_text))
