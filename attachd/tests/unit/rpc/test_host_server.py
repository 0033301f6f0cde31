# SPDX-License-Identifier: Apache-2.0
"""The server of an agent with a scripted broker; functional/test_agent_paths.py has a real one."""

import threading
import unittest
from unittest import mock

import oslo_messaging as messaging

from attachd.rpc import host_server, path_check, transport
from attachd.tests.fixtures import rpc_clients
from attachd.tests.unit.rpc.test_admission import FORM, envelope
from attachd.tests.wait import TIMEOUT

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
        self.declare = mock.Mock()
        self.made = []
        self.probes = path_check.ProbeLog()
        self.server = host_server.HostServer(
            self.make, mock.Mock(), TARGET, self.probes, self.declare
        )

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
        self.declare.assert_called_once_with()
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
    def setUp(self):
        super().setUp()
        self.probes = path_check.ProbeLog()
        self.dispatcher = mock.Mock()
        rpc_clients.use_transport(self)
        url = transport.agent_transport_url()
        with mock.patch.object(host_server, "Receiver") as made:
            self.server = host_server.RequestServer(url, TARGET, self.dispatcher, self.probes)
            self.server.start(override_pool_size=1)
        (self.queue,) = made.call_args.args[2]

    def receive(self, body):
        message = mock.Mock(body=body, properties=FORM)
        self.queue.receive(message)
        message.channel.basic_ack.assert_called_once_with(message.delivery_tag)

    def test_server_reads_the_queue_of_its_topic_alone(self):
        self.assertEqual(TARGET.topic, self.queue.name)
        connection = mock.MagicMock()
        self.queue.declare(connection)
        channel = connection.channel.return_value.__enter__.return_value
        channel.queue_bind.assert_called_once_with("t", "x", "t")

    def test_probe_waits_for_no_thread(self):
        self.receive(envelope(method=path_check.METHOD, args=self.probes.add()))
        self.assertGreater(self.probes.latest_received, 0)
        self.server.wait()
        self.dispatcher.dispatch.assert_not_called()

    def test_request_is_executed_once(self):
        body = envelope(
            method="ask", args={"a": 1}, version="1.0", _unique_id="1", _context_user="me"
        )
        self.receive(body)
        self.receive(body)
        self.server.wait()
        (call,) = self.dispatcher.dispatch.mock_calls
        incoming = call.args[0]
        self.assertEqual({"user": "me"}, incoming.ctxt)
        self.assertEqual({"method": "ask", "args": {"a": 1}, "version": "1.0"}, incoming.message)
        self.assertIsNone(incoming.reply_q)

    def test_what_is_no_message_is_dropped(self):
        with self.assertLogs("attachd.rpc.host_server", "WARNING"):
            self.receive(b"[]")
        self.receive(envelope(method=1))
        self.server.wait()
        self.dispatcher.dispatch.assert_not_called()

    def test_server_without_broker_knows_no_problem(self):
        server = host_server.LocalServer(mock.Mock(), TARGET, mock.Mock())
        self.assertIsNone(server.find_problem())
