# SPDX-License-Identifier: Apache-2.0
"""RPC in the virtual host of the agents: who answers whom, and the names of queues."""

import threading
import unittest
from unittest import mock

import oslo_messaging as messaging
from oslo_messaging.rpc import dispatcher as rpc_dispatcher

from attachd import exception
from attachd.conf import CONF
from attachd.rpc import admission, agent_transport, host_queues, path_check, transport
from attachd.rpc.received import REGISTRY_TOPIC
from attachd.tests.fixtures import rpc_clients
from attachd.tests.fixtures.conf_fixture import override
from attachd.tests.wait import TIMEOUT, wait_until

HEX = "0123456789abcdef" * 2


def received(reply_q, share=None, version="2.0", **arguments):
    """Return a message as a driver delivers it."""
    message = {"method": "ask", "args": arguments, "version": version}
    return mock.Mock(
        message=message,
        ctxt={},
        client_timeout=None,
        reply_q=reply_q,
        share=share,
        sender_timeout=30,
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
        call = received("reply_h_0")
        self.assertIsNone(dispatcher.dispatch(call))
        self.assertIs(transport.discard_reply, call.reply)
        self.assertEqual(0, self.endpoint.asked)
        dispatcher.dispatch(received(None))
        self.assertEqual(1, self.endpoint.asked)

    def test_registry_dispatches_calls_of_this_process_and_of_hosts(self):
        dispatcher = agent_transport.RegistryDispatcher(self.endpoint)
        self.assertEqual("answer", dispatcher.dispatch(received(object(), host="h")))
        call = received("reply_h_0", "h", host="h")
        sent, send = threading.Event(), call.reply
        send.side_effect = lambda *_: sent.set()
        self.assertEqual("answer", dispatcher.dispatch(call))
        call.reply("answer")
        self.assertTrue(sent.wait(TIMEOUT))
        send.assert_called_once_with("answer", None)

    def test_registry_drops_call_whose_sender_has_given_up(self):
        call = received("reply_h_0", "h", host="h")
        call.stopwatch.elapsed = lambda: 30.5
        self.assertIsNone(agent_transport.RegistryDispatcher(self.endpoint).dispatch(call))
        self.assertIs(transport.discard_reply, call.reply)
        self.assertEqual(0, self.endpoint.asked)

    def test_registry_answers_other_version_without_traceback(self):
        drops = mock.Mock()
        dispatcher = agent_transport.RegistryDispatcher(self.endpoint, drops=drops)
        for _ in range(2):
            with self.assertRaises(rpc_dispatcher.ExpectedException) as caught:
                dispatcher.dispatch(received("reply_h_0", "h", "9.0", host="h"))
            self.assertEqual(rpc_dispatcher.UnsupportedVersion, caught.exception.exc_info[0])
        self.assertEqual([mock.call("h", "version")] * 2, drops.record.mock_calls)

    def test_registry_logs_unexpected_errors_once_a_minute(self):
        dispatcher = agent_transport.RegistryDispatcher(self.endpoint)
        with (
            mock.patch.object(self.endpoint, "ask", side_effect=ValueError("x")),
            self.assertLogs("attachd.rpc.agent_transport", "ERROR") as logs,
        ):
            for _ in range(3):
                with self.assertRaises(rpc_dispatcher.ExpectedException) as caught:
                    dispatcher.dispatch(received("reply_h_0", "h", host="h"))
                self.assertEqual(ValueError, caught.exception.exc_info[0])
        self.assertEqual(1, len(logs.output))


class AnswersTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.answers = agent_transport.Answers(admission.DropLog())
        self.gate = threading.Event()
        self.addCleanup(self.gate.set)
        self.sent = []

    def send(self, host, value, failure=None):
        self.answers.send(
            host, "", lambda reply, _failure: self.sent.append(reply), value, failure
        )

    def block(self, host, failure=None):
        """Have the answers to a host hang."""
        hangs = threading.Event()

        def hang(*_arguments):
            hangs.set()
            self.gate.wait(TIMEOUT)

        self.answers.send(host, "", hang, None, failure)
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
        self.answers.send("h", "h", mock.Mock(side_effect=messaging.MessageDeliveryFailure), 1)
        self.send("h", 2)
        wait_until(lambda: self.sent == [2], lambda: self.sent)


class RegistryClientTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.own, self.common = mock.Mock(), mock.Mock()
        self.client = agent_transport.RegistryClient("h", self.own, self.common)
        self.bind = self.enterContext(mock.patch.object(host_queues, "bind"))
        self.count = self.enterContext(
            mock.patch.object(host_queues, "count_consumers", return_value=1)
        )
        self.enterContext(mock.patch.object(transport, "get_agent_transport"))

    def call(self):
        return self.client.call({}, "ask", host="h")

    def test_call_takes_own_queue(self):
        self.own.call.return_value = "own"
        self.assertEqual("own", self.call())
        self.bind.assert_not_called()
        self.common.call.assert_not_called()

    def test_missing_binding_is_made(self):
        missing = messaging.MessageUndeliverable(None, "", "", {})
        self.own.call.side_effect = [missing, "own"]
        self.assertEqual("own", self.call())
        self.bind.assert_called_once()
        self.common.call.assert_not_called()

    def test_call_without_own_queue_takes_common_one(self):
        self.own.call.side_effect = messaging.MessageUndeliverable(None, "", "", {})
        self.bind.side_effect = path_check.PathCut("no queue")
        self.common.call.return_value = "common"
        self.assertEqual("common", self.call())

    def test_call_without_any_queue_raises_why_own_one_is_missing(self):
        self.own.call.side_effect = messaging.MessageUndeliverable(None, "", "", {})
        self.bind.side_effect = path_check.PathCut("no queue of this host")
        for error in (
            messaging.MessageDeliveryFailure("refused"),
            messaging.MessageUndeliverable(None, "", "", {}),
        ):
            self.common.call.side_effect = error
            with self.assertRaisesRegex(path_check.PathCut, "no queue of this host"):
                self.call()

    def test_call_to_own_queue_without_reader_takes_common_one(self):
        self.count.return_value = 0
        self.own.call.side_effect = messaging.MessagingTimeout("own")
        self.common.call.return_value = "common"
        self.assertEqual("common", self.call())
        self.common.call.side_effect = messaging.MessageDeliveryFailure("refused")
        with self.assertRaisesRegex(messaging.MessagingTimeout, "own"):
            self.call()

    def test_outage_and_timeout_are_raised(self):
        for error in (messaging.MessageDeliveryFailure("down"), messaging.MessagingTimeout()):
            self.own.call.side_effect = error
            with self.assertRaises(type(error)):
                self.call()
        self.bind.assert_not_called()


class NamesTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        rpc_clients.use_transport(self)

    def test_reply_queue_has_a_name_of_the_host_that_no_process_reads(self):
        names = admission.reply_queues("h")
        url = transport.agent_transport_url()

        def count(_url, name):
            if name in names[:8]:
                return 1
            raise path_check.PathCut("missing")

        with mock.patch.object(host_queues, "count_consumers", side_effect=count):
            name = agent_transport._draw_reply_queue(url, "h")
        self.assertIn(name, names[8:])
        self.assertEqual(name, admission._reply_queue(name, "h"))
        with mock.patch.object(host_queues, "count_consumers", return_value=1):
            self.assertIn(agent_transport._draw_reply_queue(url, "h"), names)

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
        server = agent_transport.get_host_server(Endpoint(), "h")
        self.assertEqual(("attachd-agent.h", "attachd-agent.h", "agent"), _place(server))
        server = agent_transport.get_registry_server(Endpoint(), 5, host_queues.HostQueues())
        self.assertEqual(("amq.topic", REGISTRY_TOPIC, CONF.host), _place(server))

    def test_calls_without_broker_need_no_probes(self):
        self.assertFalse(agent_transport.is_probed())

    def test_send_registry_probes_raises_where_reports_get_lost(self):
        for error in (path_check.PathCut("gone"), messaging.MessageDeliveryFailure("down")):
            with (
                mock.patch.object(transport, "is_broker_used", return_value=True),
                mock.patch.object(transport, "get_agent_transport"),
                mock.patch.object(path_check, "send_probe", side_effect=error) as sent,
                self.assertRaisesRegex(exception.Unavailable, f"reports of agents: {error}"),
            ):
                agent_transport.send_registry_probes("2026-01-01T00:00:00")
            target = sent.call_args.args[1]
            self.assertEqual(("amq.topic", REGISTRY_TOPIC), (target.exchange, target.topic))


def _place(server):
    target = server._target
    return target.exchange, target.topic, target.server
