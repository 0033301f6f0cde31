# SPDX-License-Identifier: Apache-2.0
"""RPC client of agents: kinds of messages and mapping of errors."""

import unittest
from unittest import mock

import oslo_messaging as messaging

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.rpc import agent_api, transport
from attachd.tests.fixtures import rpc_clients
from attachd.tests.fixtures.conf_fixture import override

CONTEXT = RequestContext(overwrite=False)
BUSY = exception.DeviceBusy(device="/dev/sdb", users="postgres (4711)")


class RequestTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.client = mock.Mock()
        self.made = self.enterContext(
            mock.patch.object(transport, "get_client", return_value=self.client)
        )

    def test_client_has_topic_host_timeout_and_version(self):
        override(self, "work_timeout", 7, group="agent")
        for ask in (agent_api.reconcile, agent_api.request_reconcile):
            ask(CONTEXT, "compute-1", "a")
            self.made.assert_called_with("compute-1", 7, agent_api.VERSION, topic="attachd-agent")

    def test_reconcile_is_call_and_request_reconcile_is_cast(self):
        agent_api.reconcile(CONTEXT, "compute-1", "a")
        self.client.call.assert_called_once_with(CONTEXT, "reconcile", attachment_id="a")
        agent_api.request_reconcile(CONTEXT, "compute-1", "a")
        self.client.cast.assert_called_once_with(CONTEXT, "reconcile", attachment_id="a")

    def test_messaging_errors_become_errors_of_agent(self):
        undeliverable = messaging.MessageUndeliverable(None, "", "", {})
        both, reconcile = (
            (agent_api.reconcile, agent_api.request_reconcile),
            (agent_api.reconcile,),
        )
        for trouble, raised, asked in (
            (messaging.MessagingTimeout(), exception.AgentTimeout, reconcile),
            (undeliverable, exception.AgentUnavailable, both),
            (messaging.MessageDeliveryFailure(), exception.Unavailable, both),
        ):
            self.client.call.side_effect = self.client.cast.side_effect = trouble
            for ask in asked:
                with self.assertRaises(raised):
                    ask(CONTEXT, "compute-1", "a")


class AnswerTest(unittest.TestCase):
    """Over a transport: the caller receives the errors that an agent raises."""

    def setUp(self):
        super().setUp()
        rpc_clients.use_transport(self)
        override(self, "work_timeout", 60, group="agent")

    def serve(self, answer):
        class Endpoint:
            target = messaging.Target(version=agent_api.VERSION)

            @messaging.expected_exceptions(exception.AttachdError)
            def reconcile(self, _context, attachment_id):
                return answer(attachment_id)

        server = transport.get_server(Endpoint(), "compute-1", CONF.agent.topic)
        server.start(override_pool_size=1)
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)

    def test_reconcile_reaches_only_named_host(self):
        reconcile = mock.Mock(return_value=None)
        self.serve(reconcile)
        agent_api.reconcile(CONTEXT, "compute-1", "a")
        reconcile.assert_called_once_with("a")
        with self.assertRaises(exception.AgentUnavailable):
            agent_api.reconcile(CONTEXT, "compute-2", "a")

    def test_error_of_agent_arrives_with_class_and_message(self):
        self.serve(mock.Mock(side_effect=BUSY))
        with self.assertRaises(exception.DeviceBusy) as raised:
            agent_api.reconcile(CONTEXT, "compute-1", "a")
        self.assertIs(exception.DeviceBusy, type(raised.exception))
        self.assertEqual(str(BUSY), str(raised.exception))
