# SPDX-License-Identifier: Apache-2.0
"""Add columns for attachments that move: the source, and whether the export shares nothing."""

from alembic import op
import sqlalchemy as sa

revision = "010"
down_revision = "009"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("attachments", sa.Column("move_from", sa.String(36)))
    op.add_column("attachments", sa.Column("own_connection", sa.Boolean()))
    op.create_index("ix_attachments_move_from", "attachments", ["move_from"])
