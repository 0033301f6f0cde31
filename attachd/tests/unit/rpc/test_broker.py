# SPDX-License-Identifier: Apache-2.0
"""Connections by kombu; functional/test_agent_accounts.py and others use a real broker."""

import inspect
import ssl
import unittest
from unittest import mock

from amqp import channel  # type: ignore[import-untyped]
from amqp import exceptions as amqp_exceptions
from kombu import exceptions as kombu_exceptions
import oslo_messaging as messaging

from attachd.conf import CONF
from attachd.rpc import broker
from attachd.tests.fixtures import rpc_clients
from attachd.tests.fixtures.conf_fixture import override

URL = "rabbit://me:p%40ss@one:5673,you:it@[::1]:5672/agents"


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        rpc_clients.use_transport(self)
        self.made = self.enterContext(mock.patch.object(broker, "Connection"))
        self.connection = self.made.return_value
        self.connection.channel_errors = (amqp_exceptions.ChannelError,)

    def set(self, name, value):
        override(self, name, value, broker.RABBIT)

    def url(self, text=URL):
        return messaging.TransportURL.parse(CONF, text)


class ConnectTest(Case):
    def test_connection_has_all_servers_of_the_url(self):
        broker.connect(self.url(), "test", 20)
        self.assertEqual(
            {"amqp://me:p%40ss@one:5673/agents", "amqp://you:it@[::1]:5672/agents"},
            set(self.made.call_args.args[0]),
        )
        self.assertEqual(20, self.made.call_args.kwargs["heartbeat"])
        self.assertFalse(self.made.call_args.kwargs["ssl"])

    def test_options_of_oslo_messaging_are_used_and_the_url_overrides_them(self):
        self.set("rabbit_login_method", "PLAIN")
        self.set("ssl", True)
        self.set("ssl_ca_file", "/ca")
        self.set("ssl_version", "TLSv1_2")
        broker.connect(self.url(f"{URL}?ssl_ca_file=/other"), "test")
        given = self.made.call_args.kwargs
        self.assertEqual("PLAIN", given["login_method"])
        self.assertEqual("/other", given["ssl"]["ca_certs"])
        self.assertEqual(ssl.CERT_REQUIRED, given["ssl"]["cert_reqs"])
        self.assertEqual(ssl.PROTOCOL_TLSv1_2, given["ssl"]["ssl_version"])

    def test_login_or_connection_that_fails_is_a_delivery_failure(self):
        for error in (
            amqp_exceptions.AccessRefused("login"),
            kombu_exceptions.OperationalError("refused"),
            TimeoutError("silent"),
        ):
            self.connection.ensure_connection.side_effect = error
            with self.assertRaises(messaging.MessageDeliveryFailure):
                broker.connect(self.url(), "test")

    def test_lent_connection_is_closed_and_its_errors_are_delivery_failures(self):
        with (
            self.assertRaises(messaging.MessageDeliveryFailure),
            broker.lend(self.url(), "test"),
        ):
            raise amqp_exceptions.ConnectionForced("stop")
        self.connection.release.assert_called_once_with()


class DeclareTest(Case):
    def setUp(self):
        super().setUp()
        self.channel = self.connection.channel.return_value.__enter__ = mock.Mock()
        self.connection.channel.return_value.__exit__ = mock.Mock(return_value=None)
        self.channel = self.channel.return_value

    def test_queues_are_declared_as_oslo_messaging_declares_them(self):
        self.set("rabbit_quorum_queue", True)
        self.set("rabbit_quorum_delivery_limit", 3)
        target = messaging.Target(exchange="x", topic="t", server="s")
        broker.declare_server(self.url(), target)
        quorum = {"x-queue-type": "quorum", "x-delivery-limit": 3}
        self.assertEqual(
            [
                mock.call(name, durable=True, auto_delete=False, arguments=quorum)
                for name in ("t", "t.s")
            ],
            self.channel.queue_declare.mock_calls,
        )
        self.assertEqual(
            [mock.call("t", "x", "t"), mock.call("t.s", "x", "t.s")],
            self.channel.queue_bind.mock_calls,
        )
        kinds = [item.args for item in self.channel.exchange_declare.mock_calls]
        self.assertEqual([("x", "topic"), ("x", "topic"), ("t_fanout", "fanout")], kinds)

    def test_exchange_of_the_broker_is_not_declared(self):
        broker.declare_queue(self.url(), messaging.Target(exchange="amq.topic", topic="t"))
        self.channel.exchange_declare.assert_not_called()
        self.channel.queue_bind.assert_called_once_with("t", "amq.topic", "t")

    def test_queue_of_fanout_ends_with_its_process(self):
        broker.declare_fanout(self.url(), self.connection, "t", "t_fanout_1")
        arguments = self.channel.queue_declare.call_args.kwargs["arguments"]
        self.assertEqual(
            {"x-expires": 1000 * CONF[broker.RABBIT].rabbit_transient_queues_ttl}, arguments
        )
        self.channel.queue_bind.assert_called_once_with("t_fanout_1", "t_fanout", "t")


class SenderTest(Case):
    def setUp(self):
        super().setUp()
        self.producer = self.enterContext(mock.patch.object(broker, "Producer"))
        self.publish = self.producer.return_value.publish
        self.sender = broker.Sender(self.url())

    def send(self):
        self.sender.send({"a": 1}, "x", "key", 30)

    def test_message_is_sent_in_the_envelope_of_oslo_messaging_by_a_kept_connection(self):
        self.send()
        self.send()
        self.assertEqual(
            {"oslo.version": "2.0", "oslo.message": '{"a": 1}'}, self.publish.call_args.args[0]
        )
        given = self.publish.call_args.kwargs
        self.assertEqual(
            ("x", "key", 30),
            tuple(given[name] for name in ("exchange", "routing_key", "expiration")),
        )
        self.made.assert_called_once()
        self.sender.close()
        self.connection.collect.assert_called_once_with()

    def test_message_that_no_queue_takes_is_undeliverable_and_the_next_one_is_not(self):
        def publish(*_args, **_kwargs):
            self.producer.call_args.kwargs["on_return"](ValueError(), "x", "key", {})

        self.publish.side_effect = publish
        self.assertRaises(messaging.MessageUndeliverable, self.send)
        self.publish.side_effect = None
        self.send()
        self.producer.assert_called_once()

    def test_connection_without_a_channel_is_a_delivery_failure(self):
        self.connection.channel.side_effect = ConnectionResetError
        self.assertRaises(messaging.MessageDeliveryFailure, self.send)
        self.connection.collect.assert_called_once_with()

    def test_broken_connection_is_replaced_once(self):
        self.publish.side_effect = [ConnectionResetError, None]
        self.send()
        self.assertEqual(2, self.made.call_count)
        self.publish.side_effect = [ConnectionResetError] * 2
        self.assertRaises(messaging.MessageDeliveryFailure, self.send)

    def test_silent_broker_is_waited_for_no_longer_than_the_caller_waits(self):
        self.publish.side_effect = TimeoutError
        self.assertRaises(messaging.MessageDeliveryFailure, self.send)
        self.publish.assert_called_once()
        limit = CONF[broker.RABBIT].heartbeat_timeout_threshold
        self.assertEqual(min(30, limit), self.publish.call_args.kwargs["confirm_timeout"])
        with self.assertRaises(messaging.MessageDeliveryFailure):
            self.sender.send({}, "x", "key", 5)
        self.assertEqual(5, self.publish.call_args.kwargs["confirm_timeout"])

    def test_refusals_are_delivery_failures_that_keep_their_code(self):
        for error, is_kept in (
            (amqp_exceptions.MessageNacked(), True),
            (amqp_exceptions.NotFound("no exchange"), False),
        ):
            self.made.reset_mock()
            self.publish.side_effect = error
            with self.assertRaises(messaging.MessageDeliveryFailure) as caught:
                self.send()
            self.assertIs(error, caught.exception.__context__)
            self.assertEqual(is_kept, bool(self.sender._idle))
            self.sender.close()


class NamesTest(unittest.TestCase):
    def test_channel_of_amqp_waits_for_confirmations_for_a_limited_time(self):
        self.assertIn("confirm_timeout", inspect.getsource(channel.Channel.basic_publish_confirm))
