# SPDX-License-Identifier: Apache-2.0
"""Registered hosts, their keys, and their attachments."""

import datetime
import threading
from unittest import mock

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import host_fences, host_identities, models
from attachd.db.agents import agent_store
from attachd.db.attachments import attachment_rows, attachment_store
from attachd.db.engine import session
from attachd.host_identity import HostIdentity
from attachd.tests.fixtures import databases, db_rows, fake_agent
from attachd.tests.wait import TIMEOUT

HOST = "compute-1"
KEY = "k" * 43
SAID = {
    "connector": {"host": HOST, "initiator": "iqn.2026-01.org.example:1"},
    "devices": [{"attachment_id": "a", "volume_id": "v", "path": "/dev/sdb", "size_bytes": 1}],
    "connector_type": "kernel",
    "version": "0.1.0",
    "error": None,
}


class AgentsTest(databases.DatabaseCase):
    def test_create_registers_host_once_and_keeps_key(self):
        self.assertTrue(agent_store.create(HOST, KEY))
        self.assertFalse(agent_store.create(HOST, "another key"))
        agent_store.check_key(HOST, KEY)

    def test_check_key_with_wrong_key_is_forbidden(self):
        agent_store.create(HOST, KEY)
        agent_store.create("compute-2", "o" * 43)
        for wrong in ("", KEY[:-1], KEY + "k", "o" * 43, agent_store.digest(KEY)):
            with self.assertRaisesRegex(exception.Forbidden, "attachd-manage agent remove"):
                agent_store.check_key(HOST, wrong)

    def test_check_key_of_unknown_host_raises_not_found(self):
        with self.assertRaisesRegex(exception.AgentNotFound, HOST):
            agent_store.check_key(HOST, KEY)
        with self.assertRaises(exception.AgentNotFound):
            agent_store.get(HOST)

    def test_create_stores_digest_only(self):
        agent_store.create(HOST, KEY)
        with session.reader() as connection:
            (row,) = connection.execute(models.agents.select()).all()
        self.assertNotIn(KEY, str(row))
        self.assertNotIn("key_digest", agent_store.get(HOST))

    def test_find_device_returns_path_in_report_of_host(self):
        agent_store.create(HOST, KEY)
        self.assertIsNone(agent_store.find_device(HOST, "a"))
        device = SAID["devices"][0]
        missing = {**device, "attachment_id": "b", "path": None}
        agent_store.record_report(HOST, {**SAID, "devices": [device, missing]})
        self.assertEqual("/dev/sdb", agent_store.find_device(HOST, "a"))
        for host, attachment_id in ((HOST, "b"), (HOST, "c"), ("compute-2", "a")):
            self.assertIsNone(agent_store.find_device(host, attachment_id))

    def test_delete_removes_host_with_key(self):
        agent_store.create(HOST, KEY)
        self.assertTrue(agent_store._delete(HOST))
        self.assertFalse(agent_store._delete(HOST))
        self.assertTrue(agent_store.create(HOST, "another key"))
        agent_store.check_key(HOST, "another key")

    def test_create_under_another_spelling_is_refused(self):
        agent_store.create(HOST, KEY)
        for spelling in (HOST.upper(), f"{HOST}."):
            with self.assertRaisesRegex(exception.Conflict, f"is registered as {HOST}"):
                agent_store.create(spelling, KEY)
        self.assertTrue(agent_store.create(f"{HOST}.example.org", KEY))

    def test_record_report_stores_values(self):
        agent_store.create(HOST, KEY)
        agent_store.record_report(HOST, SAID)
        known = agent_store.get(HOST)
        self.assertEqual(SAID, {name: known[name] for name in SAID})
        self.assertEqual([known], agent_store.list_all())

    def test_record_report_with_initiator_of_other_host_is_stored_without_connector(self):
        own = {"initiator": "iqn.a", "nqn": "nqn.a", "wwpns": ["10", "11"]}
        agent_store.create(HOST, KEY)
        agent_store.create("compute-2", KEY)
        agent_store.record_report(HOST, {**SAID, "connector": {"host": HOST, **own}})
        for stolen in ({"initiator": "IQN.A"}, {"nqn": "nqn.a"}, {"wwpns": ["9", "11"]}):
            agent_store.record_report("compute-2", {**SAID, "connector": {"host": "x", **stolen}})
            row = agent_store.get("compute-2")
            self.assertIsNone(row["connector"], stolen)
            self.assertRegex(row["error"], f"belongs to host {HOST}.*agent remove {HOST}")
        agent_store.record_report(HOST, {**SAID, "connector": {"host": HOST, **own}})
        self.assertIsNone(agent_store.get(HOST)["error"])
        agent_store.record_report(
            "compute-2", {**SAID, "connector": {"host": "x", "initiator": "iqn.b"}}
        )
        self.assertEqual("iqn.b", agent_store.get("compute-2")["connector"]["initiator"])

    def test_record_report_without_connector_keeps_initiators(self):
        for host in (HOST, "compute-2"):
            agent_store.create(host, KEY)
        agent_store.record_report(HOST, SAID)
        agent_store.record_report(HOST, {**SAID, "connector": None, "error": "iscsiadm hangs"})
        agent_store.record_report("compute-2", SAID)
        self.assertIn(f"belongs to host {HOST}", agent_store.get("compute-2")["error"])
        agent_store.record_report(HOST, SAID)
        self.assertEqual(SAID["connector"], agent_store.get(HOST)["connector"])
        agent_store.record_report(
            HOST, {**SAID, "connector": {"host": HOST, "initiator": "iqn.other"}}
        )
        agent_store.record_report("compute-2", SAID)
        self.assertIsNone(agent_store.get("compute-2")["error"])

    def test_record_report_reads_as_much_with_many_hosts(self):
        counts = []
        for number in range(12):
            host = f"compute-{number}"
            agent_store.create(host, KEY)
            connector = {"host": host, "initiator": f"iqn.{number}"}
            before = session.counters().statements
            agent_store.record_report(host, {**SAID, "connector": connector})
            counts.append(session.counters().statements - before)
        self.assertEqual({counts[0]}, set(counts))

    def test_record_report_with_too_many_initiators_is_stored_without_connector(self):
        agent_store.create(HOST, KEY)
        connector = {"host": HOST, "wwpns": [f"{number:016x}" for number in range(17)]}
        agent_store.record_report(HOST, {**SAID, "connector": connector})
        self.assertIn("reports 17 initiators, and may report 16", agent_store.get(HOST)["error"])
        self.assertIsNone(agent_store.get(HOST)["connector"])

    def report_ports(self, numbers):
        connector = {"host": HOST, "wwpns": [f"{number:016x}" for number in numbers]}
        agent_store.record_report(HOST, {**SAID, "connector": connector})
        identities = session.fetch_all(sa.select(models.host_identities.c.identifier))
        return {int(row["identifier"].removeprefix("fc:"), 16) for row in identities}

    def test_record_report_keeps_no_initiators_of_former_reports(self):
        agent_store.create(HOST, KEY)
        for begin in (0, 100, 200):
            ports = {*range(begin, begin + 16)}
            self.assertEqual(ports, self.report_ports(ports))

    def test_record_report_keeps_former_initiators_that_are_used_or_of_a_closed_host(self):
        agent_store.create(HOST, KEY)
        self.assertEqual({1, 2}, self.report_ports({1, 2}))
        connector = {"host": HOST, "wwpns": [f"{1:016x}"]}
        volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume, "attached", host=HOST, connector=connector)
        self.assertEqual({1, 3}, self.report_ports({3}))
        host_fences.fence(HOST, "dead", None)
        self.assertEqual({1, 3, 4}, self.report_ports({4}))
        self.assertEqual({1, 3, 4}, self.report_ports({*range(10, 24)}))
        self.assertRegex(agent_store.get(HOST)["error"], "14 initiators beside 3 .* may have 16")

    def test_record_report_takes_initiator_in_use_that_a_user_named_only_as_the_first_one(self):
        own, used = ({"host": HOST, "initiator": f"iqn.{name}"} for name in ("own", "used"))
        volume = db_rows.add_volume()["id"]
        row = db_rows.add_attachment(
            volume, "attached", host="metal-1", connector={**used, "host": "metal-1"}
        )
        host_identities.admit(row | {"by_service": None, "agent": None})
        agent_store.create(HOST, KEY)
        agent_store.record_report(HOST, {**SAID, "connector": own})
        agent_store.record_report(HOST, {**SAID, "connector": used})
        self.assertIn("iqn.used belongs to host metal-1", agent_store.get(HOST)["error"])
        host_fences.fence(HOST, "lease", None)
        self.assertEqual([], host_fences.list_to_fence([HOST]))
        agent_store.create("metal-2", KEY)
        agent_store.record_report("metal-2", {**SAID, "connector": used})
        self.assertIsNone(agent_store.get("metal-2")["error"])

    def test_record_report_of_host_with_assigned_initiators_must_have_those(self):
        agent_store.create(HOST, KEY)
        own = HostIdentity(HOST, frozenset({"iscsi:iqn.own"}))
        host_identities.claim(own, host_identities.Source.ADMIN)
        for initiator, stored in (("iqn.of-another", None), ("iqn.own", "iqn.own")):
            connector = {"host": HOST, "initiator": initiator}
            agent_store.record_report(HOST, {**SAID, "connector": connector})
            row = agent_store.get(HOST)
            self.assertEqual(stored, (row["connector"] or {}).get("initiator"))
        self.assertIsNone(row["error"])

    def test_record_report_with_initiator_of_attachment_at_other_host_is_refused(self):
        agent_store.create("compute-2", KEY)
        connector = {"host": HOST, "initiator": "iqn.a"}
        attachment = db_rows.add_attachment(
            db_rows.add_volume()["id"], "attached", agent=HOST, host=HOST, connector=connector
        )
        host_identities.admit(attachment | {"by_service": None})
        report = {**SAID, "connector": {"host": "compute-2", "initiator": "iqn.a"}}
        agent_store.record_report("compute-2", report)
        self.assertIn(HOST, agent_store.get("compute-2")["error"])
        db_rows.remove_attachment(attachment["id"])
        agent_store.record_report("compute-2", report)
        stored = agent_store.get("compute-2")
        self.assertEqual((None, "iqn.a"), (stored["error"], stored["connector"]["initiator"]))

    def test_record_report_truncates_long_error(self):
        agent_store.create(HOST, KEY)
        agent_store.record_report(HOST, {**SAID, "connector": None, "error": "no iscsiadm " * 500})
        known = agent_store.get(HOST)
        self.assertIsNone(known["connector"])
        self.assertTrue(known["error"].startswith("no iscsiadm"))
        self.assertLessEqual(len(known["error"]), models.ERROR_LENGTH)

    def test_alive_from_first_report_until_down_time(self):
        agent_store.create(HOST, KEY)
        self.assertFalse(agent_store.get(HOST)["alive"])
        agent_store.record_report(HOST, SAID)
        self.assertTrue(agent_store.get(HOST)["alive"])
        long_ago = models.now() - datetime.timedelta(seconds=CONF.agent.down_time + 1)
        with session.writer() as connection:
            connection.execute(models.agents.update().values(seen_at=long_ago))
        self.assertFalse(agent_store.get(HOST)["alive"])

    def test_some_hosts_are_listed_and_missing_ones_are_not(self):
        agent_store.create("b", "key")
        agent_store.create("a", "key")
        agent_store.record_report("a", {})
        rows = agent_store.list_named(["b", "a", "missing"])
        self.assertEqual([agent_store.get("a"), agent_store.get("b")], rows)
        expected = {"a": rows[0]["seen_at"], "b": None}
        self.assertEqual(expected, agent_store.list_seen_at(["b", "a", "missing"]))
        self.assertIsNotNone(expected["a"])

    def test_list_all_sorts_by_host(self):
        for host in ("b", "c", "a"):
            agent_store.create(host, KEY)
        self.assertEqual(["a", "b", "c"], [row["host"] for row in agent_store.list_all()])


class ListAssignedTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(size_gib=3, shared_targets=True)["id"]

    def add(self, state, agent=HOST):
        return db_rows.add_attachment(self.volume, state, agent=agent)["id"]

    def test_list_assigned_returns_connected_attachments_of_host(self):
        states = ("reserved", "connecting", "connected", "attached", "withdrawing")
        states += ("disconnecting", "connect_failed", "connect_unknown", "disconnect_failed")
        made = {state: self.add(state) for state in states}
        expected = [made["connected"], made["attached"], made["withdrawing"]]
        self.assertEqual(expected, [row["id"] for row in agent_store.list_assigned(HOST)])

    def test_list_assigned_leaves_other_hosts_and_states_out(self):
        self.add("attached", agent="compute-2")
        self.add("attached", agent=None)
        self.assertEqual([], agent_store.list_assigned(HOST))

    def test_list_assigned_by_id_returns_one(self):
        attachment_id, theirs = self.add("connected"), self.add("connected", agent="compute-2")
        self.add("connected")
        self.assertEqual(
            [attachment_id], [row["id"] for row in agent_store.list_assigned(HOST, attachment_id)]
        )
        self.assertEqual([], agent_store.list_assigned(HOST, theirs))

    def test_list_assigned_includes_volume_columns(self):
        self.add("connected")
        (row,) = agent_store.list_assigned(HOST)
        names = ("volume_size_gib", "volume_shared_targets", "volume_host")
        self.assertEqual((3, True, "here@fake#pool"), tuple(row[name] for name in names))


AGENT_REMOVAL_HOST = "node-1"
STARTED = 0.3
"""Seconds within which another thread starts to wait; a later start is harmless."""


class DeleteTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        fake_agent.report_agent(AGENT_REMOVAL_HOST)

    def known(self):
        return [row["host"] for row in agent_store.list_all()]

    def attachments(self, count, agent=AGENT_REMOVAL_HOST):
        volume = db_rows.add_volume(multiattach=True)["id"]
        return [
            db_rows.add_attachment(volume, "attached", agent=agent)["id"] for _ in range(count)
        ]

    def test_delete_host_without_attachments_removes_it(self):
        fake_agent.report_agent("node-2")
        self.attachments(1, "node-2")
        self.attachments(1, None)
        agent_store.delete(AGENT_REMOVAL_HOST)
        self.assertEqual(["node-2"], self.known())

    def test_delete_host_with_attachments_names_them_in_conflict(self):
        attachment = self.attachments(2)
        with self.assertRaisesRegex(
            exception.Conflict, f"2 attachments: {attachment[0]}, {attachment[1]}."
        ):
            agent_store.delete(AGENT_REMOVAL_HOST)
        attachment += self.attachments(10)
        with self.assertRaisesRegex(exception.Conflict, f"{attachment[9]} and 2 more"):
            agent_store.delete(AGENT_REMOVAL_HOST)
        self.assertEqual([AGENT_REMOVAL_HOST], self.known())
        self.assertEqual(attachment, agent_store.list_attachment_ids(AGENT_REMOVAL_HOST))

    def test_force_delete_ignores_attachments(self):
        self.attachments(1)
        agent_store.force_delete(AGENT_REMOVAL_HOST)
        self.assertEqual([], self.known())

    def test_delete_unknown_host_raises_not_found(self):
        for remove in (agent_store.delete, agent_store.force_delete):
            self.attachments(1, "node-2")
            with self.assertRaises(exception.AgentNotFound):
                remove("node-2")

    def reserve(self):
        volume = db_rows.add_volume()["id"]
        return attachment_store.reserve(
            volume, {"project_id": db_rows.PROJECT, "agent": AGENT_REMOVAL_HOST}
        )

    def test_deleted_host_gets_no_attachment(self):
        agent_store.delete(AGENT_REMOVAL_HOST)
        with self.assertRaises(exception.AgentNotFound):
            self.reserve()
        self.assertEqual([], db_rows.list_attachments())
        self.assertEqual({"available"}, {row["status"] for row in db_rows.list_volumes()})

    def test_delete_waits_for_transaction_that_adds_attachment(self):
        refused = []

        def remove():
            try:
                agent_store.delete(AGENT_REMOVAL_HOST)
            except exception.Conflict as error:
                refused.append(error)

        def insert(*args):
            removing.start()
            removing.join(STARTED)
            return real(*args)

        removing, real = threading.Thread(target=remove), attachment_rows.insert
        with mock.patch.object(attachment_rows, "insert", insert):
            made = self.reserve()
        removing.join(TIMEOUT)
        (error,) = refused
        self.assertIn(made["id"], str(error))
        self.assertEqual([AGENT_REMOVAL_HOST], self.known())
