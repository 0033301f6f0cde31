# SPDX-License-Identifier: Apache-2.0
"""The queues of hosts, with a scripted broker; functional/test_agent_floods.py has a real one."""

import threading
import unittest
from unittest import mock

from amqp import exceptions as amqp_exceptions  # type: ignore[import-untyped]
import oslo_messaging as messaging
from oslo_messaging._drivers import amqpdriver, impl_rabbit

from attachd.rpc import admission, host_queues, path_check
from attachd.tests.unit.rpc.test_admission import CALL, FORM, HEX, Endpoint, envelope


def arrived(body=None):
    """Return a message as amqp delivers it."""
    body = body or envelope(**CALL)
    return mock.Mock(body=body, body_size=len(body), properties=FORM, delivery_tag=1)


def call(number):
    return envelope(**CALL | {"_unique_id": f"{number:032x}"})


class IntakeTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.consumer = mock.Mock()
        self.connection = mock.Mock(
            rabbit_quorum_queue=False,
            rabbit_quorum_queue_config=impl_rabbit.QuorumMemConfig(0, 0, 0),
            _consumers={self.consumer: 1},
        )
        self.connection.connection.connection_errors = (OSError,)
        driver = mock.Mock(prefetch_size=0)
        context = mock.Mock(connection=self.connection)
        self.listener = amqpdriver.RpcAMQPListener(driver, context)
        self.drops = mock.Mock()
        self.intake = host_queues.Intake(self.listener, admission.Reader(Endpoint()), self.drops)

    def receive(self, message, host="h"):
        self.intake._receive(admission.Budget(host), message)

    def test_prefetch_count_is_set_now_and_for_later_connections(self):
        self.connection.channel.basic_qos.assert_called_once_with(0, host_queues.PREFETCH, False)
        self.assertEqual(host_queues.PREFETCH, self.connection.rabbit_qos_prefetch_count)
        # oslo.messaging sets it from this attribute.
        impl_rabbit.Connection._set_qos(self.connection, channel := mock.Mock())
        channel.basic_qos.assert_called_once_with(0, host_queues.PREFETCH, False)

    def test_call_is_acknowledged_and_passed_on(self):
        message = arrived()
        self.receive(message)
        message.channel.basic_ack.assert_called_once_with(1)
        (incoming,) = self.listener.incoming
        self.assertEqual(("h", CALL["args"]), (incoming.share, incoming.message["args"]))
        self.assertEqual("reply_h_0", incoming.reply_q)
        self.drops.record.assert_not_called()

    def test_common_queue_has_budget_of_strangers(self):
        self.consumer._callback(arrived())
        self.assertEqual(admission.STRANGERS, self.listener.incoming[0].share)

    def test_refused_and_repeated_messages_are_dropped(self):
        for reason, message in (("form", arrived(b"[]")), ("repeated", arrived())):
            self.listener.msg_id_cache.add(HEX)
            self.receive(message)
            message.channel.basic_ack.assert_called_once_with(1)
            self.drops.record.assert_called_with("h", reason)
        self.assertEqual([], self.listener.incoming)

    def test_host_with_waiting_calls_gets_no_acknowledgement_until_one_ends(self):
        budget = admission.Budget("h")
        messages = [arrived(call(number)) for number in range(admission.MAX_WAITING)]
        for message in messages:
            self.intake._receive(budget, message)
        last = messages[-1].channel
        self.listener._message_operations_handler.process()
        last.basic_ack.assert_not_called()
        self.assertEqual(admission.MAX_WAITING, len(self.listener.incoming))
        self.listener.incoming[0].end()
        self.listener._message_operations_handler.process()
        last.basic_ack.assert_called_once_with(1)
        self.listener._message_operations_handler.process()
        last.basic_ack.assert_called_once_with(1)

    def test_acknowledgement_after_lost_connection_is_left_out(self):
        budget = admission.Budget("h")
        budget.charge(10**9)
        message = arrived()
        self.intake._receive(budget, message)
        message.channel.basic_ack.side_effect = OSError
        self.intake.close()
        self.listener._message_operations_handler.process()
        self.assertFalse(self.intake._held)

    def test_closed_intake_leaves_messages_to_others(self):
        self.intake.close()
        message = arrived()
        self.receive(message)
        message.channel.basic_ack.assert_not_called()
        self.assertEqual([], self.listener.incoming)

    def test_queue_of_host_is_declared_once_by_thread_of_listener(self):
        queues = host_queues.HostQueues()
        queues.serve(["h"])
        queues.join(self.intake)
        queues.serve(["h", "i"])
        self.connection.declare_consumer.assert_not_called()
        self.listener._message_operations_handler.process()
        made = [item.args[0] for item in self.connection.declare_consumer.mock_calls]
        names = [host_queues.queue_name(host) for host in ("h", "i")]
        self.assertEqual(names, [consumer.queue_name for consumer in made])
        made[0]._callback(arrived())
        self.assertEqual("h", self.listener.incoming[0].share)

    def test_queue_that_cannot_be_declared_is_tried_again(self):
        self.connection.declare_consumer.side_effect = ValueError
        for _ in range(2):
            self.intake.add("h")
            with self.assertLogs("attachd.rpc.host_queues", "ERROR"):
                self.listener._message_operations_handler.process()
        self.assertEqual(2, self.connection.declare_consumer.call_count)

    def test_declared_queue_is_limited_and_kept_with_other_properties(self):
        consumer = host_queues._Consumer(self.connection, "h", mock.Mock())
        self.connection.connection.channel = mock.MagicMock()
        consumer.declare(self.connection)
        self.assertEqual(2**22, consumer.queue_arguments["x-max-length-bytes"])
        error = amqp_exceptions.PreconditionFailed("other")
        with (
            mock.patch.object(host_queues.entity.Queue, "declare", side_effect=error),
            self.assertLogs("attachd.rpc.host_queues", "WARNING"),
        ):
            consumer.declare(self.connection)
        self.assertIs(self.connection.channel, consumer._declared_on)

    def test_names_of_oslo_messaging_exist(self):
        for name in ("incoming", "msg_id_cache", "_message_operations_handler"):
            self.assertTrue(hasattr(self.listener, name), name)
        self.assertTrue(hasattr(self.listener, "_obsolete_reply_queues"))
        for name in ("_callback", "declare", "consume"):
            self.assertTrue(hasattr(impl_rabbit.Consumer, name), name)
        for name in ("declare_consumer", "ensure", "_set_qos"):
            self.assertTrue(hasattr(impl_rabbit.Connection, name), name)


class ServerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.server = host_queues.CallServer(
            mock.Mock(),
            messaging.Target(topic="t", server="s"),
            mock.Mock(),
            mock.Mock(),
            host_queues.HostQueues(),
        )

    def test_share_of_a_message_is_its_host(self):
        context, content = {"project_id": "p"}, {"args": {"host": "i", "volume_id": "v"}}
        known = mock.Mock(share="h", ctxt=context, message=content)
        self.assertEqual(("h", "host h"), self.server._place_of(known))
        local = mock.Mock(spec=["ctxt", "message"], ctxt=context, message=content)
        self.assertEqual(("p", "v"), self.server._place_of(local))

    def test_call_counts_until_its_end(self):
        ended = threading.Event()
        incoming = mock.Mock(end=ended.set, message={"method": "x"}, ctxt={})
        self.server._process_incoming([incoming])
        self.assertTrue(ended.is_set())


class BindTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.connection = mock.MagicMock()
        self.connection.connection.channel_errors = (amqp_exceptions.ChannelError,)
        self.connection.ensure.side_effect = lambda method, **_: method()
        self.connection_of = mock.MagicMock()
        self.connection_of.return_value.__enter__.return_value.connection = self.connection

    def test_queue_is_bound_to_exchange_of_host(self):
        host_queues.bind(self.connection_of, "h")
        name = host_queues.queue_name("h")
        self.connection.channel.queue_bind.assert_called_once_with(
            name, host_queues.host_topic("h"), name
        )

    def test_refusals_name_what_to_do(self):
        for error, text in (
            (amqp_exceptions.NotFound("x"), "register it, and start a manager"),
            (amqp_exceptions.AccessRefused("x"), "lacks rights"),
            (amqp_exceptions.PreconditionFailed("x"), "delete it"),
        ):
            self.connection.channel.queue_bind.side_effect = error
            with self.assertRaisesRegex(path_check.PathCut, text):
                host_queues.bind(self.connection_of, "h")
