# SPDX-License-Identifier: Apache-2.0
"""What drivers and servers are told; functional/test_database_outages shows that it works."""

import os
import unittest
from unittest import mock

import psycopg2
from psycopg2 import extensions
import sqlalchemy as sa

from attachd.conf import CONF
from attachd.db.engine import timeouts

LIMITS = timeouts.Timeouts(connect=3, answer=20)


class ArgumentsTest(unittest.TestCase):
    def arguments(self, url):
        return timeouts.connect_args(sa.make_url(url), LIMITS)

    def test_the_limits_are_those_of_the_configuration(self):
        self.assertEqual((5, 20), timeouts.from_options(CONF.database))

    def test_both_drivers_of_mariadb_are_told_the_same(self):
        told = {"connect_timeout": 3, "read_timeout": 20, "write_timeout": 20}
        for driver in ("pymysql", "mysqldb"):
            self.assertEqual(told, self.arguments(f"mysql+{driver}://u@h/d"))

    def test_what_the_url_says_goes_before(self):
        told = self.arguments("mysql+pymysql://u@h/d?read_timeout=600")
        self.assertEqual({"connect_timeout": 3, "write_timeout": 20}, told)

    def test_libpq_notices_a_machine_that_is_gone(self):
        for driver in ("psycopg2", "psycopg"):
            told = self.arguments(f"postgresql+{driver}://u@h/d")
            self.assertEqual((3, 20_000), (told["connect_timeout"], told["tcp_user_timeout"]))
            unnoticed = told["keepalives_idle"] + 3 * told["keepalives_interval"]
            self.assertLessEqual(unnoticed, 20)

    def test_a_driver_that_is_not_known_is_told_nothing(self):
        self.assertEqual({}, self.arguments("sqlite:////tmp/x"))


class SessionTest(unittest.TestCase):
    def test_a_server_gives_up_on_locks_before_we_give_up_on_the_server(self):
        self.assertLess(LIMITS.lock, LIMITS.answer)
        self.assertEqual(1, timeouts.Timeouts(1, 1).lock)
        self.assertIn(
            "SET lock_timeout = '10s'", timeouts.session_statements("postgresql", LIMITS)
        )
        (told,) = timeouts.session_statements("mysql", LIMITS)
        self.assertRegex(told, "^SET SESSION innodb_lock_wait_timeout = 10 ")

    def test_a_server_ends_silent_transactions_after_we_have_given_up(self):
        self.assertGreater(LIMITS.idle, LIMITS.answer)
        for dialect in ("postgresql", "mariadb"):
            self.assertIn("40", " ".join(timeouts.session_statements(dialect, LIMITS)))

    def test_sqlite_is_told_nothing(self):
        self.assertEqual([], timeouts.session_statements("sqlite", LIMITS))


class WaitTest(unittest.TestCase):
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

    def test_silence_is_an_error_after_a_while(self):
        limits = timeouts.Timeouts(connect=60, answer=0)
        silent = self.connection(extensions.POLL_READ, limits=limits)
        with self.assertRaisesRegex(psycopg2.OperationalError, "silent"):
            timeouts._wait_callback(silent)

    def test_a_connection_that_is_being_made_has_the_time_that_is_configured_for_that(self):
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

    def test_an_answer_ends_the_waiting(self):
        states = (extensions.POLL_READ, extensions.POLL_READ, extensions.POLL_OK)
        for limits in (LIMITS, None):
            answering = self.connection(*states, limits=limits)
            os.write(self.writing, b"x")
            timeouts._wait_callback(answering)
            self.assertEqual(3, answering.poll.call_count)
