# SPDX-License-Identifier: Apache-2.0
"""The server for agents that stops to receive calls, with a clock that tests set."""

import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.db.cluster import members, registry_probes
from attachd.manager.agents import guarded_server
from attachd.manager.agents.guarded_server import GuardedAgentServer
from attachd.tests.wait import TIMEOUT, wait_until

AWAY = exception.Unavailable(reason="The database does not answer.")


class GuardedAgentServerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.patch(guarded_server, "boot_clock", lambda: self.now)
        self.write = self.patch(members, "heartbeat", return_value=True)
        self.read = self.patch(members, "list_living", return_value=[])
        self.left = self.patch(registry_probes, "leave")
        self.recorded = self.patch(registry_probes, "record")
        self.made = self.patch(guarded_server, "AgentRpcServer", side_effect=self.make_server)
        self.servers = []
        self.guard = GuardedAgentServer(mock.Mock(id="me"))

    def patch(self, owner, name, *values, **options):
        return self.enterContext(mock.patch.object(owner, name, *values, **options))

    def make_server(self, _answer):
        server = mock.Mock(is_serving=True, has_failed=False, consumers=1)
        server.take_outage.return_value = False
        server.execute.side_effect = lambda function: function()
        self.servers.append(server)
        return server

    def begin(self):
        """Look until there is a server; return it."""

        def is_started():
            self.guard.run_once()
            self.now += guarded_server.CHECK_INTERVAL
            return self.guard._server is not None

        wait_until(is_started)
        return self.servers[-1]

    def run_for(self, seconds):
        """Look at the checks for some time."""
        end = self.now + seconds
        while self.now < end:
            self.now += guarded_server.INTERVAL
            self.guard.run_once()

    def assert_paused(self, server, reason):
        with self.assertLogs(guarded_server.LOG.name, "WARNING") as logged:
            self.run_for(3)
        self.assertIn(reason, logged.output[0])
        server.pause.assert_called_once_with()
        wait_until(lambda: self.left.called)
        server.stop.assert_not_called()

    def assert_left(self, server, reason):
        with self.assertLogs(guarded_server.LOG.name, "ERROR") as logged:
            self.run_for(guarded_server.LEAVE_AFTER + 1)
        self.assertIn(reason, logged.output[0])
        wait_until(lambda: server.stop.called)
        wait_until(lambda: self.left.called)

    def test_server_begins_when_something_can_be_stored(self):
        self.write.side_effect = AWAY
        for _ in range(3):
            self.guard.run_once()
            self.now += guarded_server.CHECK_INTERVAL
        self.made.assert_not_called()
        self.write.side_effect = None
        self.begin().start.assert_called_once_with()

    def test_server_that_works_goes_on(self):
        server = self.begin()
        for _ in range(10):
            self.guard.run_once()
            self.now += guarded_server.INTERVAL
        server.stop.assert_not_called()
        self.assertLessEqual(self.read.call_count, 6)

    def test_server_that_could_not_be_started_is_replaced(self):
        server = self.begin()
        server.is_serving, server.has_failed = False, True
        self.guard.run_once()
        server.stop.assert_not_called()
        self.now += guarded_server.START_INTERVAL
        self.guard.run_once()
        server.stop.assert_called_once_with()
        self.assertIsNot(server, self.begin())

    def test_server_without_database_ends_and_begins_again(self):
        server = self.begin()
        self.read.side_effect = AWAY
        self.write.side_effect = AWAY
        self.assert_paused(server, "The database does not answer")
        self.assert_left(server, "The database does not answer")
        self.write.side_effect = self.read.side_effect = None
        self.assertIsNot(server, self.begin())

    def test_server_whose_call_could_not_be_stored_keeps_its_queues(self):
        server = self.begin()
        server.take_outage.side_effect = [True, *[False] * 100]
        self.assert_paused(server, "could not be stored")
        self.assert_goes_on(server)

    def test_server_keeps_its_queues_when_the_database_was_slow(self):
        server, stall = self.begin(), guarded_server.MAX_DURATION + 1

        def be_slow():
            self.now += stall

        self.read.side_effect = be_slow
        self.guard._answering = None
        self.guard.run_once()
        self.read.side_effect = None
        self.assert_paused(server, "take more than 1.5 s")
        self.assert_goes_on(server)

    def test_server_whose_threads_are_stuck_ends(self):
        server = self.begin()
        server.execute.side_effect = None  # The check waits for a thread.
        self.assert_paused(server, "take more than 1.5 s")
        server.resume.assert_not_called()
        self.assert_left(server, "take more than 1.5 s")

    def assert_goes_on(self, server):
        self.run_for(guarded_server.LEAVE_AFTER + 1)
        server.resume.assert_called_once_with()
        server.stop.assert_not_called()
        self.assertEqual([server], self.servers)

    def test_server_that_answers_no_probes_is_started_again_at_most_once_a_minute(self):
        server = self.begin()
        for ids in ({"me"}, {"me"}, {"other"}, {"me"}, {"me"}):
            self.guard.record_silence(ids)
        self.guard.run_once()
        server.stop.assert_not_called()
        self.guard.record_silence({"me"})
        with self.assertLogs(guarded_server.LOG.name, "ERROR") as logged:
            self.guard.run_once()
        self.assertIn("probes of managers", logged.output[0])
        wait_until(lambda: server.stop.called)
        second = self.begin()
        for _ in range(3):
            self.guard.record_silence({"me"})
        self.guard.run_once()
        second.stop.assert_not_called()

    def test_answer_is_stored_with_number_of_consumers(self):
        self.begin()
        answer = self.made.call_args.args[0]
        answer("2026-01-01T00:00:00", True)
        answer("no time", True)
        answer("2026-01-01T00:00:00+00:00", True)
        ((member, time, consumers),) = [call.args for call in self.recorded.call_args_list]
        self.assertEqual(("me", 2026, 1), (member, time.year, consumers))

    def test_stop_ends_server(self):
        self.guard.start()
        wait_until(lambda: self.servers)
        self.guard.stop()
        self.guard._thread.join(TIMEOUT)
        self.servers[0].stop.assert_called_once_with()
        self.left.assert_called_with("me")
        self.assertFalse(any(t.name == "agent-server-guard" for t in threading.enumerate()))
