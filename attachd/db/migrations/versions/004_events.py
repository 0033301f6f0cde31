# SPDX-License-Identifier: Apache-2.0
"""What has become of attachments, and the places of what is told.

Everything is added, nothing changed: the release before goes on working with it, and what it does
is not told.
"""

from typing import Any

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "004"
down_revision = "003"

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
IN_MARIADB: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    """Add to what there is."""
    op.create_table(
        "events",
        sa.Column("id", NUMBER, nullable=False, autoincrement=True),
        sa.Column("revision", sa.BigInteger),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("project_id", sa.String(64), nullable=False),
        sa.Column("volume_id", sa.String(36), nullable=False),
        sa.Column("attachment_id", sa.String(36), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("details", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.UniqueConstraint("revision", name="uq_events_revision"),
        **IN_MARIADB,
    )
    for column in ("attachment_id", "created_at"):
        op.create_index(f"ix_events_{column}", "events", [column])
    places = op.create_table(
        "event_places",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("given", sa.BigInteger, nullable=False),
        sa.Column("forgotten", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_event_places"),
        **IN_MARIADB,
    )
    op.bulk_insert(places, [{"id": 1, "given": 0, "forgotten": 0}])
