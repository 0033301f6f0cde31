# SPDX-License-Identifier: Apache-2.0
"""Add the column that says how a fence ends."""

from alembic import op
import sqlalchemy as sa

revision = "012"
down_revision = "011"


def upgrade() -> None:
    """Add the column; fences of now end as before."""
    op.add_column("host_fences", sa.Column("lift", sa.String(16)))
    fences = sa.table("host_fences", sa.column("lift", sa.String))
    op.execute(fences.update().values(lift="auto"))
