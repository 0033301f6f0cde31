# SPDX-License-Identifier: Apache-2.0
"""What an agent needs in RabbitMQ is deleted while it runs; its account has the guide's rights."""

import re
from urllib import parse

import testtools

from attachd.rpc import host_queues
from attachd.tests.fixtures import agent_deployment, rabbitmq
from attachd.tests.functional.test_agent_accounts import add_account, with_account
from attachd.tests.selection import full_only
from attachd.tests.wait import wait_until


@full_only("agents")
class AgentPathTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.deployment = agent_deployment.shared(self)
        broker = self.deployment.agent_broker
        self.host = agent_deployment.AgentHost(self.deployment, self)
        account = add_account(self, parse.urlsplit(broker).path[1:], self.host.name)
        self.host.set_broker(with_account(broker, account))
        self.register()
        self.agent = self.host.start()
        self.queue = host_queues.host_topic(self.host.name)
        self.calls = host_queues.queue_name(self.host.name)
        self.volume = self.deployment.create_volume()
        self.answers = []
        self.assertEqual(200, self.attach().status_code)

    def register(self):
        """Register the host, and give the agent its key."""
        manage = "attachd-manage", self.deployment.config_argument, "agent", "add", self.host.name
        key = re.search(r"^[\w-]{43}$", self.deployment.run(*manage), re.MULTILINE)[0]
        self.host.folder.mkdir(mode=0o700)
        path = self.host.folder / "agent.key"
        path.write_text(key)
        path.chmod(0o600)

    def channel(self):
        """Return a channel of an account that may delete anything."""
        return rabbitmq.connect(self, self.deployment.agent_broker)()

    def attach(self):
        """Attach the volume and detach it again; return the answer of the attach."""
        answer = self.deployment.attach(self.volume, self.host.name)
        if answer.status_code == 200:
            detached = self.deployment.detach(answer.json()["attachment"]["id"])
            self.assertEqual(200, detached.status_code, detached.text)
        else:
            self.answers.append(answer.text)
            # Its report may have had the agent make the device, in spite of the answer.
            wait_until(self.is_detached)
        return answer

    def is_detached(self):
        """Delete what is left of an attach that has failed; return whether nothing is."""
        path = f"/attachments?volume_id={self.volume}"
        for row in self.deployment.request("GET", path).json()["attachments"]:
            self.deployment.detach(row["id"])
        return self.deployment.volume(self.volume)["status"] == "available"

    def assert_healed(self, log=""):
        """Wait until the volume can be attached; the agent was not restarted."""
        self.answers = []
        wait_until(lambda: self.attach().status_code == 200, lambda: self.answers)
        if log:
            wait_until(lambda: log in self.agent.output, lambda: self.agent.output)
        self.assertEqual("up", self.deployment.agent(self.host.name)["state"])
        self.assertIsNone(self.deployment.agent(self.host.name)["error"])

    def test_deleted_binding_is_restored(self):
        self.channel().queue_unbind(self.queue, self.queue, self.queue)
        self.assert_healed("declared again")
        self.assertIn("no way to the agent of host", "".join(self.answers))

    def test_deleted_exchange_is_restored(self):
        self.channel().exchange_delete(self.queue)
        self.assert_healed("declared again")

    def test_deleted_queue_is_restored(self):
        self.channel().queue_delete(self.queue)
        self.assert_healed()

    def test_deleted_queue_of_calls_is_restored(self):
        self.channel().queue_unbind(self.calls, self.queue, self.calls)
        self.assert_healed()
        self.channel().queue_delete(self.calls)
        self.assert_healed()

    def test_consumer_that_gets_nothing_is_replaced_and_reported(self):
        # A consumer of an administrator takes precedence, and acknowledges nothing.
        channel = self.channel()
        channel.basic_consume(
            self.queue, callback=lambda _message: None, arguments={"x-priority": 10}
        )
        wait_until(
            lambda: "do not arrive" in (self.deployment.agent(self.host.name)["error"] or ""),
            lambda: self.deployment.agent(self.host.name),
        )
        self.assertEqual(200, self.attach().status_code)
        channel.connection.close()
        wait_until(lambda: self.deployment.agent(self.host.name)["error"] is None)
        self.assert_healed()


@full_only("agents")
class RemovedHostTest(testtools.TestCase):
    """The queue of a host that was removed is left, and managers that have started since."""

    def test_agent_registers_although_nothing_reads_its_queue(self):
        deployment = agent_deployment.shared(self)
        host = agent_deployment.AgentHost(deployment, self)
        channel = rabbitmq.connect(self, deployment.agent_broker)()
        queue = host_queues.queue_name(host.name)
        channel.queue_declare(queue, auto_delete=False)
        self.addCleanup(channel.queue_delete, queue)
        host.start()
        wait_until(lambda: deployment.agent(host.name)["state"] == "up")
        volume = deployment.create_volume()
        answer = deployment.attach(volume, host.name)
        self.assertEqual(200, answer.status_code, answer.text)
        deployment.detach(answer.json()["attachment"]["id"])
