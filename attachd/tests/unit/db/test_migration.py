# SPDX-License-Identifier: Apache-2.0
"""Migrations of an SQLite database; functional/test_migrations.py covers the other databases."""

import io
from pathlib import Path
import shutil
import tempfile
import unittest
from unittest import mock

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import migration, migrations
from attachd.db.engine import session
from attachd.tests.fixtures import databases


class UpgradeTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use_without_tables(self, self.kind)

    def _tables(self):
        with session.reader() as connection:
            return set(sa.inspect(connection).get_table_names())

    def test_version_of_empty_database_is_none(self):
        self.assertIsNone(migration.version())
        migration.upgrade()
        self.assertEqual(migration.head(), migration.version())

    def test_upgrade_twice_changes_nothing(self):
        migration.upgrade()
        before = self._tables()
        migration.upgrade()
        self.assertEqual((before, migration.head()), (self._tables(), migration.version()))

    def test_upgrade_of_newer_database_is_refused(self):
        migration.upgrade()
        with session.writer() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '999'")
        with self.assertRaisesRegex(exception.ConfigurationError, "newer attachd"):
            migration.upgrade()
        self.assertEqual("999", migration.version())

    def test_upgrade_to_unknown_version_is_refused(self):
        with self.assertRaisesRegex(exception.ConfigurationError, "not know version nonesuch"):
            migration.upgrade("nonesuch")
        self.assertEqual(set(), self._tables())

    def test_failed_upgrade_leaves_nothing(self):
        with session.writer() as connection:
            connection.exec_driver_sql("CREATE TABLE volumes (x INTEGER)")
        self.assertRaises(exception.AttachdError, migration.upgrade)
        self.assertEqual({"volumes"}, self._tables())


FIRST = """
from alembic import op
import sqlalchemy as sa
revision, down_revision = "001", None

def upgrade():
    op.create_table("shelves", sa.Column("id", sa.Integer, primary_key=True))
    op.bulk_insert(sa.table("shelves", sa.column("id")), [{"id": 7}])
"""
SECOND = """
from alembic import op
import sqlalchemy as sa
revision, down_revision = "002", "001"

def upgrade():
    op.add_column("shelves", sa.Column("colour", sa.String(16), server_default="green"))
"""
FAILING = """
revision, down_revision = "003", "002"

def upgrade():
    raise ValueError("the third migration fails")
"""


def use_scripts(test, **versions):
    """Replace attachd's migrations by others, in a temporary folder, until the test ends.

    :param versions: contents of the migrations by the names of their files
    :returns: the folder of the migrations
    """
    folder = Path(test.enterContext(tempfile.TemporaryDirectory(prefix="attachd-test-")))
    shutil.copy(Path(migrations.__file__).with_name("env.py"), folder)
    (folder / "versions").mkdir()
    for name, content in versions.items():
        (folder / "versions" / f"{name}.py").write_text(content)
    test.enterContext(mock.patch.object(migration, "SCRIPTS", str(folder)))
    return folder / "versions"


class StepsTest(unittest.TestCase):
    """Migrations that follow each other, on a database that has rows."""

    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use_without_tables(self, self.kind)
        self.versions = use_scripts(self, first=FIRST, second=SECOND)

    def _rows(self):
        with session.reader() as connection:
            return [
                dict(row._mapping) for row in connection.exec_driver_sql("SELECT * FROM shelves")
            ]

    def test_upgrade_to_version_stops_there(self):
        migration.upgrade("001")
        self.assertEqual(("001", "002"), (migration.version(), migration.head()))
        self.assertEqual([{"id": 7}], self._rows())

    def test_upgrade_in_two_steps_keeps_rows(self):
        migration.upgrade("001")
        migration.upgrade()
        self.assertEqual("002", migration.version())
        self.assertEqual([{"id": 7, "colour": "green"}], self._rows())

    def test_upgrade_from_nothing_applies_all_migrations_in_order(self):
        migration.upgrade()
        self.assertEqual("002", migration.version())
        self.assertEqual([{"id": 7, "colour": "green"}], self._rows())

    def test_upgrade_to_older_version_changes_nothing(self):
        migration.upgrade()
        migration.upgrade("001")
        self.assertEqual("002", migration.version())

    def test_upgrade_with_failing_migration_keeps_version_and_rows(self):
        migration.upgrade("001")
        (self.versions / "third.py").write_text(FAILING)
        with self.assertRaisesRegex(exception.Conflict, "version 003: ValueError: the third"):
            migration.upgrade()
        self.assertEqual("001", migration.version())
        self.assertEqual([{"id": 7}], self._rows())

    def test_upgrade_with_refused_statement_names_version(self):
        migration.upgrade("001")
        with session.writer() as connection:
            connection.exec_driver_sql("ALTER TABLE shelves ADD COLUMN colour VARCHAR(16)")
        with self.assertRaisesRegex(exception.Conflict, "to version 002: .*colour"):
            migration.upgrade()
        self.assertEqual("001", migration.version())

    def test_upgrade_with_lost_connection_is_repeated(self):
        lost = db_exception.DBConnectionError()
        apply = mock.Mock(side_effect=[lost, mock.DEFAULT], wraps=migration.command.upgrade)
        with mock.patch.object(migration.command, "upgrade", apply):
            migration.upgrade("001")
        self.assertEqual("001", migration.version())

    def test_write_sql_from_version_contains_later_migrations_only(self):
        output = io.StringIO()
        migration.write_sql(output, "001")
        self.assertIn("ADD COLUMN colour", output.getvalue())
        self.assertNotIn("CREATE TABLE", output.getvalue())


class SqlTest(unittest.TestCase):
    def _sql(self, url, start=None):
        session.dispose()
        CONF.set_override("connection", url, group="database")
        self.addCleanup(session.dispose)
        self.addCleanup(CONF.clear_override, "connection", group="database")
        output = io.StringIO()
        migration.write_sql(output, start)
        return output.getvalue()

    def test_write_sql_uses_dialect_without_connecting(self):
        self.assertIn("ENGINE=InnoDB", self._sql("mysql+pymysql://u@nowhere/d"))
        self.assertIn("WITHOUT TIME ZONE", self._sql("postgresql+psycopg2://u@nowhere/d"))

    def test_write_sql_starts_at_version(self):
        self.assertNotIn(
            "CREATE TABLE", self._sql("mysql+pymysql://u@nowhere/d", migration.head())
        )
        with self.assertRaises(exception.ConfigurationError):
            self._sql("mysql+pymysql://u@nowhere/d", "nonesuch")
