# SPDX-License-Identifier: Apache-2.0
"""The queues of hosts, with a scripted broker; functional/test_agent_floods.py has a real one."""

import threading
import unittest
from unittest import mock
import zlib

from amqp import exceptions as amqp_exceptions  # type: ignore[import-untyped]
import oslo_messaging as messaging

from attachd.rpc import admission, broker, host_queues, path_check, transport
from attachd.tests.fixtures import rpc_clients
from attachd.tests.unit.rpc.test_admission import CALL, FORM, Endpoint, envelope

PACKED = FORM | {"application_headers": {"compression": "application/x-gzip"}}


def arrived(body=None, properties=FORM):
    """Return a message as amqp delivers it."""
    body = body or envelope(**CALL)
    return mock.Mock(body=body, body_size=len(body), properties=properties, delivery_tag=1)


def call(number):
    return envelope(**CALL | {"_unique_id": f"{number:032x}"})


class IntakeTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.drops = mock.Mock()
        self.taken = []
        self.send = mock.Mock()
        self.paused = threading.Event()
        self.intake = host_queues.Intake(
            self.taken.append, self.send, admission.Reader(Endpoint()), self.drops, self.paused
        )

    def receive(self, message, host="h"):
        self.intake.receive(admission.Budget(host), message)

    def test_call_is_acknowledged_and_passed_on(self):
        message = arrived()
        self.receive(message)
        message.channel.basic_ack.assert_called_once_with(1)
        (incoming,) = self.taken
        self.assertEqual(("h", CALL["args"]), (incoming.share, incoming.message["args"]))
        self.assertEqual("reply_h_0", incoming.reply_q)
        incoming.reply("result")
        self.send.assert_called_once_with("reply_h_0", CALL["_msg_id"], "result", None)
        self.drops.record.assert_not_called()

    def test_refused_and_repeated_messages_are_dropped(self):
        self.receive(arrived())
        for reason, message in (("form", arrived(b"[]")), ("repeated", arrived())):
            self.receive(message)
            message.channel.basic_ack.assert_called_once_with(1)
            self.drops.record.assert_called_with("h", reason)
        self.assertEqual(1, len(self.taken))

    def test_compressed_message_counts_as_its_text(self):
        text = call(1) + b" " * 200_000
        budget = mock.Mock(host="h")
        self.intake.receive(budget, arrived(zlib.compress(text), PACKED))
        budget.charge.assert_called_once_with(len(text))
        budget.add_waiting.assert_called_once_with(len(text))

    def test_message_that_cannot_be_decompressed_counts_as_the_largest(self):
        for body in (b"none", zlib.compress(bytes(10**6))):
            budget = mock.Mock(host="h")
            self.intake.receive(budget, arrived(body, PACKED))
            (size,) = budget.charge.call_args.args
            self.assertIn(size - admission.MAX_REPORT_SIZE, (0, 1))

    def test_message_with_an_unforeseen_error_is_dropped_by_the_budget_of_its_host(self):
        self.drops.record.side_effect = [True, False]
        budget = admission.Budget("h")
        self.enterContext(mock.patch.object(admission, "decompress", side_effect=TypeError))
        with self.assertLogs("attachd.rpc.host_queues", "ERROR") as logs:
            for is_last in (False, True):
                message = arrived()
                budget.charge(10**9 * is_last)
                self.intake.receive(budget, message)
                self.assertEqual(not is_last, message.channel.basic_ack.called)
        self.assertEqual(1, len(logs.records))
        self.drops.record.assert_called_with("h", "form")

    def test_host_with_waiting_calls_gets_no_acknowledgement_until_one_ends(self):
        budget = admission.Budget("h")
        messages = [arrived(call(number)) for number in range(admission.MAX_WAITING)]
        for message in messages:
            self.intake.receive(budget, message)
        last = messages[-1].channel
        self.intake.acknowledge_held()
        last.basic_ack.assert_not_called()
        self.assertEqual(admission.MAX_WAITING, len(self.taken))
        self.taken[0].end()
        self.intake.acknowledge_held()
        last.basic_ack.assert_called_once_with(1)
        self.intake.acknowledge_held()
        last.basic_ack.assert_called_once_with(1)

    def test_paused_intake_acknowledges_nothing_until_it_goes_on(self):
        self.receive(arrived(call(1)))
        self.paused.set()
        message = arrived(call(2))
        self.receive(message)
        self.intake.acknowledge_held()
        message.channel.basic_ack.assert_not_called()
        self.assertEqual(2, len(self.taken))
        self.paused.clear()
        self.intake.acknowledge_held()
        message.channel.basic_ack.assert_called_once_with(1)

    def test_message_of_lost_connection_is_not_acknowledged(self):
        budget = admission.Budget("h")
        budget.charge(10**9)
        message = arrived()
        self.intake.receive(budget, message)
        self.intake.forget()
        with mock.patch.object(budget, "may_send", return_value=True):
            self.intake.acknowledge_held()
        message.channel.basic_ack.assert_not_called()

    def test_closed_intake_leaves_messages_to_others(self):
        self.intake.close()
        message = arrived()
        self.receive(message)
        message.channel.basic_ack.assert_not_called()
        self.assertEqual([], self.taken)


class CallsQueueTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        rpc_clients.use_transport(self)
        self.connection = mock.Mock()
        self.channel = self.connection.channel.return_value
        self.queues = host_queues.CallQueues(transport.agent_transport_url())

    def declare(self):
        self.queues.declare("h", self.connection)

    def test_queues_share_a_channel_until_an_error_or_another_connection(self):
        self.declare()
        self.declare()
        self.connection.channel.assert_called_once_with()
        self.channel.queue_declare.side_effect = amqp_exceptions.AccessRefused("no right")
        self.assertRaises(amqp_exceptions.AccessRefused, self.declare)
        self.channel.close.assert_called_once_with()
        self.channel.queue_declare.side_effect = None
        self.declare()
        self.assertEqual(2, self.connection.channel.call_count)
        self.connection = mock.Mock()
        self.declare()
        self.connection.channel.assert_called_once_with()

    def test_declared_queue_is_limited(self):
        self.declare()
        self.channel.queue_declare.assert_called_once()
        arguments = self.channel.queue_declare.call_args.kwargs["arguments"]
        self.assertEqual(2**22, arguments["x-max-length-bytes"])

    def test_queue_with_other_properties_is_used_if_it_exists(self):
        other = amqp_exceptions.PreconditionFailed("other")
        self.channel.queue_declare.side_effect = [other, None]
        with self.assertLogs("attachd.rpc.host_queues", "WARNING"):
            self.declare()
        missing = amqp_exceptions.NotFound("missing")
        self.channel.queue_declare.side_effect = [other, missing]
        with (
            self.assertLogs("attachd.rpc.host_queues", "WARNING"),
            self.assertRaises(amqp_exceptions.NotFound),
        ):
            self.declare()


class ServerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        rpc_clients.use_transport(self)
        self.receiver = self.enterContext(mock.patch.object(host_queues, "Receiver"))
        self.enterContext(mock.patch.object(host_queues, "AnswerSender"))
        self.hosts = host_queues.HostQueues()
        self.dispatcher = mock.Mock()
        self.server = host_queues.CallServer(
            transport.agent_transport_url(),
            messaging.Target(exchange="amq.topic", topic="t", server="s"),
            self.dispatcher,
            admission.Reader(Endpoint()),
            self.hosts,
        )

    def added(self):
        return [item.args[0] for item in self.receiver.return_value.add.mock_calls]

    def test_common_queues_have_budget_of_strangers(self):
        queues = self.receiver.call_args.args[2]
        self.assertEqual(["t", "t.s"], [item.name for item in queues[:2]])
        self.assertRegex(queues[2].name, r"\At_fanout_[0-9a-f]{32}\Z")
        self.assertEqual(host_queues.PREFETCH, self.receiver.call_args.args[3])
        self.server.start(override_pool_size=1)
        queues[0].receive(arrived())
        self.server.wait()
        self.assertEqual(admission.STRANGERS, self.dispatcher.dispatch.call_args.args[0].share)

    def test_queue_of_host_is_read_once_and_again_if_it_could_not_be_declared(self):
        self.hosts.serve(["h"])
        self.server.start(override_pool_size=1)
        self.hosts.serve(["h", "i"])
        names = [host_queues.queue_name(host) for host in ("h", "i")]
        self.assertEqual(names, [item.name for item in self.added()])
        self.added()[0].give_up()
        self.hosts.serve(["h", "i"])
        self.assertEqual([*names, names[0]], [item.name for item in self.added()])

    def test_share_of_a_message_is_its_host(self):
        context, content = {"project_id": "p"}, {"args": {"host": "i", "volume_id": "v"}}
        known = mock.Mock(share="h", ctxt=context, message=content)
        self.assertEqual(("h", "host h"), host_queues.place_of(known))
        local = mock.Mock(spec=["ctxt", "message"], ctxt=context, message=content)
        self.assertEqual(("p", "v"), host_queues.place_of(local))

    def test_call_counts_until_its_end(self):
        ended = threading.Event()
        incoming = mock.Mock(end=ended.set, message={"method": "x"}, ctxt={})
        self.dispatcher.dispatch.side_effect = ValueError
        with self.assertLogs("attachd.rpc.receiver", "ERROR"):
            self.server.process([incoming])
        self.assertTrue(ended.is_set())


class BindTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        rpc_clients.use_transport(self)
        self.url = transport.agent_transport_url()
        connect = self.enterContext(mock.patch.object(broker, "connect"))
        self.connection = connect.return_value
        self.connection.channel_errors = (amqp_exceptions.ChannelError,)
        self.channel = self.connection.channel.return_value

    def test_queue_is_bound_to_exchange_of_host(self):
        host_queues.bind(self.url, "h")
        name = host_queues.queue_name("h")
        self.channel.queue_bind.assert_called_once_with(name, host_queues.host_topic("h"), name)
        self.connection.release.assert_called_once_with()

    def test_refusals_name_what_to_do(self):
        for error, text in (
            (amqp_exceptions.NotFound("x"), "register it, and start a manager"),
            (amqp_exceptions.AccessRefused("x"), "lacks rights"),
            (amqp_exceptions.PreconditionFailed("x"), "delete it"),
        ):
            self.channel.queue_bind.side_effect = error
            with self.assertRaisesRegex(path_check.PathCut, text):
                host_queues.bind(self.url, "h")

    def test_consumers_are_counted_and_a_missing_queue_is_named(self):
        self.channel.queue_declare.return_value.consumer_count = 2
        self.assertEqual(2, host_queues.count_consumers(self.url, "q"))
        self.channel.queue_declare.side_effect = amqp_exceptions.NotFound("no queue q")
        with self.assertRaisesRegex(path_check.PathCut, "no queue q"):
            host_queues.count_consumers(self.url, "q")
