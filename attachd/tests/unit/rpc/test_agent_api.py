# SPDX-License-Identifier: Apache-2.0
"""RPC client of agents: casts, and mapping of errors."""

import unittest
from unittest import mock

import oslo_messaging as messaging

from attachd import exception
from attachd.context import RequestContext
from attachd.rpc import agent_api, agent_transport
from attachd.tests.fixtures import rpc_clients
from attachd.tests.fixtures.conf_fixture import override
from attachd.tests.wait import wait_until

CONTEXT = RequestContext(overwrite=False)


class RequestTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.client = mock.Mock()
        self.made = self.enterContext(
            mock.patch.object(agent_transport, "get_host_client", return_value=self.client)
        )

    def test_reconcile_is_cast_to_host(self):
        agent_api.reconcile(CONTEXT, "compute-1", "a")
        self.made.assert_called_once_with("compute-1", agent_api.VERSION)
        self.client.cast.assert_called_once_with(CONTEXT, "reconcile", attachment_id="a")
        self.client.call.assert_not_called()

    def test_messaging_errors_become_errors_of_agent(self):
        for trouble, raised in (
            (messaging.MessageUndeliverable(None, "", "", {}), exception.AgentUnavailable),
            (messaging.MessageDeliveryFailure(), exception.Unavailable),
        ):
            self.client.cast.side_effect = trouble
            with self.assertRaises(raised):
                agent_api.reconcile(CONTEXT, "compute-1", "a")

    def test_reconcile_without_agents_sends_nothing(self):
        override(self, "enabled", False, group="agent")
        with self.assertRaisesRegex(exception.AgentUnavailable, "enabled"):
            agent_api.reconcile(CONTEXT, "compute-1", "a")
        self.made.assert_not_called()


class DeliveryTest(unittest.TestCase):
    """Over a transport."""

    def test_reconcile_reaches_only_named_host(self):
        rpc_clients.use_transport(self)
        seen = []

        class Endpoint:
            target = messaging.Target(version=agent_api.VERSION)

            def reconcile(self, _context, attachment_id):
                seen.append(attachment_id)

        server = agent_transport.get_host_server(Endpoint(), "compute-1")
        server.start(override_pool_size=1)
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        agent_api.reconcile(CONTEXT, "compute-1", "a")
        wait_until(lambda: seen == ["a"])
        with self.assertRaises(exception.AgentUnavailable):
            agent_api.reconcile(CONTEXT, "compute-2", "a")
