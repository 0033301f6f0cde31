# SPDX-License-Identifier: Apache-2.0
"""The database functions on MariaDB and PostgreSQL, and what only they can get wrong.

All unit tests that take a database from ``kind`` are repeated here on each server.
"""

import importlib.util
import unittest

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import api, attachments, events, types, volume_creation, volume_metadata, volumes
from attachd.tests import databases, rows
from attachd.tests.unit.db import (
    test_agent_devices,
    test_agent_moves,
    test_agent_removal,
    test_agents,
    test_api,
    test_attachment_queries,
    test_attachment_steps,
    test_attachments,
    test_columns,
    test_copies,
    test_default_types,
    test_due,
    test_events,
    test_idempotency_keys,
    test_image_metadata,
    test_leases,
    test_legacy,
    test_legacy_claims,
    test_messages,
    test_migration,
    test_overview,
    test_paging,
    test_prepared,
    test_processes,
    test_qos_specs,
    test_quota_claims,
    test_quotas,
    test_retrying,
    test_seal_rotation,
    test_sealed,
    test_services,
    test_shared_connections,
    test_twins,
    test_type_access,
    test_types,
    test_volume_changes,
    test_volume_creation,
    test_volume_metadata,
    test_volume_queries,
    test_volumes,
)
from attachd.tests.unit.objects import test_rows
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
SERVERS = ("mariadb", "postgresql")
REPEATED = [
    test_agent_moves.AgentMovesTest,
    test_agent_devices.ForgottenTest,
    test_agent_removal.AgentRemovalTest,
    test_agents.AgentsTest,
    test_agents.WorkTest,
    test_api.TransactionTest,
    test_attachment_queries.QueriesTest,
    test_attachment_steps.ConsequencesTest,
    test_attachments.CompleteTest,
    test_attachments.EndTest,
    test_attachments.MoveAloneTest,
    test_attachments.MoveTest,
    test_attachments.ReadTest,
    test_attachments.ReserveTest,
    test_copies.CopiesTest,
    test_default_types.DefaultTypesTest,
    test_due.ConnectTest,
    test_due.DisconnectTest,
    test_due.WithdrawTest,
    test_events.TellTest,
    test_events.PlacesTest,
    test_events.ForgetTest,
    test_idempotency_keys.IdempotencyKeysTest,
    test_idempotency_keys.MakeTest,
    test_image_metadata.ImageMetadataTest,
    test_leases.LeasesTest,
    test_legacy.AttachTest,
    test_legacy.BindTest,
    test_legacy.ConnectionTest,
    test_legacy.DetachingTest,
    test_legacy.HoldTest,
    test_legacy_claims.HoldOfTest,
    test_legacy_claims.LaterTest,
    test_legacy_claims.ModeTest,
    test_messages.MessagesTest,
    test_columns.ColumnsTest,
    test_paging.ConditionsTest,
    test_paging.PagesTest,
    test_overview.OverviewTest,
    test_prepared.PreparedTest,
    test_processes.ProcessesTest,
    test_qos_specs.ConnectTest,
    test_qos_specs.RowsTest,
    test_qos_specs.TypesTest,
    test_quota_claims.CreateTest,
    test_quota_claims.ExtendTest,
    test_quota_claims.RetypeTest,
    test_quotas.LimitsTest,
    test_quotas.LoweringTest,
    test_quotas.TypesTest,
    test_quotas.UsedTest,
    test_retrying.MissingTablesTest,
    test_seal_rotation.RotationTest,
    test_sealed.SealedTest,
    test_services.ServicesTest,
    test_shared_connections.BesideTest,
    test_shared_connections.UsersTest,
    test_type_access.AccessTest,
    test_twins.ReserveTest,
    test_types.TypesTest,
    test_volume_changes.ReadonlyTest,
    test_volume_changes.RetypeTest,
    test_volume_changes.SharedTargetsTest,
    test_volume_creation.StoreTest,
    test_volume_metadata.MetadataTest,
    test_volume_queries.QueriesTest,
    test_volumes.MoveTest,
    test_volumes.ResetTest,
    test_volumes.ReadTest,
    test_rows.RowsTest,
]
"""Not test_migration's: in MariaDB, tables are not part of a transaction."""


def _repeat(case: type[unittest.TestCase], kind: str) -> None:
    """Define the same tests for another database, under a name of this module."""
    noun = case.__module__.rpartition("test_")[2]
    name = f"{noun.title().replace('_', '')}{case.__name__.removesuffix('Test')}On{kind.title()}"
    globals()[name] = type(name, (case,), {"kind": kind, "__module__": __name__})


for _kind in SERVERS:
    for _case in REPEATED:
        _repeat(_case, _kind)


class PreparedWithMysqlclient(test_prepared.PreparedTest):
    kind = "mariadb"

    def setUp(self):
        if importlib.util.find_spec("MySQLdb") is None:
            self.skipTest("MySQLdb is an extra, and is not installed")
        super().setUp()
        url = sa.make_url(CONF.database.connection).set(drivername="mysql+mysqldb", query={})
        there = url.render_as_string(hide_password=False)
        CONF.set_override("connection", there, group="database")
        api.dispose()


class MigrationOnPostgresql(test_migration.UpgradeTest):
    kind = "postgresql"


class OnMariadb(unittest.TestCase):
    kind = "mariadb"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def _scalar(self, statement, lend=api.writer):
        with lend() as connection:
            return connection.exec_driver_sql(statement).scalar()

    def test_a_value_that_does_not_fit_is_refused_and_not_cut(self):
        volume = rows.add_volume()
        for values in ({"name": "x" * 256}, {"size_gib": 2**40}):
            with self.assertRaisesRegex(exception.BadRequest, "cannot be stored"):
                volumes.update(volume["id"], values)
        self.assertEqual(volume, rows.volume(volume["id"]))

    def test_half_a_surrogate_pair_in_a_string_is_refused(self):
        with self.assertRaisesRegex(exception.BadRequest, "cannot be stored"):
            volumes.update(rows.add_volume()["id"], {"name": "\ud800"})


class SessionOnMariadb(OnMariadb):
    def test_what_is_in_a_statement_is_in_no_error(self):
        with self.assertRaises(Exception) as caught, api.writer() as connection:
            connection.execute(
                sa.text("SELECT nonesuch FROM volumes WHERE id = :x"), {"x": "secret"}
            )
        self.assertNotIn("secret", str(caught.exception))

    def test_transactions_see_what_others_have_committed(self):
        self.assertEqual("READ-COMMITTED", self._scalar("SELECT @@tx_isolation", api.writer))
        self.assertEqual(1, self._scalar("SELECT @@autocommit", api.reader))

    def test_the_server_is_strict_whatever_its_own_configuration(self):
        for lend in (api.reader, api.writer):
            self.assertIn("TRADITIONAL", self._scalar("SELECT @@sql_mode", lend))

    def test_tables_keep_transactions_and_tell_strings_apart(self):
        statement = (
            "SELECT DISTINCT concat(engine, ' ', table_collation) "
            "FROM information_schema.tables WHERE table_schema = database()"
        )
        self.assertEqual("InnoDB utf8mb4_bin", self._scalar(statement))

    def test_keys_that_differ_only_in_blanks_at_their_ends_are_refused(self):
        volume = rows.add_volume()["id"]
        with self.assertRaisesRegex(exception.BadRequest, "blanks"):
            volume_metadata.merge(volume, {"a": "1", "a ": "2"})

    def test_events_get_places_while_others_are_told(self):
        row = {"id": "a", "project_id": "p", "volume_id": rows.add_volume()["id"]}
        with api.writer() as connection:
            connection.exec_driver_sql(
                "INSERT INTO events (revision, created_at, project_id, volume_id, "
                "attachment_id, type, details) SELECT seq, now(6), 'p', 'v', 'a', 'kept', '{}' "
                "FROM seq_1_to_20000"
            )
            connection.exec_driver_sql("UPDATE event_places SET given = 20000")
            for _ in range(50):
                events.tell(connection, row, events.KEPT)
        with api.writer() as connection:
            events.tell(connection, row, events.DELETED)
            self.assertEqual(20050, events.give_places().given)
        self.assertEqual(20051, events.give_places().given)

    def test_nothing_is_sent_but_the_statements_and_one_commit(self):
        volume = rows.add_volume()["id"]
        attachment = attachments.reserve(volume, {"project_id": "p"})["id"]
        sent = self._questions(lambda: volumes.update(volume, {"name": "x"}), api.writer)
        self.assertEqual(2, sent)
        sent = self._questions(lambda: attachments.get(attachment, None), api.reader)
        self.assertEqual(1, sent)

    def _questions(self, function, lend):
        """Count what one connection sends; each pool has one, as nobody else uses it."""
        statement = "SHOW SESSION STATUS LIKE 'Questions'"

        def questions():
            with lend() as connection:
                return int(connection.exec_driver_sql(statement).one()[1])

        idle = -(questions() - questions())
        before = questions()
        function()
        return questions() - before - idle


class OnPostgresql(OnMariadb):
    kind = "postgresql"

    def test_a_nul_in_a_string_is_refused(self):
        with self.assertRaisesRegex(exception.BadRequest, "cannot be stored"):
            volumes.update(rows.add_volume()["id"], {"name": "\0"})

    def test_transactions_see_what_others_have_committed(self):
        isolation = "SHOW transaction_isolation"
        self.assertEqual("read committed", self._scalar(isolation, api.writer))

    def test_a_reader_leaves_no_transaction_open(self):
        with api.reader() as connection:
            connection.exec_driver_sql("SELECT 1")
            state = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            statement = f"{state} AND state LIKE 'idle in transaction%%'"
            self.assertEqual(0, connection.exec_driver_sql(statement).scalar())


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
            for each in found:
                connection.exec_driver_sql(end.format(each))
            # A server ends a connection some time after it was asked to.
            wait_until(
                lambda: not set(found) & set(connection.exec_driver_sql(find).scalars().all())
            )
        self.assertLess(0, len(found))

    def test_callers_do_not_notice(self):
        volume = rows.add_volume()["id"]
        for _ in range(2):
            self._end_all()
            attachment = attachments.reserve(volume, {"project_id": "p"})["id"]
            self._end_all()
            self.assertEqual("reserved", attachments.get(attachment, None)["state"])
            self._end_all()
            attachments.move(attachment, volume, attachments.Event.CANCEL)

    def test_a_transaction_that_was_cut_off_is_done_once(self):
        volume = rows.add_volume()["id"]
        attachment = attachments.reserve(volume, {"project_id": "p"})["id"]
        cuts = iter([True, True, False])

        def guard(_volume, mine, _others):
            if next(cuts):
                self._end_all()
            return {"generation": mine["generation"] + 1}

        attachments.move(attachment, volume, attachments.Event.CONNECT, guard=guard)
        self.assertEqual(1, attachments.get(attachment, None)["generation"])

    def test_a_commit_that_was_cut_off_is_not_repeated(self):
        volume = rows.add_volume()["id"]

        def cut(_connection):
            self._end_all()

        sa.event.listen(api._engines().writer, "commit", cut)
        with self.assertRaisesRegex(exception.Unavailable, "may have been stored"):
            attachments.reserve(volume, {"project_id": "p"})


class RestartOnPostgresql(RestartOnMariadb):
    kind = "postgresql"


class TypeDeletionOnMariadb(unittest.TestCase):
    kind = "mariadb"

    def setUp(self):
        super().setUp()
        databases.use(self, self.kind)

    def test_a_type_and_a_volume_of_it_are_not_both_deleted_and_made(self):
        # Whoever is second sees what the first one did: the foreign key waits for it.
        for _ in range(10):
            failed = self._race(types.create({"name": "t"})["id"])
            self.assertIn(failed, [{exception.TypeInUse}, {exception.VolumeTypeNotFound}])

    def _race(self, type_id):
        values = {"project_id": "p", "size_gib": 1, "state": "deleting", "volume_type_id": type_id}
        outcomes = databases.together(
            lambda: types.delete(type_id), lambda: volume_creation.insert(values, {})
        )
        failed = {type(each) for each in outcomes if isinstance(each, Exception)}
        if failed == {exception.TypeInUse}:
            (volume,) = rows.volumes()
            volumes.move(volume["id"], volumes.Event.DELETED)
            types.delete(type_id)
        return failed


class TypeDeletionOnPostgresql(TypeDeletionOnMariadb):
    kind = "postgresql"
