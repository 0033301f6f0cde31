# SPDX-License-Identifier: Apache-2.0
"""Tests of calls while the database refuses, is silent, disconnects or is slow.

Each outage is tested with the real servers, behind a proxy that fails, and with each driver for
them.  The timeouts are short where no response comes; the tests show that they hold.
"""

import contextlib
import importlib.util
import threading
import unittest
from unittest import mock

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import migration, models
from attachd.db.engine import session
from attachd.db.volumes import volume_store
from attachd.tests.fixtures import conf_fixture, databases, db_rows, tcp_proxy
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

LIMITS = {"connect_timeout": 60, "read_timeout": 60, "retry_timeout": 60}
"""Seconds; long enough for what is only slow."""

SHORT = {"connect_timeout": 1, "read_timeout": 2, "retry_timeout": 1}
"""Seconds for what never answers; without a limit, each of these would take for ever."""


class SilenceWithMysqlclient(unittest.TestCase):
    kind = "mariadb"
    driver = "mysql+mysqldb"
    module = "MySQLdb"

    def setUp(self) -> None:
        super().setUp()
        if importlib.util.find_spec(self.module) is None:
            self.skipTest(f"{self.module} is an extra, and is not installed")
        self.direct = databases.use(self, self.kind)
        self.volume = db_rows.add_volume()["id"]
        self.proxy, url = tcp_proxy.in_front_of(self, self.direct)
        through = sa.make_url(url).set(drivername=self.driver, query={})
        values = {"connection": through.render_as_string(hide_password=False), **LIMITS}
        for name, value in values.items():
            conf_fixture.override(self, name, value, "database")
        session.dispose()
        self.addCleanup(session.dispose)
        self.assertEqual(self.volume, volume_store.get(self.volume, None)["id"])

    def assert_unavailable(self, says, *calls):
        for call in calls:
            with self.assertRaisesRegex(exception.Unavailable, says):
                call()

    def hurry(self, **limits):
        """Give the database up after seconds from now on; there is a connection to it."""
        for name, value in {**SHORT, **limits}.items():
            CONF.set_override(name, value, "database")
        session.dispose()
        wait_until(lambda: self.succeeds(self.read))

    def succeeds(self, call):
        with contextlib.suppress(exception.Unavailable):
            call()
            return True
        return False

    def read(self):
        return volume_store.get(self.volume, None)["name"]

    def write(self, name="x"):
        volume_store.update(self.volume, {"name": name})

    def assert_all_is_well(self):
        self.write("well")
        self.assertEqual("well", self.read())

    def assert_found_again(self):
        """All is well as soon as the machine is not too slow for the limits."""
        wait_until(lambda: self.succeeds(self.assert_all_is_well))

    def test_database_that_is_stopped_is_reported_soon_and_used_again(self):
        self.proxy.refuse()
        self.assert_unavailable("does not answer. Try again", self.read)
        self.proxy.pass_on()
        self.assert_all_is_well()

    def test_database_that_falls_silent_times_out_and_is_used_again(self):
        self.hurry()
        self.proxy.freeze()
        self.assert_unavailable("does not answer. Try again", self.read, self.write)
        self.proxy.pass_on()
        self.assert_found_again()

    def test_database_that_is_silent_to_new_connections_times_out(self):
        self.hurry()
        session.dispose()
        self.proxy.freeze()
        self.assert_unavailable("does not answer. Try again", self.read)
        self.proxy.pass_on()
        self.assert_found_again()


@full_only("outages")
class OutageOnMariadb(SilenceWithMysqlclient):
    driver = "mysql+pymysql"
    module = "pymysql"
    asked = "SELECT @@innodb_lock_wait_timeout"
    limited: int | str = LIMITS["read_timeout"] // 2

    def test_broken_database_connections_are_replaced_without_error(self):
        for _ in range(3):
            self.proxy.cut()
            self.assert_all_is_well()

    def test_lost_database_response_never_repeats_or_halves_a_change(self):
        self.proxy.drop_responses(0.3)
        done = 0
        for number in range(8):
            try:
                self.write(f"n{number}")
                done += 1
            except exception.Unavailable:
                continue
            self.proxy.pass_on()
            self.assertEqual(f"n{number}", self.read())
            self.proxy.drop_responses(0.3)
        self.proxy.pass_on()
        self.assertLess(0, done)
        self.assert_all_is_well()

    def test_lock_held_too_long_times_out(self):
        self.hurry()
        other = sa.create_engine(self.direct, poolclass=sa.NullPool)
        with other.connect() as holder:
            changed = models.volumes.update().where(models.volumes.c.id == self.volume)
            holder.execute(changed.values(name="mine"))
            self.assert_unavailable("too busy. Try again", self.write)
            holder.rollback()
        self.assert_found_again()

    def test_silent_client_in_transaction_loses_its_locks(self):
        self.hurry(read_timeout=10)  # as long as the first statement may take
        changed = models.volumes.update().where(models.volumes.c.id == self.volume)
        with self.assertRaises(TimeoutError), session.writer() as connection:
            connection.execute(changed.values(name="frozen"))
            self.proxy.freeze()
            wait_until(lambda: self.is_changed(changed.values(name="free")))
            self.proxy.pass_on()
            raise TimeoutError
        wait_until(lambda: self.succeeds(self.read))
        self.assertEqual("free", volume_store.get(self.volume, None)["name"])

    def is_changed(self, statement):
        """Execute a statement by another connection; return whether its locks were free."""
        other = sa.create_engine(self.direct, poolclass=sa.NullPool)
        # PostgreSQL and MariaDB have their own limit.
        with contextlib.suppress(sa.exc.OperationalError), other.begin() as waiting:
            waiting.execute(statement)
            return True
        return False

    def test_database_outage_leaves_no_waiting_thread(self):
        def threads():
            return {thread for thread in threading.enumerate() if thread.name.startswith("caller")}

        self.hurry()
        self.proxy.freeze()
        callers = [
            threading.Thread(target=self._quietly, args=(self.read,), name=f"caller{number}")
            for number in range(8)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(TIMEOUT)
        self.assertEqual(set(), threads())
        self.proxy.pass_on()
        self.assert_found_again()

    def _quietly(self, call):
        with contextlib.suppress(exception.Unavailable):
            call()

    def test_driver_options_of_the_operator_override_timeouts(self):
        conf_fixture.override(self, "connection_parameters", "connect_timeout=77", "database")
        session.dispose()
        engine = session._engines().writer
        result = {}
        sa.event.listen(
            engine, "do_connect", lambda _dialect, _record, _args, given: result.update(given)
        )
        with engine.connect() as connection:
            connection.execute(sa.select(1))
        self.assertEqual("77", str(result["connect_timeout"]))

    def test_migration_has_no_timeouts(self):
        self.assertTrue(self.is_limited())
        seen = []
        with mock.patch.object(migration, "_upgrade", lambda _to: seen.append(self.is_limited())):
            migration.upgrade()
        self.assertEqual([False], seen)
        self.assertTrue(self.is_limited())

    def is_limited(self):
        found = []
        for lend in (session.reader, session.writer):
            with lend() as connection:
                found.append(connection.exec_driver_sql(self.asked).scalar() == self.limited)
        self.assertEqual(found[0], found[1])
        return found[0]


class OutageOnPostgresql(OutageOnMariadb):
    kind = "postgresql"
    driver = "postgresql+psycopg2"
    module = "psycopg2"
    asked = "SHOW lock_timeout"
    limited = "30s"
