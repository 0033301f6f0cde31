# SPDX-License-Identifier: Apache-2.0
"""An agent reports also after failures, and works at the same time."""

from concurrent import futures
import contextlib
import json
import socket
import threading
import time
import unittest
from unittest import mock

from attachd import exception
from attachd.agent import service as agent_service
from attachd.agent.service import Agent, Endpoint
from attachd.context import RequestContext
from attachd.db.agents import agent_store
from attachd.db.attachments import async_requests
from attachd.rpc import agent_api, agent_manager_api, agent_transport, manager_api
from attachd.tests.fixtures import db_rows, fake_host
from attachd.tests.fixtures.conf_fixture import override
from attachd.tests.wait import TIMEOUT, wait_until

CONTEXT = RequestContext(overwrite=False)


class AgentTest(fake_host.FakeHostCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(manager_api, "process_pending"))
        override(self, "report_interval", 1, group="agent")
        # A slow test machine must not count as one that hangs.
        self.enterContext(mock.patch("attachd.agent.worker_pool.DEFAULT_TIMEOUT", TIMEOUT))
        self.enterContext(mock.patch.object(agent_service, "SHUTDOWN_TIMEOUT", TIMEOUT))
        self.agent = self.make_agent()

    def make_agent(self, key=fake_host.CREDENTIALS.key):
        made = Agent(self.make_host(), key)
        self.addCleanup(made.stop)
        return made

    def start(self):
        with self.assertLogs("attachd.agent.service", "INFO") as logged:
            self.agent.start()
            wait_until(lambda: "serves requests" in "".join(logged.output))

    def pass_time(self):
        """Move the start of all current operations back by an hour."""
        later = time.monotonic() + 3600
        self.enterContext(mock.patch("attachd.agent.worker_pool.monotonic", lambda: later))

    def state(self, attachment_id):
        return db_rows.get_attachment(attachment_id)["state"]

    def test_agent_reports_before_it_serves(self):
        with mock.patch.object(agent_transport, "get_host_server") as server:
            seen = []
            server.return_value.find_problem.return_value = None
            server.return_value.start = lambda **_: seen.append(
                agent_store.get(fake_host.NAME)["alive"]
            )
            self.agent = self.make_agent()
            self.start()
        self.assertEqual([True], seen)

    def test_local_socket_is_served_until_agent_stops(self):
        path = self.top / "agent.sock"
        override(self, "local_socket", f"{path}", group="agent")
        self.agent = self.make_agent()
        self.start()
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(f"{path}")
            caller.sendall(b'{"version": 1, "call": "host"}\n')
            with caller.makefile("rb") as answers:
                self.assertEqual(fake_host.NAME, json.loads(answers.readline())["result"]["name"])
        self.agent.stop()
        self.assertFalse(path.exists())

    def test_reconcile_message_makes_device(self):
        override(self, "report_interval", 3600, group="agent")
        self.start()
        attachment_id = self.add()
        agent_api.reconcile(CONTEXT, fake_host.NAME, attachment_id)
        wait_until(lambda: self.state(attachment_id) == "attached")

    def test_failed_reconcile_is_reported(self):
        override(self, "report_interval", 3600, group="agent")
        self.start()
        self.connector.failing.add("connect")
        attachment_id = self.add()
        agent_api.reconcile(CONTEXT, fake_host.NAME, attachment_id)
        wait_until(lambda: db_rows.get_attachment(attachment_id)["error"])
        self.assertIn("could not connect", db_rows.get_attachment(attachment_id)["error"])

    def test_pending_attachment_is_reconciled_by_report(self):
        self.start()
        attachment_id = self.add()
        wait_until(lambda: self.state(attachment_id) == "attached")
        async_requests.withdraw(attachment_id, self.volume_id)
        wait_until(lambda: self.state(attachment_id) == "disconnecting")

    def test_report_with_nothing_new_is_a_renewal(self):
        attachment_id = self.add()
        self.agent.report()
        wait_until(lambda: self.state(attachment_id) == "attached")
        report, renew = agent_manager_api.report, agent_manager_api.renew
        with (
            mock.patch.object(agent_manager_api, "report", side_effect=report) as reported,
            mock.patch.object(agent_manager_api, "renew", side_effect=renew) as renewed,
        ):
            for _ in range(4):
                self.agent.report()
            self.assertLessEqual(reported.call_count, 2)
            self.assertGreaterEqual(renewed.call_count, 2)
            before = reported.call_count
            async_requests.withdraw(attachment_id, self.volume_id)
            self.agent.report()
            self.assertEqual(before + 1, reported.call_count)
        wait_until(lambda: self.state(attachment_id) == "disconnecting")

    def test_renewal_without_answer_is_followed_by_another(self):
        self.agent.report()
        away = exception.Unavailable(reason="no answer")
        with (
            mock.patch.object(agent_manager_api, "renew", side_effect=away),
            self.assertRaises(exception.Unavailable),
        ):
            self.agent.report()
        with mock.patch.object(agent_manager_api, "report") as reported:
            self.agent.report()
        reported.assert_not_called()

    def test_reports_continue_during_long_work(self):
        gate, entered = threading.Event(), threading.Event()
        self.addCleanup(gate.set)

        def connect(*args):
            entered.set()
            gate.wait(TIMEOUT)
            return real(*args)

        real = self.connector.connect
        self.add()
        with mock.patch.object(self.connector, "connect", connect):
            self.start()
            self.assertTrue(entered.wait(TIMEOUT))
            before = agent_store.get(fake_host.NAME)["seen_at"]
            wait_until(lambda: agent_store.get(fake_host.NAME)["seen_at"] > before)
            gate.set()
            self.assertTrue(self.agent.stop())

    def test_reports_continue_while_host_hangs(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        attachment_id = self.add()
        self.agent.report()
        wait_until(lambda: self.state(attachment_id) == "attached")
        with mock.patch("attachd.agent.worker_pool.DEFAULT_TIMEOUT", 0.5):
            self.agent = self.make_agent()
        hanging = mock.patch.object(
            self.connector, "is_present", side_effect=lambda *_: gate.wait()
        )
        with hanging:
            for _ in range(3):
                before = agent_store.get(fake_host.NAME)["seen_at"]
                with self.assertRaisesRegex(exception.HostError, "hangs"):
                    self.agent.report()
                self.assertGreater(agent_store.get(fake_host.NAME)["seen_at"], before)
        self.assertIn("hangs", agent_store.get(fake_host.NAME)["error"])
        self.assertIsNone(agent_store.get(fake_host.NAME)["connector"])
        gate.set()

        def is_well():
            with contextlib.suppress(exception.HostError):
                self.agent.report()
            return agent_store.get(fake_host.NAME)["error"] is None

        # A slow machine answers later than after 10 ms.
        wait = futures.wait
        with mock.patch(
            "attachd.agent.worker_pool.futures.wait", lambda calls, _timeout: wait(calls, TIMEOUT)
        ):
            wait_until(is_well)

    def hang(self):
        """Start to connect an attachment, which hangs until the test ends; returns its id."""
        self.agent = self.make_agent()
        gate = threading.Event()

        def wait(*_):
            gate.wait(TIMEOUT)
            raise exception.HostError(reason="The test is over.")

        patched = mock.patch.object(self.connector, "connect", side_effect=wait)
        connect = patched.start()
        self.addCleanup(self.agent.stop)
        self.addCleanup(patched.stop)
        self.addCleanup(gate.set)
        attachment_id = self.add()
        self.agent.report()
        wait_until(lambda: connect.called)
        return attachment_id

    def test_stuck_work_is_logged_once_and_fills_host(self):
        override(self, "threads", 1, group="agent")
        attachment_id = self.hang()
        self.pass_time()
        with self.assertLogs("attachd.agent.worker_pool", "WARNING") as logged:
            self.agent.report()
            self.agent.report()
        self.assertEqual(1, len(logged.output))
        self.assertIn(attachment_id, logged.output[0])
        row = agent_store.get(fake_host.NAME)
        self.assertRegex(row["error"], f"^1 of 1 places .*{attachment_id} .since ")
        self.assertIsNone(row["connector"])

    def test_stuck_work_does_not_block_others(self):
        attachment_id = self.hang()
        self.pass_time()
        self.agent.report()
        row = agent_store.get(fake_host.NAME)
        self.assertRegex(row["error"], f"^1 of 8 places .*{attachment_id}")
        self.assertEqual(fake_host.NAME, row["connector"]["host"])

    def test_unavailable_managers_are_logged_once(self):
        away = exception.Unavailable(reason="No manager answers.")
        real, asked = agent_manager_api.report, []

        def report(*args):
            asked.append(args)
            if len(asked) <= 2:
                raise away
            return real(*args)

        with (
            mock.patch.object(agent_manager_api, "report", report),
            self.assertLogs("attachd.agent.service", "INFO") as logged,
        ):
            self.agent.start()
            wait_until(lambda: "serves requests" in "".join(logged.output))
        said = [line for line in logged.output if "report failed" in line]
        self.assertEqual(
            (1, 1), (len(said), "".join(logged.output).count("report accepted again"))
        )

    def test_report_that_no_manager_answers_is_repeated_at_once_if_there_is_a_lease(self):
        override(self, "report_interval", 3600, group="agent")
        away = exception.Unavailable(reason="No manager answers.")
        real = agent_manager_api.report
        self.agent._lease.renew(self.agent._lease.now(), 86400)
        with mock.patch.object(agent_manager_api, "report", side_effect=[away, real]) as report:
            self.agent.start()
            wait_until(lambda: report.call_count == 2)

    def test_requested_report_does_not_wait_for_the_interval(self):
        override(self, "report_interval", 3600, group="agent")
        self.start()
        for number in range(3):
            request_id = f"{number:032x}"
            agent_api.report(CONTEXT, fake_host.NAME, request_id)
            wait_until(
                lambda asked=request_id: (
                    asked in agent_store.get(fake_host.NAME)["observed"]["asked"]
                )
            )

    def test_requests_of_one_pause_are_answered_by_few_reports(self):
        override(self, "report_interval", 3600, group="agent")
        self.start()
        before = agent_store.get(fake_host.NAME)["report_number"]
        ids = [f"{number:032x}" for number in range(50)]
        for request_id in ids:
            self.agent.report_soon(request_id)
        wait_until(lambda: ids[-1] in agent_store.get(fake_host.NAME)["observed"]["asked"])
        row = agent_store.get(fake_host.NAME)
        self.assertEqual(ids, row["observed"]["asked"])
        self.assertLess(row["report_number"] - before, 10)

    def test_agent_that_shall_not_report_others_says_nothing_of_them(self):
        override(self, "report_others", False, group="agent")
        self.agent = self.make_agent()
        self.start()
        self.assertIsNone(agent_store.get(fake_host.NAME)["observed"])

    def test_report_with_other_key_is_forbidden(self):
        other = self.make_agent("o" * 43)
        with self.assertRaises(exception.Forbidden):
            other.report()

    def test_unexpected_error_does_not_end_heartbeat(self):
        real, asked = agent_manager_api.report, []

        def report(*args):
            asked.append(args)
            if len(asked) == 1:
                raise ZeroDivisionError
            return real(*args)

        with mock.patch.object(agent_manager_api, "report", report):
            self.start()
        self.assertLess(1, len(asked))

    def test_unreadable_journal_is_reported_without_work(self):
        attachment_id = self.add()
        broken = self.top / "attachments" / "x.json"
        broken.parent.mkdir()
        broken.write_text("{")
        with self.assertRaisesRegex(exception.HostError, "x.json"):
            self.agent.report()
        self.assertIn("x.json", agent_store.get(fake_host.NAME)["error"])
        self.assertEqual("connected", self.state(attachment_id))

    def test_stop_keeps_devices(self):
        self.start()
        attachment_id = self.add()
        agent_api.reconcile(CONTEXT, fake_host.NAME, attachment_id)
        wait_until(lambda: self.state(attachment_id) == "attached")
        self.assertTrue(self.agent.stop())
        self.assertEqual(
            (["t1"], "attached"), (self.connector.devices(), self.state(attachment_id))
        )

    def test_stop_returns_after_timeout(self):
        gate, entered = threading.Event(), threading.Event()
        self.addCleanup(gate.set)

        def connect(*_):
            entered.set()
            gate.wait(TIMEOUT)
            raise exception.HostError(reason="late")

        self.add()
        with (
            mock.patch.object(self.connector, "connect", connect),
            mock.patch.object(agent_service, "SHUTDOWN_TIMEOUT", 0.1),
        ):
            self.start()
            self.assertTrue(entered.wait(TIMEOUT))
            self.assertFalse(self.agent.stop())
            gate.set()


CONTEXT = RequestContext(overwrite=False)


class EndpointTest(unittest.TestCase):
    def test_endpoint_reconciles(self):
        reconcile = mock.Mock(return_value=None)
        endpoint = Endpoint(reconcile, mock.Mock())
        self.assertIsNone(endpoint.reconcile(CONTEXT, attachment_id="a"))
        reconcile.assert_called_once_with("a")

    def test_endpoint_reports_for_requests_with_a_valid_id_only(self):
        report = mock.Mock(return_value=None)
        endpoint = Endpoint(mock.Mock(), report)
        for request_id in ("", "A" * 32, "a" * 33, "a\n", None, ["a" * 32]):
            endpoint.report(CONTEXT, request_id=request_id)
        report.assert_not_called()
        endpoint.report(CONTEXT, request_id="a" * 32)
        report.assert_called_once_with("a" * 32)

    def test_endpoint_logs_each_error(self):
        busy = exception.DeviceBusy(device="/dev/sdb", users="x")
        for error in (busy, exception.Unavailable(reason="no manager"), ZeroDivisionError()):
            with self.assertLogs("attachd.agent.service", "WARNING") as logged:
                Endpoint(mock.Mock(side_effect=error), mock.Mock()).reconcile(CONTEXT, "a")
            self.assertIn(type(error).__name__ if not f"{error}" else f"{error}", logged.output[0])
