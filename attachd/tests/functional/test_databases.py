# SPDX-License-Identifier: Apache-2.0
"""Tests of the database functions on MariaDB and PostgreSQL.

All unit tests that take a database from ``kind`` are repeated here on each server.
"""

from collections.abc import Iterator
import functools
import importlib
import importlib.util
import pkgutil
import unittest

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db.attachments import attachment_store, events
from attachd.db.engine import session
from attachd.db.types import type_store
from attachd.db.volumes import volume_metadata, volume_store
from attachd.tests import concurrency
from attachd.tests.fixtures import databases, db_rows
from attachd.tests.selection import full_only
from attachd.tests.unit import db as db_tests
from attachd.tests.unit.db import test_migration, test_quotas
from attachd.tests.unit.db.engine import test_compiled
from attachd.tests.unit.objects import test_attachment, test_volume
from attachd.tests.wait import wait_until

ENDING = {
    "mariadb": (
        """SELECT id FROM information_schema.processlist
        WHERE db = database() AND id <> connection_id()""",
        "KILL {}",
    ),
    "postgresql": (
        """SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()""",
        "SELECT pg_terminate_backend({})",
    ),
}
"""How to find and to end the connections of others to the same database."""


# In MariaDB, tables are not part of a transaction; the statements of CostTest are SQLite's.
NOT_REPEATED = (test_migration.StepsTest, test_migration.UpgradeTest, test_quotas.CostTest)


def _unit_tests() -> Iterator[type[unittest.TestCase]]:
    """Find the classes of unit tests that take a database from ``kind``."""
    found = pkgutil.walk_packages(db_tests.__path__, f"{db_tests.__name__}.")
    of_tables = (importlib.import_module(info.name) for info in found)
    for module in (*of_tables, test_attachment, test_volume):
        for case in vars(module).values():
            if (
                isinstance(case, type)
                and hasattr(case, "kind")
                and case.__module__ == module.__name__
                and case not in NOT_REPEATED
                and unittest.defaultTestLoader.getTestCaseNames(case)
            ):
                yield case


def _repeat(case: type[unittest.TestCase], kind: str) -> None:
    """Define the same tests for another database, under a name of this module."""
    module = case.__module__.partition(".unit.")[2].replace("test_", "")
    words = f"{module}.{case.__name__.removesuffix('Test')}On{kind.title()}".replace("_", ".")
    name = "".join(word[:1].upper() + word[1:] for word in words.split("."))
    assert name not in globals(), name
    repeated = type(name, (case,), {"kind": kind, "__module__": __name__})
    # For CI, one server is enough.
    globals()[name] = repeated if kind == "mariadb" else full_only("databases")(repeated)


for _case in list(_unit_tests()):
    for _kind in ("mariadb", "postgresql"):
        _repeat(_case, _kind)
del _case, _kind  # unittest would load the class under this name as well


class PreparedWithMysqlclient(test_compiled.CompiledStatementTest):
    kind = "mariadb"

    def setUp(self):
        if importlib.util.find_spec("MySQLdb") is None:
            self.skipTest("MySQLdb is an extra, and is not installed")
        super().setUp()
        url = sa.make_url(CONF.database.connection).set(drivername="mysql+mysqldb", query={})
        existing = url.render_as_string(hide_password=False)
        CONF.set_override("connection", existing, group="database")
        session.dispose()


class MigrationOnPostgresql(test_migration.UpgradeTest):
    kind = "postgresql"


class OnMariadb(unittest.TestCase):
    kind = "mariadb"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def _scalar(self, statement, lend=session.writer):
        with lend() as connection:
            return connection.exec_driver_sql(statement).scalar()

    def test_value_that_is_too_long_is_refused_by_mariadb(self):
        volume = db_rows.add_volume()
        for values in ({"name": "x" * 256}, {"size_gib": 2**40}):
            with self.assertRaisesRegex(exception.BadRequest, "cannot be stored"):
                volume_store.update(volume["id"], values)
        self.assertEqual(volume, db_rows.get_volume(volume["id"]))

    def test_lone_surrogate_is_refused_by_mariadb(self):
        with self.assertRaisesRegex(exception.BadRequest, "cannot be stored"):
            volume_store.update(db_rows.add_volume()["id"], {"name": "\ud800"})


class SessionOnMariadb(OnMariadb):
    def test_database_errors_have_no_statement_parameters(self):
        with self.assertRaises(Exception) as caught, session.writer() as connection:
            connection.execute(
                sa.text("SELECT nonesuch FROM volumes WHERE id = :x"), {"x": "secret"}
            )
        self.assertNotIn("secret", str(caught.exception))

    def test_transaction_on_mariadb_sees_commits_of_others(self):
        self.assertEqual("READ-COMMITTED", self._scalar("SELECT @@tx_isolation", session.writer))
        self.assertEqual(1, self._scalar("SELECT @@autocommit", session.reader))

    def test_mariadb_session_is_strict_with_any_server_configuration(self):
        for lend in (session.reader, session.writer):
            self.assertIn("TRADITIONAL", self._scalar("SELECT @@sql_mode", lend))

    def test_mariadb_tables_are_transactional_and_case_sensitive(self):
        statement = (
            "SELECT DISTINCT concat(engine, ' ', table_collation) "
            "FROM information_schema.tables WHERE table_schema = database()"
        )
        self.assertEqual("InnoDB utf8mb4_bin", self._scalar(statement))

    def test_keys_that_differ_in_trailing_blanks_are_refused_by_mariadb(self):
        volume = db_rows.add_volume()["id"]
        with self.assertRaisesRegex(exception.BadRequest, "blanks"):
            volume_metadata.merge(volume, {"a": "1", "a ": "2"})

    def test_events_get_sequence_numbers_while_others_are_read(self):
        row = {"id": "a", "project_id": "p", "volume_id": db_rows.add_volume()["id"]}
        with session.writer() as connection:
            connection.exec_driver_sql(
                "INSERT INTO events (revision, created_at, project_id, volume_id, "
                "attachment_id, type, details) "
                "SELECT seq, now(6), 'p', 'v', 'a', 'detach_refused', '{}' "
                "FROM seq_1_to_20000"
            )
            connection.exec_driver_sql("UPDATE event_sequence SET assigned = 20000")
            for _ in range(50):
                events.record(connection, row, events.DETACH_REFUSED)
        with session.writer() as connection:
            events.record(connection, row, events.DELETED)
            self.assertEqual(20050, events.assign_sequence().assigned)
        self.assertEqual(20051, events.assign_sequence().assigned)

    def test_transaction_sends_only_its_statements_and_one_commit(self):
        volume = db_rows.add_volume()["id"]
        attachment = attachment_store.reserve(volume, {"project_id": db_rows.PROJECT})["id"]
        sent = self._questions(lambda: volume_store.update(volume, {"name": "x"}), session.writer)
        self.assertEqual(2, sent)
        sent = self._questions(lambda: attachment_store.get(attachment, None), session.reader)
        self.assertEqual(1, sent)

    def _questions(self, function, lend):
        """Count what one connection sends; each pool has one here."""
        statement = "SHOW SESSION STATUS LIKE 'Questions'"

        def questions():
            with lend() as connection:
                return int(connection.exec_driver_sql(statement).one()[1])

        idle = -(questions() - questions())
        before = questions()
        function()
        return questions() - before - idle


@full_only("databases")
class OnPostgresql(OnMariadb):
    kind = "postgresql"

    def test_nul_character_is_refused_by_postgresql(self):
        with self.assertRaisesRegex(exception.BadRequest, "cannot be stored"):
            volume_store.update(db_rows.add_volume()["id"], {"name": "\0"})

    def test_transaction_on_postgresql_sees_commits_of_others(self):
        isolation = "SHOW transaction_isolation"
        self.assertEqual("read committed", self._scalar(isolation, session.writer))

    def test_reader_leaves_no_open_transaction_on_postgresql(self):
        with session.reader() as connection:
            connection.exec_driver_sql("SELECT 1")
            state = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            statement = f"{state} AND state LIKE 'idle in transaction%%'"
            self.assertEqual(0, connection.exec_driver_sql(statement).scalar())


@full_only("outages")
class RestartOnMariadb(unittest.TestCase):
    """The server ends all connections, as it does when it is restarted."""

    kind = "mariadb"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def _end_all(self):
        # In one transaction, PostgreSQL would go on to list what it listed first.
        others = sa.create_engine(
            CONF.database.connection, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT"
        )
        find, end = ENDING[self.kind]
        with others.connect() as connection:
            found = connection.exec_driver_sql(find).scalars().all()
            for item in found:
                connection.exec_driver_sql(end.format(item))
            # A server ends a connection some time after it was asked to.
            wait_until(
                lambda: not set(found) & set(connection.exec_driver_sql(find).scalars().all())
            )
        self.assertLess(0, len(found))

    def test_database_restart_is_hidden_from_callers(self):
        volume = db_rows.add_volume()["id"]
        for _ in range(2):
            self._end_all()
            attachment = attachment_store.reserve(volume, {"project_id": db_rows.PROJECT})["id"]
            self._end_all()
            self.assertEqual("reserved", attachment_store.get(attachment, None)["state"])
            self._end_all()
            attachment_store.transition(attachment, volume, attachment_store.Event.CANCEL)

    def test_transaction_cut_off_by_restart_is_done_once(self):
        volume = db_rows.add_volume()["id"]
        attachment = attachment_store.reserve(volume, {"project_id": db_rows.PROJECT})["id"]
        cuts = iter([True, True, False])

        def guard(locked):
            if next(cuts):
                self._end_all()
            return {"generation": locked.attachment["generation"] + 1}

        attachment_store.transition(
            attachment, volume, attachment_store.Event.CONNECT, guard=guard
        )
        self.assertEqual(1, attachment_store.get(attachment, None)["generation"])

    def test_commit_cut_off_by_restart_is_not_repeated(self):
        volume = db_rows.add_volume()["id"]

        def cut(_connection):
            self._end_all()

        sa.event.listen(session._engines().writer, "commit", cut)
        with self.assertRaisesRegex(exception.Unavailable, "may have been stored"):
            attachment_store.reserve(volume, {"project_id": db_rows.PROJECT})


class RestartOnPostgresql(RestartOnMariadb):
    kind = "postgresql"


@full_only("races")
class TypeDeletionOnMariadb(unittest.TestCase):
    kind = "mariadb"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def test_type_delete_and_volume_create_at_once_exclude_each_other(self):
        # The second one sees the result of the first: the foreign key waits for it.
        for _ in range(10):
            type_id = type_store.create({"name": "t"})["id"]
            values = {"project_id": "p", "size_gib": 1, "volume_type_id": type_id}
            outcomes = concurrency.run_at_once(
                functools.partial(type_store.delete, type_id),
                functools.partial(volume_store.create, {**values, "state": "deleting"}, {}),
            )
            failed = {type(error) for error in outcomes if isinstance(error, Exception)}
            if failed == {exception.TypeInUse}:
                (volume,) = db_rows.list_volumes()
                volume_store.transition(volume["id"], volume_store.Event.DELETED)
                type_store.delete(type_id)
            self.assertIn(failed, [{exception.TypeInUse}, {exception.VolumeTypeNotFound}])


class TypeDeletionOnPostgresql(TypeDeletionOnMariadb):
    kind = "postgresql"
