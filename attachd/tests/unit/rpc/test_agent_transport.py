# SPDX-License-Identifier: Apache-2.0
"""RPC in the virtual host of the agents: who answers whom, and the names of queues."""

import threading
import unittest
from unittest import mock

import oslo_messaging as messaging
from oslo_messaging._drivers import amqpdriver, impl_rabbit

from attachd import exception
from attachd.conf import CONF
from attachd.rpc import agent_transport, path_check, transport
from attachd.tests.fixtures import rpc_clients
from attachd.tests.fixtures.conf_fixture import override
from attachd.tests.wait import TIMEOUT, wait_until

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

    def test_registry_drops_calls_with_reply_queues_of_other_types(self):
        for reply_q in ([f"reply_h_{HEX}"], {"a": 1}, 7, "", 0):
            call = received(reply_q, host="h")
            self.assertIsNone(agent_transport.RegistryDispatcher(self.endpoint).dispatch(call))
        self.assertEqual(0, self.endpoint.asked)

    def test_registry_sends_no_heartbeats(self):
        call = received(f"reply_h_{HEX}", host="h")
        call.client_timeout = 10**6
        agent_transport.RegistryDispatcher(self.endpoint).dispatch(call)
        self.assertIsNone(call.client_timeout)


class AnswersTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.answers = agent_transport.Answers()
        self.gate = threading.Event()
        self.addCleanup(self.gate.set)
        self.sent = []

    def send(self, host, value, failure=None):
        self.answers.send(host, lambda reply, _failure: self.sent.append(reply), value, failure)

    def block(self, host, failure=None):
        """Have the answers to a host hang."""
        hangs = threading.Event()

        def hang(*_arguments):
            hangs.set()
            self.gate.wait(TIMEOUT)

        self.answers.send(host, hang, None, failure)
        self.assertTrue(hangs.wait(TIMEOUT))

    def test_answers_to_one_host_arrive_in_order(self):
        for number in range(20):
            self.send("h", number)
        wait_until(lambda: len(self.sent) == 20, lambda: self.sent)
        self.assertEqual(list(range(20)), self.sent)
        wait_until(lambda: not self.answers._waiting)

    def test_host_that_takes_no_answers_delays_no_other_host(self):
        self.block("bad")
        for number in range(2 * self.answers.MAX_WAITING):
            self.send("bad", number)
        self.assertEqual(self.answers.MAX_WAITING, len(self.answers._waiting["bad"]))
        self.send("good", "answer")
        wait_until(lambda: self.sent == ["answer"], lambda: self.sent)

    def test_caller_with_wrong_key_delays_no_answers_to_the_host_that_it_names(self):
        for error in (exception.Forbidden("no"), TypeError(), messaging.UnsupportedVersion("1")):
            failure = (type(error), error, None)
            self.gate.clear()
            self.block("h", failure)
            self.send("h", "answer")
            wait_until(lambda: self.sent == ["answer"], lambda: self.sent)
            self.sent.clear()
            self.gate.set()
            wait_until(lambda: not self.answers._waiting)

    def test_number_of_hosts_is_limited(self):
        with mock.patch.object(agent_transport.Answers, "MAX_HOSTS", 2):
            for host in ("a", "b"):
                self.block(host)
            self.send("c", "dropped")
        self.assertEqual({"a", "b"}, set(self.answers._waiting))

    def test_failure_to_send_ends_nothing(self):
        self.answers.send("h", mock.Mock(side_effect=messaging.MessageDeliveryFailure), 1)
        self.send("h", 2)
        wait_until(lambda: self.sent == [2], lambda: self.sent)


class LimitedServerTest(unittest.TestCase):
    def test_server_takes_a_limited_number_of_messages(self):
        rpc_clients.use_transport(self)
        gate = threading.Event()
        self.addCleanup(gate.set)
        running = []

        def dispatch(_incoming):
            running.append(True)
            gate.wait(TIMEOUT)

        with mock.patch.object(agent_transport.LimitedServer, "MAX_PENDING", 2):
            server = agent_transport.LimitedServer(
                transport.get_transport(),
                messaging.Target(topic="t", server="s"),
                mock.Mock(dispatch=dispatch),
            )
        server.start(override_pool_size=4)
        client = messaging.get_rpc_client(transport.get_transport(), messaging.Target(topic="t"))
        sender = threading.Thread(
            target=lambda: [client.cast({}, "method") for _ in range(4)], daemon=True
        )
        sender.start()
        wait_until(lambda: len(running) == 2, lambda: running)
        gate.set()
        wait_until(lambda: len(running) == 4, lambda: running)
        sender.join(TIMEOUT)
        server.stop()
        server.wait()

    def test_message_that_cannot_be_queued_is_dropped(self):
        rpc_clients.use_transport(self)
        target = messaging.Target(topic="t", server="s")
        server = agent_transport.LimitedServer(transport.get_transport(), target, mock.Mock())
        refuse = mock.Mock(submit=mock.Mock(side_effect=ValueError))
        with mock.patch.object(server, "_work_executor", refuse):
            for _ in range(2 * server.MAX_PENDING):
                server._on_incoming([mock.Mock()])
        self.assertEqual(2 * server.MAX_PENDING, refuse.submit.call_count)


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

    def test_check_registry_without_broker_sends_nothing(self):
        with mock.patch.object(path_check, "send_probe") as sent:
            agent_transport.check_registry()
        sent.assert_not_called()

    def test_check_registry_raises_where_reports_get_lost(self):
        for error in (path_check.PathCut("gone"), messaging.MessageDeliveryFailure("down")):
            with (
                mock.patch.object(transport, "is_broker_used", return_value=True),
                mock.patch.object(transport, "get_agent_transport"),
                mock.patch.object(path_check, "send_probe", side_effect=error) as sent,
                self.assertRaisesRegex(exception.Unavailable, f"reports of agents: {error}"),
            ):
                agent_transport.check_registry()
            target = sent.call_args.args[1]
            self.assertEqual(
                ("amq.topic", CONF.agent.manager_topic), (target.exchange, target.topic)
            )


def _place(server):
    target = server._target
    return target.exchange, target.topic, target.server
