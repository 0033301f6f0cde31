# SPDX-License-Identifier: Apache-2.0
"""Timeouts passed to drivers and servers; see also functional/test_database_outages.py."""

import os
import unittest
from unittest import mock

import psycopg2
from psycopg2 import extensions
import sqlalchemy as sa

from attachd.conf import CONF
from attachd.db.engine import timeouts

LIMITS = timeouts.Timeouts(connect=3, answer=20)


class ConnectArgsTest(unittest.TestCase):
    def arguments(self, url):
        return timeouts.connect_args(sa.make_url(url), LIMITS)

    def test_from_options_reads_configuration(self):
        self.assertEqual((5, 20), timeouts.from_options(CONF.database))

    def test_mariadb_drivers_get_same_arguments(self):
        result = {"connect_timeout": 3, "read_timeout": 20, "write_timeout": 20}
        for driver in ("pymysql", "mysqldb"):
            self.assertEqual(result, self.arguments(f"mysql+{driver}://u@h/d"))

    def test_url_overrides_arguments(self):
        result = self.arguments("mysql+pymysql://u@h/d?read_timeout=600")
        self.assertEqual({"connect_timeout": 3, "write_timeout": 20}, result)

    def test_libpq_gets_tcp_timeouts(self):
        for driver in ("psycopg2", "psycopg"):
            result = self.arguments(f"postgresql+{driver}://u@h/d")
            self.assertEqual((3, 20_000), (result["connect_timeout"], result["tcp_user_timeout"]))
            unnoticed = result["keepalives_idle"] + 3 * result["keepalives_interval"]
            self.assertLessEqual(unnoticed, 20)

    def test_unknown_driver_gets_no_arguments(self):
        self.assertEqual({}, self.arguments("sqlite:////tmp/x"))


class SessionTest(unittest.TestCase):
    def test_lock_timeout_is_shorter_than_read_timeout(self):
        self.assertLess(LIMITS.lock, LIMITS.answer)
        self.assertEqual(1, timeouts.Timeouts(1, 1).lock)
        self.assertIn(
            "SET lock_timeout = '10s'", timeouts.session_statements("postgresql", LIMITS)
        )
        (result,) = timeouts.session_statements("mysql", LIMITS)
        self.assertRegex(result, "^SET SESSION innodb_lock_wait_timeout = 10 ")

    def test_idle_timeout_is_longer_than_read_timeout(self):
        self.assertGreater(LIMITS.idle, LIMITS.answer)
        for dialect in ("postgresql", "mariadb"):
            self.assertIn("40", " ".join(timeouts.session_statements(dialect, LIMITS)))

    def test_sqlite_gets_no_statements(self):
        self.assertEqual([], timeouts.session_statements("sqlite", LIMITS))


class WaitCallbackTest(unittest.TestCase):
    def connection(self, *states, **values):
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        self.writing = writing
        return mock.Mock(
            poll=mock.Mock(side_effect=states),
            fileno=lambda: reading,
            status=extensions.STATUS_READY,
            **values,
        )

    def test_silent_server_raises_after_timeout(self):
        limits = timeouts.Timeouts(connect=60, answer=0)
        silent = self.connection(extensions.POLL_READ, limits=limits)
        with self.assertRaisesRegex(psycopg2.OperationalError, "silent"):
            timeouts._wait_callback(silent)

    def test_connecting_uses_connect_timeout(self):
        for dsn, limits in (
            ("host=h", timeouts.Timeouts(connect=0, answer=60)),
            ("host=h connect_timeout=0", timeouts.Timeouts(connect=60, answer=60)),
        ):
            silent = self.connection(extensions.POLL_READ, limits=limits, dsn=dsn)
            silent.status = extensions.STATUS_SETUP
            with mock.patch.object(timeouts.select, "poll") as poll:
                poll.return_value.poll.return_value = []
                self.assertRaises(psycopg2.OperationalError, timeouts._wait_callback, silent)
            poll.return_value.poll.assert_called_once_with(0.0)

    def test_answer_ends_waiting(self):
        states = (extensions.POLL_READ, extensions.POLL_READ, extensions.POLL_OK)
        for limits in (LIMITS, None):
            answering = self.connection(*states, limits=limits)
            os.write(self.writing, b"x")
            timeouts._wait_callback(answering)
            self.assertEqual(3, answering.poll.call_count)
