# SPDX-License-Identifier: Apache-2.0
"""Engines for SQLite, and options of all engines; for servers see functional/test_databases.py."""

from concurrent import futures
import inspect
from pathlib import Path
import sqlite3
import struct
import threading
import unittest

from pymysql import connections, protocol
from pymysql.constants import FIELD_TYPE
import sqlalchemy as sa

from attachd.conf import CONF
from attachd.db.engine import factory, session
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.wait import TIMEOUT


class SqliteTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.file = Path(databases.use(self).removeprefix("sqlite:///"))

    def _pragma(self, connection, name):
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()

    def test_files_are_private(self):
        self.file = Path(databases.use_without_tables(self, "sqlite").removeprefix("sqlite:///"))
        with session.writer() as connection:
            connection.exec_driver_sql("CREATE TABLE t (x INTEGER)")
        with session.reader() as connection:
            connection.execute(sa.select(1))
            modes = {path.name: path.stat().st_mode & 0o777 for path in self.file.parent.iterdir()}
        self.assertEqual({"", "-shm", "-wal"}, {n.removeprefix(self.file.name) for n in modes})
        self.assertEqual({0o600}, set(modes.values()))

    def test_engines_check_foreign_keys_and_use_wal(self):
        for lend in (session.reader, session.writer):
            with lend() as connection:
                self.assertEqual("wal", self._pragma(connection, "journal_mode"))
                self.assertEqual(1, self._pragma(connection, "foreign_keys"))
                self.assertEqual(30000, self._pragma(connection, "busy_timeout"))

    def test_synchronous_is_normal_unless_configured(self):
        self._assert_synchronous(0)
        CONF.set_override("sqlite_synchronous", True, group="database")
        session.dispose()
        self._assert_synchronous(1)

    def _assert_synchronous(self, level):
        with session.writer() as connection:
            self.assertEqual(level, self._pragma(connection, "synchronous"))

    def test_transaction_locks_from_begin(self):
        other = sqlite3.connect(self.file, timeout=0, isolation_level=None)
        self.addCleanup(other.close)
        with session.writer():
            self.assertRaises(sqlite3.OperationalError, other.execute, "BEGIN IMMEDIATE")
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")

    def test_concurrent_read_then_write_transactions_succeed(self):
        volume = db_rows.add_volume(size_gib=0)
        together = threading.Barrier(32, timeout=TIMEOUT)

        def grow():
            together.wait()
            for _ in range(5):
                with session.writer() as connection:
                    size = connection.exec_driver_sql("SELECT size_gib FROM volumes").scalar()
                    connection.exec_driver_sql(f"UPDATE volumes SET size_gib = {size + 1}")

        with futures.ThreadPoolExecutor(32) as pool:
            for done in [pool.submit(grow) for _ in range(32)]:
                done.result()
        self.assertEqual(160, db_rows.get_volume(volume["id"])["size_gib"])


class OptionsTest(unittest.TestCase):
    def _engine(self, url, **options):
        for name, value in {"connection": url, **options}.items():
            CONF.set_override(name, value, group="database")
            self.addCleanup(CONF.clear_override, name, group="database")
        return factory.create_writer(CONF.database)

    def test_pool_has_configured_size(self):
        options = {"max_pool_size": 3, "pool_timeout": 7, "connection_recycle_time": 11}
        engine = self._engine("postgresql+psycopg2://u@h/d", **options)
        self.assertEqual(
            (3, 7, 11), (engine.pool.size(), engine.pool.timeout(), self._age(engine))
        )

    def _age(self, engine):
        return engine.pool._recycle

    def test_connection_parameters_are_added_to_url(self):
        engine = self._engine("mysql+pymysql://u@h/d?x=1", connection_parameters="charset=latin1")
        self.assertEqual({"x": "1", "charset": "latin1"}, dict(engine.url.query))

    def test_session_variables_are_set_where_configured(self):
        CONF.set_override("mysql_sql_mode", "TRADITIONAL", group="database")
        CONF.set_override("mysql_wsrep_sync_wait", 1, group="database")
        self.addCleanup(CONF.clear_override, "mysql_sql_mode", group="database")
        self.addCleanup(CONF.clear_override, "mysql_wsrep_sync_wait", group="database")
        self.assertEqual(
            ["SET SESSION sql_mode = 'TRADITIONAL'", "SET SESSION wsrep_sync_wait = 1"],
            factory._session_statements("mysql", CONF.database),
        )
        self.assertEqual([], factory._session_statements("postgresql", CONF.database))


ENCODING = "utf8"


def description(name, length=144):
    """Write a column definition as the protocol has it: lengths before strings, then numbers."""
    texts = [b"def", b"attachd", b"volumes", b"volumes", name, name]
    numbers = struct.pack("<HIBHB2x", 45, length, FIELD_TYPE.VAR_STRING, 0, 0)
    strings = b"".join(bytes([len(text)]) + text for text in texts)
    return strings + bytes([len(numbers)]) + numbers


class ColumnDescriptionsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        factory.cache_column_descriptions()
        self.read = connections.FieldDescriptorPacket

    def test_cached_description_equals_original(self):
        data = description(b"status")
        stock = protocol.FieldDescriptorPacket(data, ENCODING)
        self.assertEqual("status", stock.name)
        self.assertEqual(stock.description(), self.read(data, ENCODING).description())
        self.assertEqual(stock.type_code, self.read(data, ENCODING).type_code)

    def test_same_description_is_parsed_once(self):
        self.assertIs(
            self.read(description(b"once"), ENCODING), self.read(description(b"once"), ENCODING)
        )

    def test_other_description_is_parsed(self):
        for other in (description(b"b"), description(b"a", length=3)):
            self.assertNotEqual(
                self.read(description(b"a"), ENCODING).description(),
                self.read(other, ENCODING).description(),
            )

    def test_cache_twice_has_same_effect(self):
        factory.cache_column_descriptions()
        self.assertIs(self.read, connections.FieldDescriptorPacket)

    def test_pymysql_has_private_class_and_keeps_descriptions(self):
        source = inspect.getsource(connections.MySQLResult._get_descriptions)
        self.assertIn("._read_packet(FieldDescriptorPacket)", source)
        self.assertNotIn("field.name =", source)
