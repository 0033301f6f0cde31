# SPDX-License-Identifier: Apache-2.0
"""Add the columns by which the machine of an agent is known, and that which made a device."""

from typing import Any

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = "015"
down_revision = "014"


def upgrade() -> None:
    """Add the columns: the next report of each agent is accepted."""
    moment = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    text = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
    columns: dict[str, sa.types.TypeEngine[Any]] = {
        "machine_id": sa.String(64),
        "report_token": sa.String(64),
        "report_process": sa.String(64),
        "report_start": sa.BigInteger(),
        "report_number": sa.BigInteger(),
        "journal_losses": sa.Integer(),
        "former_boot_at": moment,
        "conflict": text,
        "refused_boots": text,
    }
    for name, kind in columns.items():
        op.add_column("agents", sa.Column(name, kind))
    op.add_column("attachments", sa.Column("device_origin", sa.String(96)))
