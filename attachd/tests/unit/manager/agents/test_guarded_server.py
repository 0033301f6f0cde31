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
        server = mock.Mock(is_serving=True, has_failed=False, has_seen_outage=False, consumers=1)
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

    def assert_left(self, server, reason):
        with self.assertLogs(guarded_server.LOG.name, "ERROR") as logged:
            for _ in range(3):
                self.now += guarded_server.CHECK_INTERVAL
                self.guard.run_once()
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
        self.assert_left(server, "The database does not answer")
        self.write.side_effect = self.read.side_effect = None
        self.assertIsNot(server, self.begin())

    def test_server_whose_call_could_not_be_stored_ends(self):
        server = self.begin()
        server.has_seen_outage = True
        self.assert_left(server, "could not be stored")

    def test_server_whose_threads_are_stuck_ends(self):
        server = self.begin()
        server.execute.side_effect = None  # The check waits for a thread.
        self.assert_left(server, "take more than 1.5 s")

    def test_server_that_answers_no_probes_is_started_again_at_most_once_a_minute(self):
        server = self.begin()
        for ids in ({"me"}, {"me"}, {"other"}, {"me"}, {"me"}):
            self.guard.record_silence(ids)
        self.guard.run_once()
        server.stop.assert_not_called()
        self.guard.record_silence({"me"})
        self.assert_left(server, "probes of managers")
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
