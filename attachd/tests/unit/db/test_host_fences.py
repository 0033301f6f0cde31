# SPDX-License-Identifier: Apache-2.0
"""Tests of the table of fenced and drained hosts."""

import itertools
import unittest
from unittest import mock

from oslo_db import exception as db_exception
import sqlalchemy as sa

from attachd import exception, host_identity
from attachd.db import host_fences, models
from attachd.db.engine import session
from attachd.db.host_fences import Notified
from attachd.host_identity import HostIdentity
from attachd.tests.fixtures import databases, db_rows


class HostFencesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self)

    def test_fence_is_stored_once_until_it_is_lifted(self):
        first, is_new = host_fences.fence("h", "dead", "u")
        self.assertTrue(is_new)
        self.assertEqual(
            (1, "dead", "u"), (first["generation"], first["reason"], first["user_id"])
        )
        self.assertEqual((first, False), host_fences.fence("h", "again", "v"))
        self.assertEqual([first], host_fences.list_closed())
        self.assertTrue(host_fences.lift("h"))
        self.assertFalse(host_fences.lift("h"))
        self.assertEqual([], host_fences.list_closed())
        second, is_new = host_fences.fence("h", "again", "v")
        self.assertEqual((2, "again", True), (second["generation"], second["reason"], is_new))

    def test_only_the_named_fence_is_lifted(self):
        host_fences.fence("h", "dead", "u")
        self.assertFalse(host_fences.lift("h", generation=2))
        self.assertTrue(host_fences.lift("h", generation=1))

    def test_fenced_host_is_refused_with_reason(self):
        host_fences.check("h")
        host_fences.fence("h", "no heartbeat", "u")
        with self.assertRaisesRegex(exception.HostFenced, "Host h .* because: no heartbeat"):
            host_fences.check("h")
        for same in ("H", "h.example.org"):
            self.assertRaises(exception.HostFenced, host_fences.check, same)
        host_fences.check("h2")
        host_fences.lift("h")
        host_fences.check("h")

    def test_drain_is_stored_once_until_the_host_is_resumed(self):
        first, is_new = host_fences.drain("h", "repair", "u")
        self.assertEqual(
            (True, 0, "repair", "u", {}),
            (
                is_new,
                first["generation"],
                first["drain_reason"],
                first["drain_user_id"],
                first["drain_detach"],
            ),
        )
        self.assertEqual((first, False), host_fences.drain("h", "again", "v"))
        self.assertEqual([first], host_fences.list_closed())
        self.assertTrue(host_fences.resume("h"))
        self.assertFalse(host_fences.resume("h"))
        self.assertEqual([], host_fences.list_closed())
        self.assertTrue(host_fences.drain("h", None, "v")[1])

    def test_fence_and_drain_end_independently(self):
        host_fences.drain("h", "repair", "u")
        row, is_new = host_fences.fence("h", "dead", "v")
        self.assertEqual(
            (True, 1, "repair", "dead"),
            (is_new, row["generation"], row["drain_reason"], row["reason"]),
        )
        with self.assertRaisesRegex(exception.HostFenced, "is fenced since .* because: dead"):
            host_fences.check("h")
        host_fences.lift("h")
        with self.assertRaisesRegex(exception.HostDrained, "by user u, because: repair"):
            host_fences.check("h")
        host_fences.fence("h", "dead", "v")
        host_fences.resume("h")
        self.assertRaises(exception.HostFenced, host_fences.check, "h")

    def test_fence_that_meets_a_new_drain_is_stored(self):
        real, tries = host_fences.fence_in, []

        def drain_first(*arguments, **options):
            tries.append(arguments)
            if len(tries) == 1:
                raise db_exception.DBDuplicateEntry
            return real(*arguments, **options)

        host_fences.drain("h", "repair", "u")
        with mock.patch.object(host_fences, "fence_in", drain_first):
            row, is_new = host_fences.fence("h", "dead", "v")
        self.assertEqual((True, "dead", "repair"), (is_new, row["reason"], row["drain_reason"]))

    def test_drain_does_not_concern_existing_connections(self):
        host_fences.drain("h", "repair", "u")
        with session.reader() as connection:
            host_fences.check_in(connection, HostIdentity("h"), is_new=False)
            drained = (host_fences.check_in, connection, HostIdentity("h"))
            self.assertRaises(exception.HostDrained, *drained)

    def test_detaches_are_added_until_the_host_is_resumed(self):
        row, _is_new = host_fences.drain("h", "repair", "u")
        self.assertTrue(host_fences.add_detaches(row, {"a": "v"}))
        self.assertTrue(host_fences.add_detaches(row, {"b": "w"}))
        self.assertEqual({"a": "v", "b": "w"}, host_fences.find("h")["drain_detach"])
        host_fences.resume("h")
        self.assertFalse(host_fences.add_detaches(row, {"c": "x"}))
        host_fences.drain("h", "repair", "u")
        self.assertFalse(host_fences.add_detaches(row, {"c": "x"}))
        self.assertEqual({}, host_fences.find("h")["drain_detach"])

    def test_attachments_of_host_and_of_its_agent_are_listed(self):
        volume = db_rows.add_volume()["id"]

        def add(state, **columns):
            return db_rows.add_attachment(volume, state, **columns)["id"]

        connector = {"host": "h"}
        expected = [
            add("attached", host="h", connector=connector),
            add("disconnect_failed", host="h", connector=connector),
            add("connected", host="x", agent="h", connector=connector),
        ]
        add("reserved", agent="h")
        add("connect_failed", host="h", connector=connector)
        add("attached", host="other", connector=connector)
        self.assertEqual(expected, [row["id"] for row in host_fences.list_attachments("h")])

    def test_legacy_attachment_of_host_without_connection_is_fenced_with_it(self):
        volume = db_rows.add_volume()["id"]

        def add(**columns):
            values = {"connector": None, **columns}
            return db_rows.add_attachment(volume, "attached", **values)["id"]

        alone = add(kind="legacy", host="h")
        served = add(kind="legacy", host="h")
        add(kind="legacy", host="other")
        serving = add(kind="connection", host="x", connector={"host": "x"}, parent_id=served)
        self.assertEqual([alone], [row["id"] for row in host_fences.list_to_fence(["h"])])
        db_rows.change_attachment(serving, state="connect_failed")
        self.assertEqual([alone, served], [row["id"] for row in host_fences.list_to_fence(["h"])])

    def test_unfenced_attachments_are_those_whose_fence_is_not_started(self):
        volume = db_rows.add_volume()["id"]

        def add(state, **columns):
            values = {"host": "h", "connector": {"host": "h"}, **columns}
            return db_rows.add_attachment(volume, state, **values)["id"]

        waiting = [add("attached"), add("connecting"), add("withdrawing"), add("connect_unknown")]
        add("disconnecting", fenced=True)
        add("disconnecting")
        add("disconnect_failed")
        self.assertEqual(waiting, [row["id"] for row in host_fences.list_unfenced(["h"])])
        self.assertEqual([], host_fences.list_unfenced([]))


class ManyHostsTest(databases.DatabaseCase):
    """What is listed for many hosts by one call."""

    def add_rows(self, fields):
        """Store attachments of one volume; return the rows, oldest first."""
        base = db_rows.add_attachment(db_rows.add_volume()["id"])
        db_rows.remove_attachment(base["id"])
        moment = base["created_at"]
        rows = [
            {**base, **values, **host_identity.columns(values["host"], values["connector"])}
            | {"id": models.new_id(), "created_at": moment}
            for values in fields
        ]
        with session.writer() as connection:
            connection.execute(sa.insert(models.attachments), rows)
        return sorted(rows, key=lambda row: row["id"])

    def add_identity(self, host, *identifiers):
        key = host_identity.host_key(host)
        common = {"host": host, "host_key": key, "source": "agent"}
        values = [{"identifier": item, **common} for item in identifiers]
        session.write(sa.insert(models.host_identities).values(values))

    def identities(self, hosts, stored):
        """Return the identities of hosts; a comparison of each host with all that is stored."""
        found = {}
        for host in hosts:
            similar = {h: i for h, i in stored.items() if host_identity.is_same_name(h, host)}
            own = [i for h, i in similar.items() if host_identity.is_equal_name(h, host)]
            if not own and len(similar) == 1:
                own = [*similar.values()]
            found[host] = HostIdentity(host, frozenset(itertools.chain(*own)))
        return found

    def attachments(self, rows, identities):
        """Return the rows of each host; a comparison of each host with each row."""
        keys = {identity.key for identity in identities.values()}
        known = frozenset().union(*(identity.identifiers for identity in identities.values()))
        candidates = [
            row
            for row in rows
            if row["host_key"] in keys
            or row["agent"] in identities
            or row["initiator_key"] in known
        ]
        return {
            host: [
                row["id"]
                for row in candidates
                if row["agent"] == host
                or host_identity.is_same_host(host_identity.of_row(row), identity)
            ]
            for host, identity in identities.items()
        }

    def test_attachments_are_those_that_a_comparison_with_each_host_finds(self):
        stored = {"a.x": ["iscsi:i"], "a.y": ["iscsi:j", "machine:m"], "b.x": ["fc:w"]}
        for host, identifiers in stored.items():
            self.add_identity(host, *identifiers)
        names = ("a", "A.X.", "a.y", "a.", "b", "c")
        connectors = (
            *({}, {"initiator": "i"}, {"initiator": "j"}, {"system uuid": "m"}),
            {"initiator": "k", "wwpns": ["w"], "system uuid": "m"},
        )
        given = [
            {"host": name, "connector": {"host": name, **connector}, "agent": agent}
            for name, connector, agent in itertools.product(names, connectors, (None, "a.x", "c"))
        ]
        legacy = [
            {"host": name, "connector": None, "agent": None, "kind": "legacy"} for name in names
        ]
        states = [("attached", None), ("attached", False), ("connecting", True)]
        states += [("disconnecting", None), ("reserved", None)]
        rows = self.add_rows(
            {**values, "state": state, "fenced": fenced}
            for values in (*given, *legacy)
            for state, fenced in states
        )
        fixed = [row for row in rows if row["connector"] and row["state"] != "reserved"]
        without_connection = [row for row in rows if not row["connector"]]
        for number in range(1, 4):
            for hosts in itertools.combinations(
                ("a", "a.x", "A.Y", "b.x", "b.", "c", "d"), number
            ):
                known = self.identities(hosts, stored)
                self.assertEqual(known, host_fences.get_identities(hosts))
                listed = host_fences.list_attachments_of(hosts)
                ids = {host: [row["id"] for row in found] for host, found in listed.items()}
                expected = self.attachments(fixed, known)
                self.assertEqual(expected, ids, hosts)
                named = self.attachments(without_connection, known)
                both = [*itertools.chain(*expected.values()), *itertools.chain(*named.values())]
                to_fence = [row["id"] for row in host_fences.list_to_fence(hosts)]
                self.assertEqual([*dict.fromkeys(both)], to_fence)
                left = {
                    row["id"]
                    for row in rows
                    if not row["fenced"] and row["state"] != "disconnecting"
                }
                unfenced = [row["id"] for row in host_fences.list_unfenced(hosts)]
                self.assertEqual([item for item in to_fence if item in left], unfenced)

    def test_comparisons_grow_with_hosts_and_attachments_but_not_with_both(self):
        hosts = [f"node-{number}.example.org" for number in range(40)]
        for host in hosts:
            self.add_identity(host, f"iscsi:{host}")
        rows = self.add_rows(
            {
                "host": host,
                "connector": {"host": host, "initiator": host},
                "agent": host,
                "state": "attached",
            }
            for host in hosts
            for _ in range(5)
        )
        with mock.patch.object(
            host_identity, "is_same_host", wraps=host_identity.is_same_host
        ) as compared:
            listed = host_fences.list_attachments_of(hosts)
        self.assertEqual([5] * len(hosts), [len(found) for found in listed.values()])
        self.assertLessEqual(compared.call_count, len(hosts) + len(rows))


class ManyHostsOnMariadb(ManyHostsTest):
    kind = "mariadb"


class ManyHostsOnPostgresql(ManyHostsTest):
    kind = "postgresql"


class NotificationsTest(databases.DatabaseCase):
    def due(self):
        return [(row["host"], row["notified"]) for row in host_fences.list_to_notify()]

    def test_start_and_end_of_fence_are_due_until_they_are_sent(self):
        row, _is_new = host_fences.fence("h", "dead", "u")
        self.assertEqual([("h", None)], self.due())
        host_fences.record_notified(row, Notified.START)
        self.assertEqual([("h", "start")], self.due())
        host_fences.record_notified(host_fences.find("h"), Notified.UNFINISHED)
        self.assertEqual([("h", "unfinished")], self.due())
        host_fences.record_notified(host_fences.find("h"), Notified.END)
        self.assertEqual([], self.due())

    def test_next_fence_is_notified_anew(self):
        row, _is_new = host_fences.fence("h", "dead", "u")
        host_fences.record_notified(row, Notified.END)
        host_fences.lift("h")
        host_fences.fence("h", "again", "u")
        self.assertEqual([("h", None)], self.due())
        host_fences.record_notified(row, Notified.START)
        self.assertEqual([("h", None)], self.due(), "of another fence")

    def test_lifted_fence_has_an_end_if_it_had_a_start(self):
        row, _is_new = host_fences.fence("h", "dead", "u")
        host_fences.lift("h")
        self.assertEqual([], self.due())
        host_fences.record_notified(row, Notified.START)
        self.assertEqual([("h", "start")], self.due())
        self.assertEqual(row["fenced_at"], host_fences.find("h")["last_fenced_at"])

    def test_drained_host_has_no_fence_to_notify(self):
        host_fences.drain("h", "repair", "u")
        self.assertEqual([], self.due())

    def test_notification_is_claimed_by_one_process_for_a_time(self):
        row, _is_new = host_fences.fence("h", "dead", "u")
        self.assertFalse(host_fences.claim_notification(row), "by the one that has fenced it")
        later = models.now() + host_fences.NOTIFY_TIMEOUT
        with mock.patch.object(models, "now", return_value=later):
            self.assertTrue(host_fences.claim_notification(row))
            self.assertFalse(host_fences.claim_notification(row))
        host_fences.record_notified(row, Notified.START)
        self.assertFalse(host_fences.claim_notification(row), "it was sent")
        self.assertTrue(host_fences.claim_notification(host_fences.find("h")))
