# SPDX-License-Identifier: Apache-2.0
"""Room for secrets that are sealed.

A column becomes wider, nothing else is changed: the release before goes on working with it.  What
is sealed that release cannot read, so there are to be no keys before it is gone.
"""

from alembic import op
import sqlalchemy as sa

revision = "005"
down_revision = "004"


def upgrade() -> None:
    """Widen a column; SQLite keeps a text of any length."""
    if op.get_context().dialect.name == "sqlite":
        return
    op.alter_column("attachments", "secret", type_=sa.String(255), existing_type=sa.String(64))
