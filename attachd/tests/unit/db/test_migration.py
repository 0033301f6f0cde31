# SPDX-License-Identifier: Apache-2.0
"""Migrating an SQLite database; the other databases are in functional/test_migrations.py."""

import io
import unittest

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import migration
from attachd.db.engine import session
from attachd.tests import databases


class UpgradeTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use_empty(self, self.kind)

    def _tables(self):
        with session.reader() as connection:
            return set(sa.inspect(connection).get_table_names())

    def test_an_empty_database_has_no_version_until_it_is_upgraded(self):
        self.assertIsNone(migration.version())
        migration.upgrade()
        self.assertEqual(migration.head(), migration.version())

    def test_a_second_upgrade_does_nothing(self):
        migration.upgrade()
        before = self._tables()
        migration.upgrade()
        self.assertEqual((before, migration.head()), (self._tables(), migration.version()))

    def test_a_database_newer_than_the_code_is_left_alone_and_said_to_be(self):
        migration.upgrade()
        with session.writer() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '999'")
        with self.assertRaisesRegex(exception.ConfigurationError, "newer attachd"):
            migration.upgrade()
        self.assertEqual("999", migration.version())

    def test_a_version_that_does_not_exist_is_refused(self):
        with self.assertRaisesRegex(exception.ConfigurationError, "not know version nonesuch"):
            migration.upgrade("nonesuch")
        self.assertEqual(set(), self._tables())

    def test_a_migration_that_fails_half_way_leaves_nothing(self):
        with session.writer() as connection:
            connection.exec_driver_sql("CREATE TABLE volumes (x INTEGER)")
        self.assertRaises(exception.AttachdError, migration.upgrade)
        self.assertEqual({"volumes"}, self._tables())


class SqlTest(unittest.TestCase):
    def _sql(self, url, start=None):
        session.dispose()
        CONF.set_override("connection", url, group="database")
        self.addCleanup(session.dispose)
        self.addCleanup(CONF.clear_override, "connection", group="database")
        output = io.StringIO()
        migration.write_sql(output, start)
        return output.getvalue()

    def test_sql_is_in_the_dialect_of_a_database_that_need_not_be_there(self):
        self.assertIn("ENGINE=InnoDB", self._sql("mysql+pymysql://u@nowhere/d"))
        self.assertIn("WITHOUT TIME ZONE", self._sql("postgresql+psycopg2://u@nowhere/d"))

    def test_sql_can_begin_with_a_version(self):
        self.assertNotIn(
            "CREATE TABLE", self._sql("mysql+pymysql://u@nowhere/d", migration.head())
        )
        with self.assertRaises(exception.ConfigurationError):
            self._sql("mysql+pymysql://u@nowhere/d", "nonesuch")
