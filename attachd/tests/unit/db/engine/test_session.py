# SPDX-License-Identifier: Apache-2.0
"""Reader and writer; functional/test_databases.py repeats this on servers."""

import os
import unittest

from oslo_db import exception as db_exception
from oslo_db import options as oslo_db_options
import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.engine import session
from attachd.tests.fixtures import databases

SERVICES = models.services


def insert(connection, host):
    values = {"binary": "b", "host": host, "availability_zone": "z"}
    connection.execute(sa.insert(SERVICES).values(**values))


def hosts():
    with session.reader() as connection:
        return set(connection.execute(sa.select(SERVICES.c.host)).scalars())


class Gone(Exception):
    """What a test raises in the middle of a transaction."""


class TransactionTest(unittest.TestCase):
    kind = "sqlite"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

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
        self.assertEqual([False, False], [each._has_events for each in engines])
        session.counters()
        self.assertEqual([True, True], [each._has_events for each in engines])

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
