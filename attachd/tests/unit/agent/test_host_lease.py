# SPDX-License-Identifier: Apache-2.0
"""The lease of a host as its agent knows it, by a clock that the tests set."""

import json
import threading
from unittest import mock

from attachd import exception
from attachd.agent import host_lease as agent_lease
from attachd.agent.connectors.base import Device
from attachd.agent.host_lease import HostLease, HostLeaseGuard
from attachd.agent.journal import Entry, Owner
from attachd.agent.service import Agent
from attachd.db import host_fences
from attachd.lost_agents import Action, Rule
from attachd.rpc import agent_manager_api, manager_api
from attachd.tests.fixtures import db_rows, fake_host
from attachd.tests.fixtures.lifetime import temp_dir
from attachd.tests.wait import TIMEOUT, wait_until

RW, RO = {"target": "t1", "access_mode": "rw"}, {"target": "t2", "access_mode": "ro"}


class ClockCase(fake_host.FakeHostCase):
    def setUp(self):
        super().setUp()
        self.time = 1000.0
        self.state_path = temp_dir(self)
        self.host_lease = self.make_lease()

    def make_lease(self):
        return HostLease(self.state_path, lambda: self.time)


class LeaseTest(ClockCase):
    def is_over_at(self, time):
        self.time = time
        return self.host_lease.is_over()

    def test_host_without_lease_writes_without_limit(self):
        self.assertFalse(self.is_over_at(10.0**9))
        self.host_lease.renew(1000, 60)
        self.host_lease.renew(1000, None)
        self.assertFalse(self.is_over_at(10.0**9))
        self.host_lease.check()

    def test_lease_is_over_after_two_thirds_since_the_report_was_sent(self):
        self.time = 1012.0  # The answer came late.
        self.host_lease.renew(1000, 60)
        self.assertFalse(self.is_over_at(1039.9))
        self.assertTrue(self.is_over_at(1040.0))
        with self.assertRaisesRegex(exception.HostError, "lease of this host is over"):
            self.host_lease.check()

    def test_answer_that_comes_after_the_end_renews_nothing(self):
        self.time = 1041.0
        self.host_lease.renew(1000, 60)
        self.assertTrue(self.host_lease.is_over())

    def test_suspended_host_wakes_up_with_a_lease_that_is_over(self):
        self.host_lease.renew(1000, 60)
        self.assertTrue(self.is_over_at(1000 + 8 * 3600))

    def test_margin_is_left_before_managers_fence_in_any_case(self):
        length = 60
        for stored_at in (1000.0, 1030.0):  # The managers begin when they store the report.
            self.host_lease.renew(1000, length)
            self.assertTrue(self.is_over_at(stored_at + length - 19.9))

    def test_fenced_host_has_no_lease_until_a_report_is_accepted(self):
        self.host_lease.end()
        self.assertTrue(self.host_lease.is_over())
        self.host_lease.renew(self.time, None)
        self.assertFalse(self.host_lease.is_over())

    def test_next_process_of_agent_knows_the_lease(self):
        self.host_lease.renew(1000, 60)
        self.time = 1041
        self.assertTrue(self.make_lease().is_over())
        self.host_lease.renew(1041, 60)
        self.assertFalse(self.make_lease().is_over())
        self.host_lease.end()
        self.assertTrue(self.make_lease().is_over())
        self.host_lease.renew(1041, None)
        self.assertFalse(self.make_lease().exists())

    def test_lease_ends_with_the_boot_of_the_host(self):
        self.host_lease.renew(1000, 60)
        file = self.state_path / "agent.lease"
        file.write_text(json.dumps({**json.loads(file.read_text()), "boot_id": "other"}))
        self.assertFalse(self.make_lease().exists())
        file.write_text("{")
        self.assertFalse(self.make_lease().exists())

    def test_lease_that_cannot_be_stored_is_valid(self):
        (self.state_path / "agent.lease.new").mkdir()
        (self.state_path / "agent.new").mkdir()
        with self.assertLogs(agent_lease.__name__, "WARNING"):
            self.host_lease.renew(1000, 60)
        self.assertTrue(self.is_over_at(1040))

    def test_reports_are_sent_often_enough_for_the_lease(self):
        self.assertEqual(10, self.host_lease.shorten(10))
        self.assertEqual(30, self.host_lease.get_timeout(30))
        self.host_lease.renew(1000, 30)
        self.assertEqual(5, self.host_lease.shorten(10))
        self.assertEqual(1, self.host_lease.shorten(1))
        self.assertEqual(5, self.host_lease.get_timeout(30))
        self.host_lease.renew(1000, 10)
        self.assertEqual(2, self.host_lease.get_timeout(30))

    def test_clock_goes_on(self):
        first = agent_lease.boot_clock()
        self.assertGreaterEqual(agent_lease.boot_clock(), first)


class GuardTest(ClockCase):
    def setUp(self):
        super().setUp()
        self.guard = HostLeaseGuard(self.host, self.host_lease)
        self.stopped = self.enterContext(mock.patch.object(self.host, "stop_writers"))
        for number, values in enumerate(
            (
                {"owner": Owner.AGENT, "connection_info": RW},
                {"owner": Owner.AGENT, "connection_info": RO},
                {"owner": Owner.AGENT},
                {"owner": Owner.LOCAL, "connection_info": RW},
            )
        ):
            self.host.journal.write(Entry(f"v{number}", attachment_id=f"a{number}", **values))

    def volumes(self):
        for thread in [*self.guard._stopping.values()]:
            thread.join(TIMEOUT)
        return [call.args[0].volume_id for call in self.stopped.call_args_list]

    def run_at(self, time):
        self.time = time
        self.guard.run_once()
        return self.volumes()

    def test_writers_of_agent_are_stopped_when_lease_is_over_and_not_before(self):
        self.host_lease.renew(1000, 60)
        self.assertEqual([], self.run_at(1039))
        with self.assertLogs(agent_lease.__name__, "WARNING") as logged:
            self.assertEqual(["v0"], self.run_at(1040))
            self.assertEqual(["v0", "v0"], self.run_at(1041))
        self.assertEqual(1, len(logged.output))

    def test_stopped_device_is_left_alone_for_a_while_unless_it_is_made_again(self):
        (entry,) = [item for item in self.host.journal.list_entries() if item.volume_id == "v0"]
        entry = self.host.journal.write(entry, device=Device("/dev/sdb", {}))
        self.host_lease.end()
        for seconds, count in ((0, 1), (0.5, 1), (4.9, 1), (5, 2)):
            self.assertEqual(count, len(self.run_at(2000 + seconds)), seconds)
        self.host.journal.write(entry, device=Device("/dev/sdc", {}))
        self.assertEqual(3, len(self.run_at(2005.5)))
        self.host_lease.renew(2006, 60)
        self.run_at(2006)
        self.host_lease.end()
        self.assertEqual(4, len(self.run_at(2006.5)), "the next lease is over")

    def test_renewed_lease_lets_writers_be(self):
        self.host_lease.renew(1000, 60)
        self.run_at(1040)
        self.host_lease.renew(1040, 60)
        self.assertEqual(["v0"], self.run_at(1041))

    def test_hanging_device_does_not_delay_the_others(self):
        self.host.journal.write(
            Entry("v9", attachment_id="a9", owner=Owner.AGENT, connection_info=RW)
        )
        gate, done = threading.Event(), threading.Event()
        self.addCleanup(gate.set)

        def stop(entry):
            (gate.wait if entry.volume_id == "v0" else done.set)()

        self.stopped.side_effect = stop
        self.host_lease.end()
        self.guard.run_once()
        self.assertTrue(done.wait(TIMEOUT))
        self.guard.run_once()
        gate.set()
        self.assertEqual(1, self.volumes().count("v0"))

    def test_failure_is_tried_again(self):
        self.stopped.side_effect = exception.HostError(reason="It cannot.")
        self.host_lease.end()
        with self.assertLogs(agent_lease.__name__, "WARNING"):
            for seconds, count in ((0, 1), (0.4, 1), (0.5, 2), (1, 2), (1.5, 3), (3, 3), (3.5, 4)):
                self.assertEqual(count, len(self.run_at(2000 + seconds)), seconds)

    def test_backoff_is_limited_and_ends_with_a_new_device(self):
        self.stopped.side_effect = exception.HostError(reason="It cannot.")
        self.host_lease.end()
        with self.assertLogs(agent_lease.__name__, "WARNING"):
            for number in range(1, 9):
                self.assertEqual(number, len(self.run_at(2000 + number * agent_lease.MAX_BACKOFF)))
            (entry,) = (
                item for item in self.host.journal.list_entries() if item.volume_id == "v0"
            )
            self.host.journal.write(entry, device=Device("/dev/sdb", {}))
            self.assertEqual(9, len(self.run_at(self.time)))

    def test_interval_is_short_while_there_is_a_lease(self):
        before = self.guard._get_interval()
        self.host_lease.renew(1000, 60)
        self.assertLess(self.guard._get_interval(), before)


class AgentLeaseTest(fake_host.FakeHostCase):
    """An agent in this process, with a manager that it can be cut off from."""

    def setUp(self):
        super().setUp()
        self.time = 1000.0
        self.enterContext(mock.patch.object(agent_lease, "boot_clock", lambda: self.time))
        self.enterContext(mock.patch.object(manager_api, "process_pending"))
        rule = Rule(Action.FENCE, 60)
        self.enterContext(
            mock.patch(
                "attachd.db.agents.host_leases.rules_of", lambda rows: [rule for _ in rows][:1]
            )
        )
        self.agent = Agent(self.make_host(), fake_host.CREDENTIALS.key)
        self.addCleanup(self.agent.stop)
        self.agent._lease._clock = lambda: self.time
        self.stopped = []
        self.agent._host.stop_writers = self.stopped.append
        self.attachment = self.add()
        self.agent.report()
        wait_until(lambda: db_rows.get_attachment(self.attachment)["state"] == "attached")
        self.agent.report()

    def pass_time(self, seconds):
        self.time += seconds
        self.agent._guard.run_once()
        for thread in [*self.agent._guard._stopping.values()]:
            thread.join(TIMEOUT)

    def test_agent_reports_the_lease_that_it_holds_and_confirms_another_at_once(self):
        sent, answers = [], iter([60, 30, 30, 30])

        def report(_credentials, said, *_):
            sent.append(said["lease"])
            return [{"lease": next(answers)}]

        self.agent._lease.renew(self.time, None)
        with (
            mock.patch.object(agent_manager_api, "report", report),
            mock.patch.object(self.agent._reconciler, "list_pending", return_value=[]),
            mock.patch.object(self.agent, "_serve"),
            mock.patch.object(self.agent, "_wait") as wait,
        ):
            wait.side_effect = lambda _seconds: len(sent) == 4
            self.agent._run_reports()
        self.assertEqual([None, 60, 30, 30], sent)
        self.assertEqual([0, 0, 5, 5], [call.args[0] for call in wait.call_args_list])

    def test_agent_that_is_cut_off_stops_writers_and_makes_no_device(self):
        down = exception.Unavailable(reason="No manager answers.")
        with mock.patch.object(agent_manager_api, "_call", side_effect=down):
            self.pass_time(39)
            self.assertRaises(exception.Unavailable, self.agent.report)
            self.assertEqual([], self.stopped)
            self.pass_time(2)
        self.assertEqual([self.attachment], [entry.attachment_id for entry in self.stopped])
        self.connector.reboot()  # In place of the measure.
        with self.assertRaisesRegex(exception.HostError, "lease of this host is over"):
            self.agent._reconciler.reconcile(self.attachment)
        self.agent.report()
        wait_until(self.connector.devices)
        self.pass_time(1)
        self.assertEqual(1, len(self.stopped))

    def test_agent_of_fenced_host_stops_writers_at_once_and_clears_devices(self):
        host_fences.fence(fake_host.NAME, "by hand", None)
        db_rows.change_attachment(self.attachment, state="disconnecting")
        with self.assertRaisesRegex(exception.HostFenced, "by hand"):
            self.agent.report()
        self.pass_time(0)
        self.assertEqual(1, len(self.stopped))
        wait_until(lambda: not self.agent._host.journal.list_entries())
        self.assertEqual([], self.connector.devices())
