# SPDX-License-Identifier: Apache-2.0

import threading
import time
import unittest
from unittest import mock

from oslo_messaging.notify import _impl_test

from attachd import exception, notifications
from attachd.context import RequestContext
from attachd.db.agents import agent_store
from attachd.db.cluster import members, services
from attachd.manager import service as manager_service
from attachd.manager.agents.rpc_server import AgentRpcServer
from attachd.manager.ownership.membership import Membership
from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.manager.service import ManagerService
from attachd.rpc import agent_manager_api, transport
from attachd.tests.fixtures import (
    backends,
    captured_notifications,
    conf_fixture,
    fake_agent,
    rpc_clients,
)
from attachd.tests.wait import TIMEOUT, wait_until


class ManagerServiceTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        rpc_clients.use_transport(self)
        self.backend = backends.use(self)
        self.enterContext(mock.patch("attachd.manager.backends.load", return_value=[self.backend]))
        # On a slow machine, work must not count as unfinished.
        self.enterContext(mock.patch.object(manager_service, "STOP_TIMEOUT", TIMEOUT))
        self.manager = ManagerService()
        self.addCleanup(self.manager.stop)

    def ask(self, volume_id="v"):
        return transport.get_client(self.backend.host, TIMEOUT, "1.0").call(
            RequestContext(overwrite=False), "detach", attachment_id="a", volume_id=volume_id
        )

    def test_start_serves_backends_and_reports_them(self):
        self.manager.start()
        self.assertTrue(self.manager.wait_until_reported(TIMEOUT))
        with self.assertRaises(exception.NotFound):
            self.ask()
        (row,) = services.page(services.Filters())
        self.assertEqual((self.backend.host, True), (row["host"], row["up"]))

    def test_stop_closes_drivers(self):
        self.manager.start()
        self.assertTrue(self.manager.wait_until_reported(TIMEOUT))
        with (
            mock.patch.object(self.backend.driver, "close", side_effect=OSError("gone")) as close,
            self.assertLogs(manager_service.__name__, "ERROR"),
        ):
            self.manager.stop()
        close.assert_called_once_with()
        self.assertEqual([], members.list_living())

    def test_start_runs_tasks_of_all_managers(self):
        with mock.patch("attachd.db.messages.purge", side_effect=[0]) as purged:
            self.manager.start()
            wait_until(lambda: purged.called)

    def test_start_with_credentials_of_compute_sends_events(self):
        conf_fixture.override(self, "auth_type", "none", group="nova")
        with mock.patch("attachd.manager.compute_events.send_due") as send_due:
            self.manager.start()
            wait_until(lambda: send_due.called)

    def test_start_serves_agents_until_stop(self):
        proof = fake_agent.get_credentials("compute-1")
        agent_store.create(proof.host, proof.key)
        self.manager.start()
        said = fake_agent.make_report(proof.host, connector=None)

        def is_answered():
            try:
                return agent_manager_api.report(proof, said) == []
            except exception.Unavailable:
                return False

        # Its server for agents starts beside the rest.
        wait_until(is_answered)
        with mock.patch.object(
            AgentRpcServer, "stop", autospec=True, side_effect=AgentRpcServer.stop
        ) as stopped:
            self.manager.stop()
        stopped.assert_called_once()

    def test_start_without_agents_serves_none(self):
        conf_fixture.override(self, "enabled", False, group="agent")
        with mock.patch("attachd.manager.service.AgentRpcServer") as made:
            self.manager.start()
            self.manager.stop()
        made.assert_not_called()

    def test_stop_sends_queued_notifications(self):
        captured_notifications.use(self)
        for number in range(20):
            notifications.volume(f"x{number}", "v1", {"name": "disk"}, [])
        self.manager.stop()
        self.assertEqual(20, len(_impl_test.NOTIFICATIONS))

    def test_start_with_broken_backend_serves_and_reports_it_down(self):
        error = exception.BackendError("no shelf", final=True)
        with mock.patch.object(self.backend.driver, "setup", side_effect=error):
            self.manager.start()
            self.assertTrue(self.manager.wait_until_reported(TIMEOUT))
        (row,) = services.page(services.Filters())
        self.assertEqual((False, "Backend error: no shelf."), (row["up"], row["error"]))

    def test_start_sets_backend_up_before_first_call(self):
        order = []
        self.backend.error = "not yet"
        setup, started = self.backend.setup, threading.Event()

        def slow_setup():
            started.wait(TIMEOUT)  # others could be asked by now
            order.append("set up")
            return setup()

        server = mock.Mock()
        server.start.side_effect = lambda **_: order.append("serving")
        serving = mock.patch("attachd.rpc.transport.get_server", return_value=server)
        agents = mock.patch("attachd.manager.service.AgentRpcServer")
        with mock.patch.object(self.backend, "setup", slow_setup), serving, agents:
            self.manager.start()
            started.set()
            self.assertTrue(self.manager.wait_until_reported(TIMEOUT))
        self.assertEqual(["set up", "serving"], order)

    def test_start_serves_nothing_before_membership_joined(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        server = mock.Mock()
        self.addCleanup(self.backend.membership.stop)
        with (
            mock.patch.object(members, "join", side_effect=gone),
            mock.patch("attachd.rpc.transport.get_server", return_value=server),
            mock.patch("attachd.manager.service.AgentRpcServer"),
        ):
            self.backend.membership.start()
            self.manager.start()
            self.assertFalse(self.manager.wait_until_reported(0.3))
            self.assertEqual(0, server.start.call_count)
        self.backend.membership.heartbeat()
        self.assertTrue(self.manager.wait_until_reported(TIMEOUT))
        self.assertEqual(1, server.start.call_count)

    def test_stop_leaves_membership(self):
        self.manager.start()
        wait_until(members.list_living)
        self.manager.stop()
        self.assertEqual([], members.list_living())

    def test_start_uses_configured_number_of_threads(self):
        conf_fixture.override(self, "threads_per_backend", 2, group="manager")
        self.manager.start()
        self.assertTrue(self.manager.wait_until_reported(TIMEOUT))
        entered = threading.Semaphore(0)
        gate = threading.Event()

        def detach(*_args):
            entered.release()
            gate.wait(TIMEOUT)
            return []

        with mock.patch("attachd.manager.detach.detach", detach):
            callers = [threading.Thread(target=self.ask, args=(volume,)) for volume in "uvw"]
            for caller in callers:
                caller.start()
            for _ in range(2):
                self.assertTrue(entered.acquire(timeout=TIMEOUT))
            self.assertFalse(entered.acquire(timeout=0.2))  # a slow one does not come either
            gate.set()
            for caller in callers:
                caller.join(TIMEOUT)

    def test_stop_finishes_call_in_progress(self):
        self.manager.start()
        self.assertTrue(self.manager.wait_until_reported(TIMEOUT))
        entered, gate = threading.Event(), threading.Event()
        self.addCleanup(gate.set)
        answers = []

        def detach(*_args):
            entered.set()
            gate.wait(TIMEOUT)
            return []

        with mock.patch("attachd.manager.detach.detach", detach):
            caller = threading.Thread(target=lambda: answers.append(self.ask()))
            caller.start()
            self.assertTrue(entered.wait(TIMEOUT))
            stopping = threading.Thread(target=self.manager.stop)
            stopping.start()
            wait_until(self.manager._workers[0]._stopping.is_set)
            gate.set()
            stopping.join(TIMEOUT)
        caller.join(TIMEOUT)
        self.assertEqual([[]], answers)

    def test_stop_when_idle_leaves_membership_at_once(self):
        self.manager.start()
        with mock.patch.object(Membership, "stop") as leave:
            self.manager.stop()
        leave.assert_called_once_with()

    def test_stop_with_work_in_progress_keeps_membership_until_it_ends(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.manager.start()
        self.backend.background_tasks.submit("v", lambda: gate.wait(TIMEOUT))
        with (
            mock.patch.object(Membership, "stop") as leave,
            self.assertLogs("attachd.manager.service", "WARNING") as logged,
        ):
            self.manager.stop()
        leave.assert_not_called()
        self.assertIn("left to another manager", logged.output[0])

    def test_stop_leaves_long_call_to_other_managers(self):
        self.manager.start()
        self.assertTrue(self.manager.wait_until_reported(TIMEOUT))
        entered, gate = threading.Event(), threading.Event()
        self.addCleanup(gate.set)

        def detach(*_args):
            entered.set()
            gate.wait(TIMEOUT)
            return []

        with (
            mock.patch("attachd.manager.detach.detach", detach),
            # The call goes on until the gate opens, which is after the end.
            mock.patch("attachd.manager.service._deadline", lambda: time.monotonic() + 0.1),
            mock.patch.object(Membership, "stop") as leave,
            mock.patch.object(notifications, "stop") as result,
        ):
            caller = threading.Thread(target=self.ask)
            caller.start()
            self.assertTrue(entered.wait(TIMEOUT))
            self.manager.stop()
            leave.assert_not_called()
            result.assert_called_once_with()
            gate.set()
            caller.join(TIMEOUT)

    def test_stop_deadline_keeps_shutdown_margin(self):
        def deadline(allowed):
            conf = mock.Mock(graceful_shutdown_timeout=allowed)
            with mock.patch("attachd.manager.service.CONF", conf):
                return manager_service._deadline()

        self.assertIsNone(deadline(0))
        self.enterContext(mock.patch("attachd.manager.service.time.monotonic", lambda: 1000.0))
        for allowed, expected in ((60, 1055), (4, 1002)):
            self.assertEqual(expected, deadline(allowed))

    def test_stop_ends_heartbeat_of_backend(self):
        self.manager.start()
        self.assertTrue(self.manager.wait_until_reported(TIMEOUT))
        self.manager.stop()
        self.assertEqual(
            [], [thread for thread in threading.enumerate() if "heartbeat" in thread.name]
        )

    def test_stop_before_serving_succeeds(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        with (
            mock.patch.object(self.backend, "setup", lambda: gate.wait(TIMEOUT)),
            mock.patch("attachd.manager.service.STOP_TIMEOUT", 0.1),
        ):
            self.manager.start()
            self.manager.stop()

    def test_heartbeat_failure_does_not_end_worker(self):
        calls = threading.Semaphore(0)

        def fail(_heartbeat):
            calls.release()
            raise RuntimeError("odd")

        conf_fixture.override(self, "report_interval", 1, group="manager")
        with mock.patch.object(BackendHeartbeat, "run_once", fail):
            self.manager.start()
            for _ in range(2):
                self.assertTrue(calls.acquire(timeout=TIMEOUT))
        with self.assertRaises(exception.NotFound):
            self.ask()
