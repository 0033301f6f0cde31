# SPDX-License-Identifier: Apache-2.0
"""The leases of agents in the database."""

import datetime
from unittest import mock

from attachd.db import host_fences, models
from attachd.db.agents import agent_store, host_leases
from attachd.db.cluster import services
from attachd.db.types import type_store
from attachd.lost_agents import Action, Rule
from attachd.tests.fixtures import databases, db_rows, fake_agent, lease_rows

HOST = "compute-1"


class LeaseCase(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        fake_agent.report_agent(HOST, boot_id="b")

    def report(self, host_lease=None, reported=None):
        said = {"connector": None, "devices": [], "connector_type": "k", "version": "1"}
        return agent_store.record_report(
            HOST, {**said, "error": None}, host_lease=host_lease, reported_lease=reported
        )

    def host_lease(self):
        (host_lease,) = lease_rows.list_leases().values()
        return host_lease

    def attach(self, specs=None, **columns):
        type_id = type_store.create({"name": models.new_id(), "extra_specs": specs or {}})["id"]
        volume = db_rows.add_volume(volume_type_id=type_id)["id"]
        return db_rows.add_attachment(volume, "attached", agent=HOST, **columns)["id"]


class LeasesTest(LeaseCase):
    def test_report_renews_lease_with_its_length(self):
        first = self.host_lease()
        self.assertFalse(self.report(host_lease=30))
        second = self.host_lease()
        self.assertGreater(second.heartbeat_at, first.heartbeat_at)
        self.assertEqual((HOST, 30, None), (second.host, second.length, second.lost_action))

    def test_lease_that_an_agent_reports_counts_up_to_what_it_was_given(self):
        self.report(host_lease=90)
        for given, reported, expected in (
            (20, 90, 90),  # The answer before may have been lost.
            (20, 86400, 90),
            (20, 40, 40),
            (20, 86400, 40),
            (20, 10, 20),
            (None, 86400, 60),
            (30, 0, 60),  # It goes on by none.
            (30, 86400, 60),
            (30, None, 30),
            (30, 86400, 30),
        ):
            with self.subTest(given=given, reported=reported):
                self.report(given, reported)
                self.assertEqual(expected, self.host_lease().length)

    def test_age_is_by_clock_of_database(self):
        past = models.now() - datetime.timedelta(seconds=100)
        db_rows.change_agent(HOST, heartbeat_at=past, silent_at=past)
        (host_lease,) = host_leases.read_silence().host_leases
        self.assertAlmostEqual(100, host_lease.age, delta=50)

    def test_host_is_silent_after_a_third_of_its_lease_or_of_down_time(self):
        for length, seconds in ((30, 10), (None, 20)):
            with self.subTest(length=length):
                self.report(host_lease=length)
                host_lease = self.host_lease()
                silence = host_lease.silent_at - host_lease.heartbeat_at
                self.assertAlmostEqual(seconds, silence.total_seconds(), delta=0.001)

    def test_renewal_with_nothing_new_moves_heartbeat_and_silence(self):
        order = {"report_process": "p", "report_start": 1, "report_number": 1, "report_token": "t"}
        past = models.now() - datetime.timedelta(seconds=100)
        db_rows.change_agent(HOST, **order, heartbeat_at=past, silent_at=past)
        row = agent_store.check_key(HOST, fake_agent.KEY)
        self.assertTrue(host_leases.renew_unchanged(row, {**order, "report_number": 2}, 30))
        after = self.host_lease()
        self.assertGreater(after.heartbeat_at, past)
        silence = after.silent_at - after.heartbeat_at
        self.assertAlmostEqual(10, silence.total_seconds(), delta=0.1)
        self.assertFalse(host_leases.renew_unchanged(row, order, 30), "another one was stored")

    def silent(self):
        return [host_lease.host for host_lease in host_leases.read_silence().host_leases]

    def test_silence_is_that_of_hosts_that_are_not_fenced_and_says_whether_any_is_leased(self):
        self.assertEqual(([], False), host_leases.read_silence()[1:])
        self.report(host_lease=30)
        self.assertEqual(([], True), host_leases.read_silence()[1:])
        past = models.now() - datetime.timedelta(seconds=100)
        db_rows.change_agent(HOST, silent_at=past)
        self.assertEqual([HOST], self.silent())
        host_leases.mark(self.host_lease())
        self.assertEqual([HOST], self.silent())
        host_leases.fence(self.host_lease())
        self.assertEqual(([], False), host_leases.read_silence()[1:])
        self.assertEqual([(HOST, 30)], host_leases.list_fenced(60))
        db_rows.change_agent(HOST, lost_at=past)
        self.assertEqual([], host_leases.list_fenced(60))
        self.assertEqual((1, 30), (host_leases.count_leased(), host_leases.find_shortest()))

    def test_postponed_host_is_silent_later(self):
        past = models.now() - datetime.timedelta(seconds=100)
        db_rows.change_agent(HOST, silent_at=past)
        host_leases.postpone([], 1)
        self.assertEqual([HOST], self.silent())
        host_leases.postpone([HOST, "another"], 60)
        self.assertEqual([], self.silent())
        later = self.host_lease().silent_at
        host_leases.postpone([HOST], 600)
        self.assertEqual(later, self.host_lease().silent_at, "it is not silent now")

    def test_some_hosts_are_listed_up_to_a_number(self):
        fake_agent.report_agent("a")
        self.assertEqual(["a"], host_leases.list_some(1))

    def test_check_whether_reports_can_be_stored_changes_the_row_and_renews_nothing(self):
        before, host_lease = agent_store.get(HOST)["updated_at"], self.host_lease()
        host_leases.check_writable([HOST, "another"])
        self.assertGreater(agent_store.get(HOST)["updated_at"], before)
        self.assertEqual(host_lease.heartbeat_at, self.host_lease().heartbeat_at)

    def test_agent_that_never_reported_has_no_lease(self):
        agent_store.create("compute-2", fake_agent.KEY)
        self.assertIsNone(agent_store.get("compute-2")["silent_at"])

    def test_fence_after_renewal_does_nothing(self):
        old = self.host_lease()
        self.report()
        self.assertFalse(host_leases.fence(old))
        self.assertFalse(host_leases.mark(old))
        self.assertIsNone(host_fences.find(HOST))
        self.assertIsNone(self.host_lease().lost_action)

    def test_of_several_managers_one_fences(self):
        host_lease = self.host_lease()
        self.assertTrue(host_leases.fence(host_lease))
        self.assertFalse(host_leases.fence(host_lease))
        fence = host_fences.find(HOST)
        self.assertRegex(fence["reason"], "^agent lost since 20.* UTC$")
        self.assertEqual((1, "b", None), (fence["generation"], fence["boot_id"], fence["user_id"]))

    def test_late_heartbeat_does_not_renew_lease_of_fenced_host(self):
        host_leases.fence(self.host_lease())
        before = self.host_lease()
        self.assertFalse(self.report(host_lease=30))
        after = self.host_lease()
        self.assertEqual(before._replace(age=after.age), after)
        self.assertIsNotNone(agent_store.get(HOST)["seen_at"])
        host_fences.lift(HOST)
        self.assertTrue(self.report())
        self.assertIsNone(self.host_lease().lost_action)

    def test_heartbeat_loses_against_fence_after_it_read_that_host_is_lost(self):
        host_leases.mark(self.host_lease())
        lost = self.host_lease()

        def fence_first(_connection, _host):
            # SQLite has one writer at a time: the effect of another transaction.
            later = models.now() + datetime.timedelta(seconds=1)
            _connection.execute(models.agents.update().values(lost_at=later, lost_action="fence"))
            return False

        with self.patched(fence_first):
            self.assertFalse(self.report())
        self.assertEqual(
            (lost.heartbeat_at, "fence"), (self.host_lease()[1], self.host_lease().lost_action)
        )

    def patched(self, function):
        return mock.patch.object(host_leases, "_is_fenced", function)

    def test_mark_shows_at_attachments_until_next_heartbeat(self):
        shown, own = self.attach(), self.attach(error="its own")
        self.assertTrue(host_leases.mark(self.host_lease()))
        self.assertFalse(host_leases.mark(self.host_lease()._replace(lost_action=None)))
        error = db_rows.get_attachment(shown)["error"]
        self.assertRegex(error, "^The agent of its host is lost since .* host fence compute-1$")
        self.assertEqual("its own", db_rows.get_attachment(own)["error"])
        self.assertTrue(self.report())
        self.assertIsNone(db_rows.get_attachment(shown)["error"])
        self.assertEqual("its own", db_rows.get_attachment(own)["error"])

    def test_marked_host_can_be_fenced_later(self):
        host_leases.mark(self.host_lease())
        self.assertTrue(host_leases.fence(self.host_lease()))
        self.assertEqual("fence", self.host_lease().lost_action)

    def test_host_that_an_administrator_fenced_keeps_that_fence(self):
        host_fences.fence(HOST, "by hand", "u")
        self.assertFalse(host_leases.fence(self.host_lease()))
        self.assertEqual("by hand", host_fences.find(HOST)["reason"])


class RulesTest(LeaseCase):
    def test_rules_are_those_of_types_and_backends(self):
        report = {"on_lost_agent": "mark", "lost_agent_timeout": 20, "capabilities": {}}
        services.report(
            binary="attachd-manager", host="here@fake", availability_zone="z", up=True,
            error=None, report=report,
        )  # fmt: skip
        self.attach()
        self.attach()
        self.attach({"on_lost_agent": "fence"})
        rules = host_leases.list_rules([HOST, "another"])
        expected = {Rule(Action.MARK, 20), Rule(Action.FENCE, 20)}
        self.assertEqual({HOST}, rules.keys())
        self.assertEqual((2, expected), (len(rules[HOST]), {*rules[HOST]}))

    def test_rule_of_backend_that_reports_none_is_nothing(self):
        self.attach()
        self.assertEqual({HOST: [Rule()]}, host_leases.list_rules([HOST]))

    def test_attachment_without_access_does_not_count(self):
        volume = db_rows.add_volume()["id"]
        db_rows.add_attachment(volume, "reserved", agent=HOST)
        self.assertEqual({}, host_leases.list_rules([HOST]))
        self.assertEqual({}, host_leases.list_rules([]))
