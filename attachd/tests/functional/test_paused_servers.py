# SPDX-License-Identifier: Apache-2.0
"""The servers of two managers for agents, of which one is paused, with a real broker."""

import contextlib
from unittest import mock
import uuid

import amqp  # type: ignore[import-untyped]
import fixtures
import oslo_messaging as messaging
import testtools

from attachd.rpc import admission, host_queues, path_check, transport
from attachd.tests.fixtures import rabbitmq, rpc_clients
from attachd.tests.unit.rpc.test_admission import CALL, FORM, Endpoint, envelope
from attachd.tests.wait import wait_until

HOSTS = [f"host-{number}" for number in range(5)]


class _Server:
    """The server of one manager, which records the numbers of the calls that it executes."""

    def __init__(self, test, name):
        self.queues = host_queues.HostQueues()
        self.taken = []
        self.server = host_queues.CallServer(
            transport.agent_transport_url(),
            messaging.Target(exchange="amq.topic", topic="calls", server=name),
            mock.Mock(dispatch=self.record),
            admission.Reader(Endpoint()),
            self.queues,
        )
        self.server.start(override_pool_size=1)
        test.addCleanup(self.server.wait)
        test.addCleanup(self.server.stop)
        self.queues.serve(HOSTS)

    def record(self, incoming):
        self.taken.append(int(incoming.message["args"]["key"]))


class PausedServerTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        broker = rabbitmq.create_vhost(self)
        rpc_clients.use_transport(self, broker)
        # The hosts have no queues for answers.
        self.useFixture(fixtures.MockPatchObject(host_queues, "AnswerSender"))
        self.a, self.b = _Server(self, "a"), _Server(self, "b")
        self.channel = rabbitmq.connect(self, broker)()
        self.number = 0
        for host in HOSTS:
            wait_until(lambda name=host: self.count(name) == 2)

    def count(self, host):
        """Return how many servers read the queue of a host."""
        url = transport.agent_transport_url()
        with contextlib.suppress(path_check.PathCut):  # There is no queue yet.
            return host_queues.count_consumers(url, host_queues.queue_name(host))

    def send(self, per_host):
        """Send calls of all hosts one after the other; return their numbers."""
        sent = []
        for _ in range(per_host):
            for host in HOSTS:
                self.number += 1
                sent.append(self.number)
                args = {"host": host, "key": f"{self.number}"}
                own = {"_unique_id": uuid.uuid4().hex, "_reply_q": f"reply_{host}_0", "args": args}
                body = envelope(**CALL | own)
                message = amqp.Message(body, **FORM)
                self.channel.basic_publish(message, "", host_queues.queue_name(host))
        return sent

    def test_paused_server_takes_one_call_of_each_host_and_goes_on_later(self):
        self.a.queues.paused.set()
        sent = self.send(6)
        wait_until(lambda: len(self.a.taken + self.b.taken) == len(sent), self.taken)
        self.assertLessEqual(len(self.a.taken), len(HOSTS))
        self.assertEqual(sent, sorted(self.a.taken + self.b.taken))
        taken = len(self.a.taken)
        self.a.queues.paused.clear()
        self.b.queues.paused.set()
        sent += self.send(6)
        wait_until(lambda: len(self.a.taken + self.b.taken) == len(sent), self.taken)
        self.assertGreaterEqual(len(self.a.taken) - taken, 5 * len(HOSTS))

    def taken(self):
        return self.a.taken, self.b.taken
