# SPDX-License-Identifier: Apache-2.0
"""RPC in the virtual host of the agents: who answers whom, and the names of queues."""

import unittest
from unittest import mock

import oslo_messaging as messaging
from oslo_messaging._drivers import amqpdriver, impl_rabbit

from attachd.conf import CONF
from attachd.rpc import agent_transport, transport
from attachd.tests.fixtures import rpc_clients
from attachd.tests.fixtures.conf_fixture import override

HEX = "0123456789abcdef" * 2


def received(reply_q, **arguments):
    """Return a message as a driver delivers it."""
    message = {"method": "ask", "args": arguments, "version": "2.0"}
    return mock.Mock(
        message=message,
        ctxt={},
        client_timeout=None,
        reply_q=reply_q,
        stopwatch=mock.Mock(elapsed=lambda: 0.0),
    )


class Endpoint:
    target = messaging.Target(version="2.0")

    def __init__(self):
        self.asked = 0

    def ask(self, _context, **_arguments):
        self.asked += 1
        return "answer"


class DispatcherTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.endpoint = Endpoint()

    def test_agent_drops_calls_and_dispatches_casts(self):
        dispatcher = agent_transport.CastDispatcher(self.endpoint)
        call = received(f"reply_h_{HEX}")
        self.assertIsNone(dispatcher.dispatch(call))
        self.assertIs(transport.discard_reply, call.reply)
        self.assertEqual(0, self.endpoint.asked)
        dispatcher.dispatch(received(None))
        self.assertEqual(1, self.endpoint.asked)

    def test_registry_answers_only_into_reply_queue_of_host(self):
        dispatcher = agent_transport.RegistryDispatcher(self.endpoint)
        self.assertEqual("answer", dispatcher.dispatch(received(f"reply_h_{HEX}", host="h")))
        self.assertEqual(1, self.endpoint.asked)
        for queue, arguments in (
            ("attachd-agent.other", {"host": "h"}),
            (f"reply_other_{HEX}", {"host": "h"}),
            (f"reply_h_{HEX}", {"host": "."}),
            (f"reply_h_{HEX}x", {"host": "h"}),
            (f"reply_h_{HEX}", {}),
            (f"reply_None_{HEX}", {"host": None}),
        ):
            call = received(queue, **arguments)
            with self.subTest(queue):
                self.assertIsNone(dispatcher.dispatch(call))
                self.assertIs(transport.discard_reply, call.reply)
        self.assertEqual(1, self.endpoint.asked)

    def test_registry_drops_message_without_arguments(self):
        call = received(f"reply_h_{HEX}")
        call.message = {"method": "ask", "args": ["host"]}
        self.assertIsNone(agent_transport.RegistryDispatcher(self.endpoint).dispatch(call))
        self.assertEqual(0, self.endpoint.asked)


class NamesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        rpc_clients.use_transport(self)

    def test_reply_queue_has_name_of_host(self):
        for driver in (amqpdriver.AMQPDriverBase, impl_rabbit.RabbitDriver):
            self.assertTrue(hasattr(driver, "_get_reply_queue_name"), driver)
        agent_transport.get_registry_client("h", 5, "2.0")
        name = transport.get_agent_transport()._driver._get_reply_queue_name()
        self.assertRegex(name, r"\Areply_h_[0-9a-f]{32}\Z")
        self.assertTrue(agent_transport._is_reply_queue(name, {"host": "h"}))

    def test_clients_are_made_once(self):
        for make in (
            lambda host: agent_transport.get_registry_client(host, 5, "2.0"),
            lambda host: agent_transport.get_host_client(host, "2.0"),
        ):
            self.assertIs(make("h"), make("h"))
        self.assertIsNot(
            agent_transport.get_host_client("h", "2.0"),
            agent_transport.get_host_client("i", "2.0"),
        )

    def test_agents_have_transport_of_their_own(self):
        self.assertIsNot(transport.get_transport(), transport.get_agent_transport())
        self.assertIs(transport.get_agent_transport(), transport.get_agent_transport())

    def test_agent_url_is_own_one_or_default(self):
        override(self, "transport_url", "rabbit://me:it@one:5672/main")
        self.assertEqual("main", transport.agent_transport_url().virtual_host)
        override(self, "transport_url", "rabbit://me:it@one:5672/agents", "agent")
        url = transport.agent_transport_url()
        self.assertEqual("agents", url.virtual_host)
        self.assertEqual({"amqp_durable_queues": "true"}, url.query)

    def test_host_has_exchange_and_topic_of_its_name(self):
        override(self, "topic", "t", "agent")
        server = agent_transport.get_host_server(Endpoint(), "h")
        self.assertEqual(("t.h", "t.h", "agent"), _place(server))
        server = agent_transport.get_registry_server(Endpoint(), 5)
        self.assertEqual(("amq.topic", CONF.agent.manager_topic, CONF.host), _place(server))


def _place(server):
    target = server._target
    return target.exchange, target.topic, target.server
