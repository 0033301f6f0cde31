# SPDX-License-Identifier: Apache-2.0
"""The environment in which Alembic runs the migrations; loaded by db/migration.py.

``attributes`` of Alembic's configuration hold a ``connection``, in whose transaction all
migrations run, or a ``dialect``, for which the SQL is only printed.
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
