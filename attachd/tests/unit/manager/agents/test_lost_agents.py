# SPDX-License-Identifier: Apache-2.0
"""The search for lost agents, with clocks that the tests set."""

from typing import Any
from unittest import mock

from attachd import exception
from attachd.db import host_fences, models
from attachd.db.agents import agent_store, host_leases
from attachd.db.engine import session
from attachd.db.types import type_store
from attachd.lost_agents import Action, Rule
from attachd.manager.agents import fence_limiter, lost_agents, registry_check
from attachd.manager.agents.lost_agents import LostAgents, get_fence_limit
from attachd.rpc import manager_api
from attachd.telemetry import metrics
from attachd.tests.fixtures import (
    conf_fixture,
    databases,
    db_rows,
    fake_agent,
    fake_clocks,
)

HOST = "compute-1"
SAID: dict[str, Any] = {
    "connector": None,
    "devices": [],
    "connector_type": "k",
    "version": "1",
    "error": None,
}


class LimitTest(databases.DatabaseCase):
    def limit(self, length, *rules):
        now = models.now()
        host_lease = host_leases.HostLease(HOST, now, now, 0.0, length, None)
        return get_fence_limit(host_lease, rules)

    def test_fence_limit_is_never_before_the_lease_that_the_agent_knows(self):
        self.assertIsNone(self.limit(30, Rule(Action.MARK, 10)))
        self.assertEqual(30, self.limit(30, Rule(Action.FENCE, 30), Rule(Action.FENCE, 60)))
        self.assertEqual(30, self.limit(30, Rule(Action.FENCE, 10)))
        self.assertEqual(50, self.limit(30, Rule(Action.FENCE, 50)))

    def test_fence_limit_of_agent_without_lease_is_not_below_down_time(self):
        self.assertEqual(60, self.limit(None, Rule(Action.FENCE, 10)))
        self.assertEqual(90, self.limit(None, Rule(Action.FENCE, 90)))


class LostAgentsTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.clocks = fake_clocks.use(self)
        self.sent = self.enterContext(mock.patch.object(manager_api, "process_pending"))
        self.enterContext(mock.patch.object(registry_check, "check"))
        self.notified = self.enterContext(mock.patch("attachd.notifications.host"))
        self.started = self.enterContext(mock.patch("attachd.notifications.fence_start"))
        self.counted = self.enterContext(mock.patch.object(metrics, "count"))
        agent_store.create(HOST, fake_agent.KEY)
        self.search = LostAgents()

    def report(self, host_lease=20):
        agent_store.record_report(HOST, SAID, host_lease=host_lease)

    def attach(self, action="fence", timeout=20, **columns):
        specs = {"on_lost_agent": action, "lost_agent_timeout": f"{timeout}"}
        type_id = type_store.create({"name": models.new_id(), "extra_specs": specs})["id"]
        volume = db_rows.add_volume(volume_type_id=type_id)["id"]
        values = {"agent": HOST, "host": HOST, "connector": {"host": HOST}, **columns}
        return db_rows.add_attachment(volume, "attached", **values)["id"]

    def pass_time(self, seconds):
        """Have both clocks go on, with searches in between."""
        self.clocks.pass_time(seconds, self.search.run_once)

    def fence(self):
        return host_fences.find(HOST)

    def test_host_is_fenced_when_its_lease_is_over(self):
        attachment = self.attach()
        self.report()
        self.search.run_once()
        self.pass_time(19)
        self.assertIsNone(self.fence())
        self.pass_time(1.5)
        self.assertRegex(self.fence()["reason"], "^agent lost since ")
        row = db_rows.get_attachment(attachment)
        self.assertEqual(("disconnecting", True), (row["state"], row["fenced"]))
        self.assertEqual([attachment], [call.args[1].id for call in self.sent.call_args_list])
        self.assertEqual([HOST], [call.args[0]["host"] for call in self.started.call_args_list])
        self.counted.assert_called_with(metrics.LOST_AGENTS, "fence")

    def test_second_manager_does_not_fence_again(self):
        self.attach()
        self.report()
        other = LostAgents()

        def run_both():
            self.search.run_once()
            other.run_once()

        self.clocks.pass_time(21, run_both)
        self.assertEqual(1, self.fence()["generation"])
        self.started.assert_called_once()
        self.sent.assert_called_once()

    def test_all_attachments_of_host_are_fenced_if_one_asks_for_it(self):
        asking, other = self.attach(), self.attach("nothing")
        plain = self.attach("nothing", agent=None)
        self.report()
        self.search.run_once()
        self.pass_time(21)
        fenced = {row["id"] for row in db_rows.list_attachments() if row["fenced"]}
        self.assertEqual({asking, other, plain}, fenced)

    def report_others(self, *hosts):
        for host in hosts:
            if agent_store.create(host, fake_agent.KEY):
                self.attach(agent=host, host=host, connector={"host": host})
            agent_store.record_report(host, SAID, host_lease=20)

    def count_fenced(self):
        return sum(1 for row in agent_store.list_all() if host_fences.find(row["host"]))

    def test_no_host_is_fenced_while_too_many_are_lost(self):
        self.attach()
        self.report()
        self.report_others("b", "c", "d")
        self.search.run_once()
        with self.assertLogs(fence_limiter.LOG.name, "ERROR") as logged:
            self.pass_time(40)
        self.assertIn(f"Hosts b, c, {HOST}, d: not fenced", logged.output[0])
        self.assertEqual(0, self.count_fenced())
        self.assertEqual("mark", agent_store.get("b")["lost_action"])
        self.assertEqual(lost_agents.INTERVAL, self.search.interval())
        # Three return, one after the other.
        for host in "bcd":
            self.report_others(host)
            self.pass_time(5)
        self.assertEqual(0, self.count_fenced())
        for _ in range(4):
            self.report_others("b", "c", "d")
            self.pass_time(6)
        self.assertEqual(1, self.count_fenced())
        self.assertIsNotNone(self.fence())

    def test_late_reports_of_one_host_do_not_protect_a_dead_one(self):
        self.attach()
        self.report()
        self.report_others("b", "c", "d")
        for seconds in range(3, 91, 3):
            self.report_others(*(["b", "c", "d"] if seconds % 18 == 0 else ["c", "d"]))
            self.pass_time(3)
        self.assertIsNotNone(self.fence())
        self.assertEqual(1, self.count_fenced())

    def test_statements_of_search_do_not_depend_on_number_of_hosts(self):
        self.attach()
        self.report()
        counts = []
        for hosts in (("b",), ("b", "c", "d", "e", "f")):
            self.report_others(*hosts)
            self.report()
            self.pass_time(12)
            before = session.counters()
            self.search.run_once()
            counts.append(session.counters().statements - before.statements)
        self.assertEqual(counts[:1] * 2, counts)

    def test_search_reads_no_row_of_a_host_that_reports(self):
        self.attach()
        self.report_others("b", "c", "d")
        self.report()
        self.pass_time(6)
        with mock.patch.object(host_leases, "list_rules", return_value={}) as rules:
            self.search.run_once()
        rules.assert_called_once_with([])

    def test_silent_host_about_which_nothing_is_to_be_done_is_read_once_a_minute(self):
        self.attach("nothing")
        self.report(host_lease=None)
        self.pass_time(25)
        self.assertEqual([], host_leases.read_silence().host_leases)
        self.clocks.process += 61
        self.clocks.database += 61
        (silent,) = host_leases.read_silence().host_leases
        self.assertEqual(HOST, silent.host)

    def test_rule_that_a_silent_host_gets_later_counts_since_its_last_report(self):
        self.attach("nothing")
        self.report(host_lease=None)
        self.pass_time(100)
        self.attach("fence")
        self.pass_time(61)
        self.assertIsNotNone(self.fence())

    def test_database_that_has_lost_renewals_fences_no_host(self):
        self.attach()
        self.report()
        self.search.run_once()
        self.pass_time(6)
        former = agent_store.get(HOST)
        for _ in range(10):
            self.report()
            self.pass_time(6)
        # Such as another server of it that had not stored the last minute.
        lost = {name: former[name] for name in ("heartbeat_at", "silent_at")}
        db_rows.change_agent(HOST, **lost)
        self.search.run_once()
        self.assertIsNone(self.fence())
        self.pass_time(19)
        self.assertIsNone(self.fence())
        self.pass_time(2)
        self.assertIsNotNone(self.fence())

    def test_clock_of_database_that_goes_a_little_faster_fences_no_host_earlier(self):
        self.attach()
        self.report()
        self.search.run_once()
        self.clocks.database += 0.9
        self.pass_time(19.5)
        self.assertIsNone(self.fence())
        self.pass_time(1)
        self.assertIsNotNone(self.fence())

    def test_hosts_beyond_the_number_a_minute_are_fenced_later(self):
        conf_fixture.override(self, "max_lost_hosts_percent", 100, group="manager")
        conf_fixture.override(self, "max_lease_fences_per_minute", 2, group="manager")
        self.attach()
        self.report()
        self.report_others("b", "c")
        with self.assertLogs(fence_limiter.LOG.name, "ERROR") as logged:
            self.pass_time(21)
        self.assertIn("max_lease_fences_per_minute", logged.output[0])
        self.assertEqual(2, self.count_fenced())
        self.pass_time(70)
        self.assertEqual(3, self.count_fenced())

    def test_mark_changes_no_access(self):
        attachment = self.attach("mark")
        self.report(host_lease=None)
        self.search.run_once()
        for _ in range(2):
            self.pass_time(21)
        self.assertIsNone(self.fence())
        row = db_rows.get_attachment(attachment)
        self.assertEqual("attached", row["state"])
        self.assertIn("is lost since", row["error"])
        self.notified.assert_called_once()
        self.assertEqual("lost", self.notified.call_args.args[0])
        self.counted.assert_called_with(metrics.LOST_AGENTS, "mark")

    def test_host_is_marked_first_and_fenced_later(self):
        self.attach("mark", 20)
        self.attach("fence", 40)
        self.report(host_lease=40)
        self.search.run_once()
        self.pass_time(21)
        self.assertIsNone(self.fence())
        self.pass_time(20)
        self.assertEqual(1, self.fence()["generation"])

    def test_nothing_is_done_by_default(self):
        self.attach("nothing")
        self.report(host_lease=None)
        self.search.run_once()
        self.pass_time(200)
        self.assertIsNone(self.fence())
        self.assertIsNone(agent_store.get(HOST)["lost_at"])
        self.assertEqual(lost_agents.INTERVAL, LostAgents().interval())

    def test_clock_of_database_that_jumps_fences_no_host(self):
        self.attach()
        self.report()
        self.search.run_once()
        self.clocks.database += 1000
        self.search.run_once()
        self.assertIsNone(self.fence())
        self.pass_time(21)
        self.assertIsNotNone(self.fence())

    def test_process_that_has_just_started_or_was_suspended_begins_leases_anew(self):
        self.attach()
        self.report()
        for _ in range(2):
            self.clocks.process += 1000
            self.clocks.database += 1000
            self.search.run_once()
            self.assertIsNone(self.fence())
        self.pass_time(21)
        self.assertIsNotNone(self.fence())

    def test_other_manager_that_goes_on_fences_while_one_is_suspended(self):
        self.attach()
        self.report()
        self.search.run_once()
        other = LostAgents()
        self.clocks.pass_time(30, other.run_once)
        self.assertIsNotNone(self.fence())
        self.search.run_once()
        self.assertEqual(1, self.fence()["generation"])

    def test_outage_of_message_queue_begins_all_leases_anew(self):
        self.attach()
        self.report()
        self.search.run_once()
        down = exception.Unavailable(reason="no broker")
        with (
            mock.patch.object(registry_check, "check", side_effect=down),
            self.assertRaises(exception.Unavailable) as raised,
        ):
            self.pass_time(15)
        with self.assertLogs("attachd.manager.agents.lost_agents", "ERROR") as logged:
            self.search._handle_failure(raised.exception)
            self.search._handle_failure(raised.exception)
        self.assertEqual(1, len(logged.output))
        self.pass_time(15)
        self.assertIsNone(self.fence())
        self.pass_time(6)
        self.assertIsNotNone(self.fence())

    def test_silent_hosts_are_written_from_the_half_of_the_lease_on(self):
        self.attach()
        self.report()
        with mock.patch.object(host_leases, "check_writable") as check:
            self.search.run_once()
            self.pass_time(10)
            check.assert_not_called()
            self.pass_time(1)
        check.assert_called_with([HOST])

    def test_slow_step_begins_all_leases_anew(self):
        self.attach()
        self.report()
        self.search.run_once()
        self.pass_time(19)
        real = host_fences.fence_in

        def block(*args, **options):
            self.clocks.process += 30
            self.clocks.database += 30
            return real(*args, **options)

        def hang(_timeout):
            self.clocks.process += 30

        for target, name, slow in (
            (registry_check, "check", hang),
            (host_fences, "fence_in", block),
        ):
            with (
                mock.patch.object(target, name, slow),
                self.assertRaisesRegex(exception.Unavailable, "more than 5 s") as raised,
            ):
                self.pass_time(30)
            self.assertIsNone(self.fence(), name)
            with self.assertLogs("attachd.manager.agents.lost_agents", "ERROR"):
                self.search._handle_failure(raised.exception)
            self.search.run_once()
            self.assertIsNone(self.fence(), name)
        self.pass_time(21)
        self.assertIsNotNone(self.fence())

    def test_lifted_fence_is_not_repeated(self):
        self.attach()
        self.report()
        self.search.run_once()
        self.pass_time(21)
        host_fences.lift(HOST)
        self.attach()
        self.pass_time(100)
        self.assertIsNone(self.fence()["fenced_at"])

    def test_backend_that_cannot_end_access_keeps_attachment(self):
        attachment = self.attach()
        self.report()
        self.search.run_once()
        abilities = {"here@fake": manager_api.Fencing.NONE.value}
        with mock.patch("attachd.db.cluster.services.list_capability", return_value=abilities):
            self.pass_time(21)
        self.assertIsNotNone(self.fence())
        self.assertEqual("attached", db_rows.get_attachment(attachment)["state"])

    def test_leases_that_may_end_are_looked_at_more_often(self):
        self.search.run_once()
        self.assertEqual(lost_agents.INTERVAL, self.search.interval())
        self.report(host_lease=20)
        self.search.run_once()
        self.assertEqual(lost_agents.FAST_INTERVAL, self.search.interval())
        self.attach()
        self.pass_time(21)
        self.search.run_once()
        self.assertEqual(lost_agents.INTERVAL, self.search.interval(), "it is fenced")
