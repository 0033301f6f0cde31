# SPDX-License-Identifier: Apache-2.0
"""Add an index by which the events of one project are found in the order of their revisions."""

from alembic import op

revision = "002"
down_revision = "001"


def upgrade() -> None:
    """Create the index."""
    op.create_index("ix_events_project_id_revision", "events", ["project_id", "revision"])
