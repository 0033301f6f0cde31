# SPDX-License-Identifier: Apache-2.0
"""The thread that receives messages, with a scripted broker."""

import threading
import unittest
from unittest import mock

from amqp import exceptions as amqp_exceptions  # type: ignore[import-untyped]
import oslo_messaging as messaging
from oslo_messaging.rpc import dispatcher as rpc_dispatcher

from attachd.rpc import broker, receiver, transport
from attachd.tests.fixtures import rpc_clients
from attachd.tests.wait import TIMEOUT, wait_until

NAME = receiver.__name__


class Broker:
    """A connection that delivers what a test wants."""

    channel_errors = (amqp_exceptions.ChannelError,)
    connection_errors = (amqp_exceptions.ConnectionError, OSError)

    def __init__(self, *events):
        self.events = list(events)
        self.consumers = {}
        self.channels = []
        self.closed = None
        self.connected = True
        self.beats = 0

    def channel(self):
        made = mock.Mock()
        made.basic_consume.side_effect = lambda name, callback, **_: self.consumers.update(
            {name: callback}
        )
        self.channels.append(made)
        return made

    def drain_events(self, timeout):
        if self.events:
            self.events.pop(0)(self)
            return
        threading.Event().wait(0.01)  # as a socket that times out
        raise TimeoutError(timeout)

    def heartbeat_check(self, rate):
        self.beats += rate

    def release(self):
        self.closed = "released"

    def collect(self):
        self.closed = "collected"


def delivery(name, message):
    return lambda broker: broker.consumers[name](message)


def failure(error):
    def fail(_broker):
        raise error

    return fail


class ReceiverTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        rpc_clients.use_transport(self)
        self.enterContext(mock.patch.object(broker, "option", self.option))
        self.brokers = []
        self.enterContext(mock.patch.object(broker, "connect", side_effect=self.connect))
        self.received = []
        self.declare = mock.Mock()
        self.connected = mock.Mock()

    @staticmethod
    def option(_url, name):
        return 20 if name == "heartbeat_timeout_threshold" else 0

    def connect(self, _url, _purpose, heartbeat):
        self.assertTrue(heartbeat)
        if isinstance(item := self.brokers.pop(0), Exception):
            raise item
        return item

    def make(self, *brokers, prefetch=0, receive=None):
        self.brokers = list(brokers)
        queue = receiver.Queue("q", self.declare, receive or self.received.append)
        made = receiver.Receiver(
            transport.agent_transport_url(), "test", [queue], prefetch, self.connected
        )
        self.addCleanup(made.stop)
        return made

    def test_messages_are_received_until_the_end(self):
        first = Broker(delivery("q", "m1"), delivery("q", "m2"))
        made = self.make(first, prefetch=1)
        made.start()
        wait_until(lambda: first.beats)
        self.assertEqual(["m1", "m2"], self.received)
        self.declare.assert_called_once_with(first)
        first.channels[0].basic_qos.assert_called_once_with(0, 1, False)
        self.assertIs(False, first.channels[0].auto_decode)
        made.stop()
        self.assertEqual("released", first.closed)

    def test_start_waits_for_the_broker(self):
        made = self.make(messaging.MessageDeliveryFailure("away"), Broker())
        with self.assertLogs(NAME, "WARNING") as logs:
            made.start()
        self.assertIn("unreachable: away", logs.output[0])

    def test_start_now_raises_outages_and_refusals(self):
        made = self.make(messaging.MessageDeliveryFailure("away"), Broker())
        self.declare.side_effect = amqp_exceptions.AccessRefused("no right")
        for _ in range(2):
            self.assertRaises(messaging.MessageDeliveryFailure, made.start_now)

    def test_queue_that_may_not_be_declared_ends_the_start(self):
        first = Broker()
        made = self.make(first)
        self.declare.side_effect = amqp_exceptions.AccessRefused("no right")
        self.assertRaises(amqp_exceptions.AccessRefused, made.start)
        self.assertEqual("collected", first.closed)

    def test_lost_connection_is_replaced_and_all_queues_are_declared_again(self):
        lost = failure(amqp_exceptions.ConnectionForced("restart"))
        first, second = Broker(lost), Broker(delivery("q", "m"))
        made = self.make(first, messaging.MessageDeliveryFailure("away"), second)
        with self.assertLogs(NAME, "WARNING"):
            made.start()
            wait_until(lambda: self.received == ["m"], lambda: self.received)
        self.assertEqual("collected", first.closed)
        self.assertEqual([mock.call(first), mock.call(second)], self.declare.mock_calls)
        self.assertEqual(2, self.connected.call_count)

    def test_connection_that_was_lost_in_silence_is_replaced(self):
        first, second = Broker(), Broker(delivery("q", "m"))
        made = self.make(first, second)
        with self.assertLogs(NAME, "WARNING"):
            made.start()
            first.connected = False
            wait_until(lambda: self.received == ["m"], lambda: self.received)

    def test_queue_that_is_refused_later_is_tried_again(self):
        lost = failure(amqp_exceptions.ConnectionForced("restart"))
        last = Broker(delivery("q", "m"))
        made = self.make(Broker(lost), Broker(), last)
        self.declare.side_effect = [None, amqp_exceptions.AccessRefused("no right"), None]
        with self.assertLogs(NAME, "WARNING"):
            made.start()
            wait_until(lambda: self.received == ["m"], lambda: self.received)

    def test_message_that_cannot_be_taken_is_dropped_and_logged(self):
        message = mock.Mock(delivery_tag=7)
        first = Broker(delivery("q", message))
        made = self.make(first, receive=mock.Mock(side_effect=ValueError))
        with self.assertLogs(NAME, "ERROR"):
            made.start()
            wait_until(lambda: message.channel.basic_reject.mock_calls)
        message.channel.basic_reject.assert_called_once_with(7, False)
        self.assertIsNone(first.closed)

    def test_added_queue_is_read_or_given_up(self):
        first = Broker()
        made = self.make(first)
        made.start()
        given_up = threading.Event()
        refused = mock.Mock(side_effect=amqp_exceptions.NotFound("limit"))
        with self.assertLogs(NAME, "WARNING"):
            made.add(receiver.Queue("r", refused, self.received.append, given_up.set))
            self.assertTrue(given_up.wait(TIMEOUT))
        made.add(receiver.Queue("s", mock.Mock(), self.received.append, given_up.set))
        wait_until(lambda: "s" in first.consumers)
        self.assertEqual({"q", "s"}, set(first.consumers))

    def test_messages_are_received_while_many_queues_are_added(self):
        lost = failure(amqp_exceptions.ConnectionForced("restart"))
        first, second = Broker(), Broker(delivery("q", "m"))
        made = self.make(first, second)
        made.start()
        declared = []

        def declare(_connection):
            # Each takes longer than a turn of the thread.
            threading.Event().wait(receiver.BEGIN_TIME)
            declared.append(len(self.received))

        for number in range(4):
            made.add(receiver.Queue(f"h{number}", declare, self.received.append, mock.Mock()))
        wait_until(lambda: "h3" in first.consumers)
        with self.assertLogs(NAME, "WARNING"):
            first.events.append(lost)
            wait_until(lambda: "h3" in second.consumers)
        self.assertEqual([0, 0, 0, 0, 0, 1, 1, 1], declared)


class Server(receiver.ReceivingServer):
    def __init__(self, dispatcher):
        super().__init__("test", dispatcher)
        self.receiver = mock.Mock()


class ReceivingServerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.dispatcher = mock.Mock()
        self.server = Server(self.dispatcher)
        self.server.start(override_pool_size=1)
        self.sent = mock.Mock()
        self.ended = mock.Mock()

    def serve(self, **message):
        self.server.submit(
            receiver.Incoming({}, {"method": "ask", **message}, "q", self.sent, self.ended)
        )
        self.server.stop()
        self.server.wait()
        self.server.receiver.stop.assert_called_once_with()
        self.ended.assert_called_once_with()

    def test_result_is_sent(self):
        self.dispatcher.dispatch.return_value = 1
        self.serve()
        self.sent.assert_called_once_with(1, None)

    def test_expected_error_is_sent_without_a_traceback_in_the_log(self):
        def dispatch(_incoming):
            try:
                int("x")
            except ValueError:
                raise rpc_dispatcher.ExpectedException from None

        self.dispatcher.dispatch.side_effect = dispatch
        with self.assertNoLogs(NAME, "WARNING"):
            self.serve()
        self.assertIs(ValueError, self.sent.call_args.args[1][0])

    def test_other_error_is_sent_and_logged(self):
        self.dispatcher.dispatch.side_effect = KeyError
        with self.assertLogs(NAME, "ERROR"):
            self.serve()
        self.assertIs(KeyError, self.sent.call_args.args[1][0])

    def test_answer_that_cannot_be_sent_is_logged(self):
        self.sent.side_effect = messaging.MessageDeliveryFailure
        with self.assertLogs(NAME, "ERROR"):
            self.serve()

    def test_function_is_executed_in_turn_with_messages(self):
        ran = threading.Event()
        self.server.execute(ran.set)
        self.assertTrue(ran.wait(TIMEOUT))

    def test_cast_is_not_answered(self):
        receiver.Incoming({}, {"method": "ask"}).reply(1)
        self.sent.assert_not_called()


class SeenIdsTest(unittest.TestCase):
    def test_id_is_new_once_until_many_others_have_been_seen(self):
        seen = receiver.SeenIds()
        with mock.patch.object(seen, "MAX", 2):
            self.assertEqual([True, False, True, True], [seen.add(name) for name in "aabc"])
            self.assertTrue(seen.add("a"))
        self.assertEqual([True] * 4, [seen.add(name) for name in (None, None, [1], [1])])
