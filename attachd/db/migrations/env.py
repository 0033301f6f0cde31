# SPDX-License-Identifier: Apache-2.0
"""How Alembic runs the migrations; called by db/migration.py, which says where.

``attributes`` of Alembic's configuration hold a ``connection``, in whose transaction everything
happens, or a ``dialect``, for which the SQL is only printed.
"""

from alembic import context

from attachd.db import models

attributes = context.config.attributes
if "connection" in attributes:
    context.configure(connection=attributes["connection"], target_metadata=models.METADATA)
    context.run_migrations()
else:
    context.configure(
        dialect_name=attributes["dialect"],
        target_metadata=models.METADATA,
        literal_binds=True,
        transactional_ddl=attributes["dialect"] != "mysql",
    )
    with context.begin_transaction():
        context.run_migrations()
