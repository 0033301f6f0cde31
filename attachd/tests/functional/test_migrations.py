# SPDX-License-Identifier: Apache-2.0
"""Tests of migrations on each database: online, offline, and compared with the models."""

import io
import unittest

from alembic import autogenerate
from alembic.runtime.migration import MigrationContext
import sqlalchemy as sa

from attachd.db import migration, models
from attachd.db.engine import session
from attachd.tests import concurrency
from attachd.tests.fixtures import databases


def _options_of(inspector, table):
    """Return engine and character set of a table; SQLAlchemy 2.0 knows none but MariaDB's."""
    try:
        return inspector.get_table_options(table)
    except NotImplementedError:
        return {}


class MigrationsOnSqlite(unittest.TestCase):
    kind = "sqlite"
    maxDiff = None

    def setUp(self):
        super().setUp()
        databases.use_without_tables(self, self.kind)

    def _differences(self):
        """Return what would have to be changed to make the tables equal models.py."""
        with session.writer() as connection:
            options = {"compare_type": True, "compare_server_default": True}
            context = MigrationContext.configure(connection, opts=options)
            return autogenerate.compare_metadata(context, models.METADATA)

    def _schema(self):
        """Return the schema as the database reports it."""
        with session.reader() as connection:
            inspector = sa.inspect(connection)
            return {
                table: [
                    [
                        {**column, "type": repr(column["type"])}
                        for column in inspector.get_columns(table)
                    ],
                    inspector.get_pk_constraint(table),
                    sorted(inspector.get_indexes(table), key=lambda item: item["name"]),
                    sorted(inspector.get_foreign_keys(table), key=lambda item: item["name"]),
                    inspector.get_unique_constraints(table),
                    _options_of(inspector, table),
                ]
                for table in inspector.get_table_names()
            }

    def test_migration_of_empty_database_equals_the_models(self):
        self.assertNotEqual([], self._differences())
        migration.upgrade()
        self.assertEqual([], self._differences())

    def test_migrations_and_models_create_equal_schema(self):
        migration.upgrade()
        migrated = self._schema()
        del migrated["alembic_version"]
        databases.use(self, self.kind)
        self.assertEqual(self._schema(), migrated)

    def test_schema_comparison_finds_differences(self):
        migration.upgrade()
        with session.writer() as connection:
            connection.exec_driver_sql("DROP INDEX ix_volumes_name" + self.of_table)
        self.assertEqual(["add_index"], [difference[0] for difference in self._differences()])

    of_table = ""

    def test_migration_offline_sql_equals_online_upgrade(self):
        migration.upgrade()
        upgraded = self._schema()
        databases.use_without_tables(self, self.kind)
        sql = io.StringIO()
        migration.write_sql(sql)
        self._execute(sql.getvalue())
        self.assertEqual(upgraded, self._schema())
        self.assertEqual(migration.head(), migration.version())
        migration.upgrade()
        self.assertEqual(upgraded, self._schema())

    def _execute(self, sql):
        """Feed a script to the database, transactions of its own included."""
        with session.reader() as connection:
            connection.connection.driver_connection.executescript(sql)

    def test_migration_started_at_once_runs_once_and_succeeds_for_all(self):
        self.assertEqual([None] * 4, concurrency.run_at_once(*[migration.upgrade] * 4))
        self.assertEqual([], self._differences())

    def test_migration_repeated_changes_nothing(self):
        migration.upgrade()
        before = self._schema()
        with session.no_timeouts():  # or its connections, and what they count, are made anew
            counted = session.counters().writing_transactions
            migration.upgrade()
            self.assertLessEqual(session.counters().writing_transactions - counted, 1)
        self.assertEqual(before, self._schema())


class MigrationsOnPostgresql(MigrationsOnSqlite):
    kind = "postgresql"

    def _execute(self, sql):
        with session.reader() as connection:
            connection.connection.driver_connection.cursor().execute(sql)


class MigrationsOnMariadb(MigrationsOnSqlite):
    kind = "mariadb"
    of_table = " ON volumes"

    def _execute(self, sql):
        with session.reader() as connection:
            for statement in filter(None, map(str.strip, sql.split(";\n"))):
                connection.exec_driver_sql(statement)
