# SPDX-License-Identifier: Apache-2.0
"""Reader and writer; functional/test_databases.py repeats this on servers."""

from concurrent import futures
import inspect
import os
from pathlib import Path
import sqlite3
import struct
import threading
import unittest

from oslo_db import exception as db_exception
from oslo_db import options as oslo_db_options
from pymysql import connections, protocol
from pymysql.constants import FIELD_TYPE
import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.engine import session
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.wait import TIMEOUT

SERVICES = models.services


def insert(connection, host):
    values = {"binary": "b", "host": host, "availability_zone": "z"}
    connection.execute(sa.insert(SERVICES).values(**values))


def hosts():
    with session.reader() as connection:
        return set(connection.execute(sa.select(SERVICES.c.host)).scalars())


class Gone(Exception):
    """What a test raises in the middle of a transaction."""


class TransactionTest(databases.DatabaseCase):
    def test_transaction_is_visible_after_commit_only(self):
        with session.writer() as connection:
            insert(connection, "one")
            insert(connection, "two")
            self.assertEqual(set(), hosts())
        self.assertEqual({"one", "two"}, hosts())

    def test_exception_rolls_back(self):
        with self.assertRaises(Gone), session.writer() as connection:
            insert(connection, "one")
            raise Gone
        self.assertEqual(set(), hosts())

    def test_some_rows_of_a_condition_are_deleted_at_a_time(self):
        with session.writer() as connection:
            for name in ("one", "two", "three", "four"):
                insert(connection, name)
        is_old = SERVICES.c.host != "four"
        counts = [session.delete_some(SERVICES.c.id, is_old, 2) for _ in range(3)]
        self.assertEqual(([2, 1, 0], {"four"}), (counts, hosts()))

    def test_connection_is_usable_after_exception(self):
        for _ in range(3):
            with self.assertRaises(Gone), session.writer() as connection:
                insert(connection, "one")
                raise Gone
        with session.writer() as connection:
            insert(connection, "one")
        self.assertEqual({"one"}, hosts())

    def test_reader_sees_later_commits(self):
        count = sa.select(sa.func.count()).select_from(SERVICES)
        with session.reader() as reading:
            self.assertEqual(0, reading.execute(count).scalar())
            with session.writer() as connection:
                insert(connection, "one")
            self.assertEqual(1, reading.execute(count).scalar())

    def test_connection_lost_at_commit_raises_unavailable(self):
        def lose(_connection):
            raise db_exception.DBConnectionError

        sa.event.listen(session._engines().writer, "commit", lose)
        unknown = self.assertRaisesRegex(exception.Unavailable, "may have been stored")
        with unknown, session.writer() as connection:
            insert(connection, "one")
        sa.event.remove(session._engines().writer, "commit", lose)
        with session.writer() as connection:
            insert(connection, "two")
        self.assertEqual({"two"}, hosts())

    def test_failed_rollback_keeps_original_error(self):
        def lose(_connection):
            raise db_exception.DBConnectionError

        sa.event.listen(session._engines().writer, "rollback", lose)
        with self.assertRaises(Gone), session.writer() as connection:
            insert(connection, "one")
            raise Gone
        sa.event.remove(session._engines().writer, "rollback", lose)
        with session.writer() as connection:
            insert(connection, "two")
        self.assertEqual({"two"}, hosts())

    def test_counters_count_statements_and_transactions(self):
        before = session.counters()
        with session.writer() as connection:
            insert(connection, "one")
            insert(connection, "two")
        hosts()
        with self.assertRaises(Gone), session.writer():
            raise Gone
        statements, transactions = session.counters()
        self.assertEqual(3, statements - before.statements)
        self.assertEqual(1, transactions - before.writing_transactions)

    def test_engines_have_no_listener_without_counting(self):
        engines = (session._engines().reader, session._engines().writer)
        self.assertEqual([False, False], [engine._has_events for engine in engines])
        session.counters()
        self.assertEqual([True, True], [engine._has_events for engine in engines])

    def test_forked_process_opens_own_connections(self):
        with session.writer() as connection:
            insert(connection, "parent")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with session.writer() as connection:
                    insert(connection, "child")
                session.dispose()
                code = 0
            finally:
                os._exit(code)
        self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        self.assertEqual({"parent", "child"}, hosts())
        with session.writer() as connection:
            insert(connection, "parent again")

    def test_dispose_reopens_connections(self):
        first = session._engines()
        session.dispose()
        self.assertEqual(set(), hosts())
        self.assertIsNot(first, session._engines())


class ConfigurationTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        session.dispose()
        self.addCleanup(session.dispose)
        self.addCleanup(CONF.clear_override, "connection", group="database")

    def _refusal(self, connection):
        CONF.set_override("connection", connection, group="database")
        with self.assertRaises(exception.ConfigurationError) as caught:
            session.dialect()
        return str(caught.exception)

    def test_missing_connection_names_option(self):
        self.assertIn("set connection in [database]", self._refusal(None))

    def test_invalid_url_is_refused_without_password(self):
        self.assertNotIn("secret", self._refusal("nonsense:secret"))

    def test_unknown_database_is_refused_by_name(self):
        self.assertIn("nonesuch", self._refusal("nonesuch://u:secret@h/d"))

    def test_in_memory_database_is_refused(self):
        self.assertIn("needs a file", self._refusal("sqlite://"))

    def test_display_url_hides_password(self):
        CONF.set_override("connection", "mysql+pymysql://u:secret@h/d", group="database")
        self.assertEqual("mysql+pymysql://u:***@h/d", session.display_url())
        self.assertEqual("mysql", session.dialect())


class DefaultsTest(unittest.TestCase):
    def test_pool_size_covers_threads_of_backend(self):
        self.assertGreaterEqual(CONF.database.max_pool_size, CONF.manager.threads_per_backend)

    def test_sample_generator_shows_default(self):
        (found,) = [
            option
            for _group, options in oslo_db_options.list_opts()
            for option in options
            if option.name == "max_pool_size"
        ]
        self.assertEqual(CONF.database.max_pool_size, found.default)


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
        return session.create_writer(CONF.database)

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
            session._session_statements("mysql", CONF.database),
        )
        self.assertEqual([], session._session_statements("postgresql", CONF.database))


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
        session.cache_column_descriptions()
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
        session.cache_column_descriptions()
        self.assertIs(self.read, connections.FieldDescriptorPacket)

    def test_pymysql_has_private_class_and_keeps_descriptions(self):
        source = inspect.getsource(connections.MySQLResult._get_descriptions)
        self.assertIn("._read_packet(FieldDescriptorPacket)", source)
        self.assertNotIn("field.name =", source)


class StatementTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self, "sqlite")

    def test_write_commits_and_returns_number_of_rows(self):
        values = {"binary": "b", "host": "h", "availability_zone": "z"}
        self.assertEqual(1, session.write(sa.insert(SERVICES).values(values)))
        self.assertEqual({"h"}, hosts())
        self.assertEqual(0, session.write(sa.delete(SERVICES).where(SERVICES.c.host == "other")))

    def test_reads_return_rows_as_dictionaries(self):
        statement = sa.select(SERVICES.c.host)
        self.assertEqual(([], None), (session.fetch_all(statement), session.fetch_one(statement)))
        with session.writer() as connection:
            insert(connection, "h")
        row = {"host": "h"}
        self.assertEqual(
            ([row], row), (session.fetch_all(statement), session.fetch_one(statement))
        )


class LockRowTest(unittest.TestCase):
    def test_lock_row_on_sqlite_does_nothing(self):
        databases.use(self, "sqlite")
        with session.writer() as connection:
            session.lock_row(connection, models.host_locks, "h")
            rows = connection.execute(sa.select(models.host_locks)).all()
        self.assertEqual([], rows)

    def test_lock_row_with_key_longer_than_column_locks_its_digest(self):
        for kind in ("mariadb", "postgresql"):
            with self.subTest(kind=kind):
                databases.use(self, kind)
                keys = ["x" * 64, "x" * 65, "x" * 66]
                for key in [*keys, *keys]:
                    with session.writer() as connection:
                        session.lock_row(connection, models.quota_locks, key)
                rows = session.fetch_all(sa.select(models.quota_locks))
                self.assertEqual(3, len(rows))
