# SPDX-License-Identifier: Apache-2.0
"""The server of an agent with a scripted broker; functional/test_agent_paths.py has a real one."""

import threading
import unittest
from unittest import mock

import oslo_messaging as messaging

from attachd.rpc import host_server, path_check
from attachd.tests.wait import TIMEOUT

_LISTEN = host_server._listen
TARGET = messaging.Target(exchange="x", topic="t", server="agent")


class HostServerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0
        clock = mock.Mock(monotonic=lambda: self.now)
        self.enterContext(mock.patch.object(path_check, "time", clock))
        self.enterContext(mock.patch.object(host_server, "time", clock))
        self.send = self.enterContext(mock.patch.object(path_check, "send_probe"))
        self.send.side_effect = self.arrive
        # The tests call check() themselves.
        self.enterContext(mock.patch.object(path_check, "PeriodicThread"))
        self.declare = self.enterContext(mock.patch.object(host_server, "_listen"))
        self.made = []
        self.probes = path_check.ProbeLog()
        self.server = host_server.HostServer(self.make, mock.Mock(), TARGET, self.probes)

    def make(self):
        self.made.append(mock.Mock(ended=threading.Event()))
        self.made[-1].wait.side_effect = self.made[-1].ended.set
        return self.made[-1]

    def arrive(self, _transport, _target, **arguments):
        self.probes.record(arguments)

    def check(self, times=1):
        for _ in range(times):
            self.now += path_check.INTERVAL
            self.server.check()

    def test_listener_declares_one_queue(self):
        self.enterContext(mock.patch.object(host_server.amqpdriver, "RpcAMQPListener"))
        self.enterContext(mock.patch.object(host_server.driver_base, "PollStyleListenerAdapter"))
        transport = mock.Mock()
        connection = transport._driver._get_connection.return_value
        _LISTEN(transport, TARGET)
        connection.declare_topic_consumer.assert_called_once_with(
            exchange_name="x", topic="t", callback=mock.ANY
        )
        connection.declare_fanout_consumer.assert_not_called()

    def test_probe_takes_the_way_of_requests(self):
        self.assertIsNone(self.server.find_problem())
        self.server.start()
        self.check(10)
        for call in self.send.mock_calls:
            self.assertEqual(TARGET(server=None), call.args[1])
        self.assertIsNone(self.server.find_problem())
        self.declare.assert_not_called()
        self.assertEqual(1, len(self.made))

    def test_cut_path_is_declared_again_and_reported_if_it_stays_cut(self):
        self.server.start()
        self.check()
        self.send.side_effect = path_check.PathCut("no queue takes messages")
        self.check(2)
        self.declare.return_value.cleanup.assert_called_once()
        self.assertIsNone(self.server.find_problem())
        self.check(4)
        self.assertIn("no queue takes messages", self.server.find_problem())
        self.send.side_effect = self.arrive
        self.check()
        self.assertIsNone(self.server.find_problem())

    def test_lost_probes_have_consumer_replaced(self):
        self.server.start(override_pool_size=3)
        self.send.side_effect = None
        self.check(3)
        first, second = self.made
        second.start.assert_called_once_with(override_pool_size=3)
        self.assertTrue(first.ended.wait(TIMEOUT))
        first.stop.assert_called_once_with()
        self.check()
        self.assertIn("they do not arrive", self.server.find_problem())
        self.assertEqual(2, len(self.made))
        self.send.side_effect = self.arrive
        self.check()
        self.assertIsNone(self.server.find_problem())

    def test_outage_replaces_nothing(self):
        self.server.start()
        self.send.side_effect = messaging.MessageDeliveryFailure
        self.check(10)
        self.assertIn("does not answer", self.server.find_problem())
        self.assertEqual(1, len(self.made))
        self.declare.assert_not_called()

    def test_consumer_that_begins_after_stop_is_ended(self):
        self.server.start()
        self.server.stop()
        self.send.side_effect = None
        self.check(3)
        self.assertTrue(self.made[1].ended.wait(TIMEOUT))
        self.assertIs(self.made[0], self.server._servers[0])


class RequestServerTest(unittest.TestCase):
    def test_probe_waits_for_no_thread(self):
        probes = path_check.ProbeLog()
        server = host_server.RequestServer(mock.Mock(), TARGET, mock.Mock(), probes)
        self.assertIsNone(server.find_problem())
        probe = mock.Mock(message={"method": path_check.METHOD, "args": probes.add()})
        server._on_incoming([probe])
        self.assertGreater(probes.latest_received, 0)
        server._work_executor = mock.Mock()
        server._on_incoming([mock.Mock(message={"method": "reconcile"})])
        server._work_executor.submit.assert_called_once()
