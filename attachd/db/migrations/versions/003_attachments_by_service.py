# SPDX-License-Identifier: Apache-2.0
"""Add a column that tells which attachments a service has made."""

from alembic import op
import sqlalchemy as sa

revision = "003"
down_revision = "002"


def upgrade() -> None:
    """Add the column."""
    op.add_column("attachments", sa.Column("by_service", sa.Boolean()))
