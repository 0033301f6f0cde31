# SPDX-License-Identifier: Apache-2.0
"""Tests of the owners of initiators."""

from unittest import mock

import sqlalchemy as sa

from attachd import exception, host_identity
from attachd.db import host_fences, host_identities, models
from attachd.db.agents import agent_store
from attachd.db.engine import session
from attachd.db.host_identities import Source
from attachd.host_identity import HostIdentity
from attachd.tests.fixtures import databases, db_rows

ITEM = "iscsi:iqn.a"


def identity(name, *identifiers):
    return HostIdentity(name, frozenset(identifiers or {ITEM}))


class ClaimTest(databases.DatabaseCase):
    def owner(self, item=ITEM):
        table = models.host_identities
        row = session.fetch_one(sa.select(table).where(table.c.identifier == item))
        return row and (row["host"], row["source"])

    def claim(self, name, source=Source.CONNECTOR, *identifiers):
        host_identities.claim(identity(name, *identifiers), source)

    def attach(self, name):
        connector = {"host": name, "initiator": "iqn.a"}
        volume = db_rows.add_volume()["id"]
        return db_rows.add_attachment(volume, "attached", host=name, connector=connector)

    def test_first_host_keeps_its_initiator_under_each_spelling(self):
        self.claim("n")
        self.claim("N.example.org")
        self.assertEqual(("n", "connector"), self.owner())

    def test_initiator_that_nothing_uses_is_taken_over(self):
        self.claim("n")
        self.claim("m")
        self.assertEqual(("m", "connector"), self.owner())

    def test_initiator_in_use_is_refused(self):
        self.claim("n")
        self.attach("n")
        with self.assertRaisesRegex(exception.InitiatorTaken, "iqn.a belongs to host n"):
            self.claim("m")
        self.assertEqual(("n", "connector"), self.owner())

    def test_claim_of_user_ends_by_that_of_service_and_not_the_reverse(self):
        self.claim("n")
        self.attach("n")
        self.claim("m", Source.SERVICE)
        self.attach("m")
        for source in (Source.CONNECTOR, Source.SERVICE, Source.AGENT):
            self.assertRaises(exception.InitiatorTaken, self.claim, "n", source)

    def test_own_initiator_gets_the_name_of_the_agent(self):
        self.claim("n.example.org", Source.SERVICE)
        self.claim("n", Source.AGENT)
        self.claim("n.example.org", Source.SERVICE)
        self.assertEqual(("n", "agent"), self.owner())

    def test_initiator_of_registered_agent_is_kept(self):
        agent_store.create("n", "k" * 43)
        report = {"connector": {"host": "n", "initiator": "iqn.a"}}
        report |= {"devices": [], "connector_type": "kernel", "version": "1", "error": None}
        agent_store.record_report("n", report)
        self.assertRaises(exception.InitiatorTaken, self.claim, "m", Source.SERVICE)
        agent_store.delete("n")
        self.claim("m", Source.SERVICE)

    def test_assigned_initiator_is_kept_until_it_is_released(self):
        self.claim("n", Source.ADMIN)
        self.assertEqual({ITEM}, host_identities.list_assigned("n"))
        self.assertRaises(exception.InitiatorTaken, self.claim, "m", Source.AGENT)
        self.claim("m", Source.ADMIN)
        with session.writer() as connection:
            host_identities.release_in(connection, "m")
        self.claim("n")

    def test_initiator_of_fenced_host_stays(self):
        self.claim("n")
        host_fences.fence("n", "dead", None)
        for source in (Source.CONNECTOR, Source.AGENT):
            self.assertRaises(exception.InitiatorTaken, self.claim, "m", source)

    def test_owner_that_attaches_during_takeover_keeps_its_initiator(self):
        self.claim("n")
        found = {"side_effect": [False, True]}
        with mock.patch.object(host_identities, "_is_in_use", **found):
            self.assertRaises(exception.InitiatorTaken, self.claim, "m")
        self.assertEqual(("n", "connector"), self.owner())

    def test_machine_id_of_another_host_is_no_conflict(self):
        self.claim("n", Source.CONNECTOR, "machine:1")
        self.attach("n")
        self.claim("m", Source.CONNECTOR, "machine:1", "iscsi:iqn.m")
        self.assertEqual("n", self.owner("machine:1")[0])


class PurgeTest(databases.DatabaseCase):
    def test_old_claims_of_hosts_with_nothing_attached_are_removed(self):
        for name in ("unused", "used", "closed"):
            host_identities.claim(identity(name, f"iscsi:{name}"), Source.CONNECTOR)
        host_identities.claim(identity("agent", "iscsi:agent"), Source.AGENT)
        connector = {"host": "used", "initiator": "used"}
        volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume, "attached", host="used", connector=connector)
        host_fences.drain("closed", "repair", None)
        self.assertEqual(0, host_identities.purge(9))
        later = models.now() + 2 * host_identities.UNUSED_AFTER
        with mock.patch.object(models, "now", return_value=later):
            self.assertEqual(1, host_identities.purge(9))
        left = session.fetch_all(sa.select(models.host_identities.c.host))
        self.assertEqual({"agent", "closed", "used"}, {row["host"] for row in left})

    def test_purge_keeps_claim_of_connect_that_has_read_it_meanwhile(self):
        connector = {"host": "n", "initiator": "iqn.a"}
        identity = host_identity.of_connector(connector)
        host_identities.claim(identity, Source.CONNECTOR)

        def connect(limit):
            removed = remove(limit)
            db_rows.add_attachment(
                db_rows.add_volume()["id"], "connecting", host="n", connector=connector
            )
            return removed

        later = models.now() + 2 * host_identities.UNUSED_AFTER
        remove = host_identities._remove_unused
        with (
            mock.patch.object(models, "now", return_value=later),
            mock.patch.object(host_identities, "_remove_unused", connect),
        ):
            host_identities.purge(9)
        other = host_identity.of_connector({**connector, "host": "other"})
        with self.assertRaises(exception.InitiatorTaken):
            host_identities.claim(other, Source.CONNECTOR)


class AdmitTest(databases.DatabaseCase):
    def row(self, name, **keys):
        connector = {"host": name, "initiator": "iqn.a", **keys}
        return db_rows.add_attachment(
            db_rows.add_volume()["id"], "connecting", host=name, connector=connector
        ) | {"agent": None, "by_service": None}

    def statements(self, row):
        before = session.counters().statements
        host_identities.admit(row)
        return session.counters().statements - before

    def test_known_host_costs_one_statement(self):
        row = self.row("n", wwpns=["1", "2", "3", "4", "5"], nqn="nqn.a")
        self.assertGreater(self.statements(row), 1)
        self.assertEqual(1, self.statements(row))
        host_fences.drain("other", "repair", None)
        self.assertEqual(1, self.statements(row))

    def test_fenced_host_is_refused_under_other_name(self):
        host_identities.admit(self.row("n"))
        host_fences.fence("n", "dead", None)
        for name in ("n", "N.example.org", "m"):
            self.assertRaises(exception.HostFenced, host_identities.admit, self.row(name))
