# SPDX-License-Identifier: Apache-2.0
"""Tests of deleted exchanges, queues and bindings in RabbitMQ while all processes run."""

import re
from urllib import parse

import requests
import testtools

from attachd import service
from attachd.rpc import received, transport
from attachd.tests.fixtures import deployments, guides, metric_samples, processes, rabbitmq
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

CONFIGURATION = """\
[metrics]
enabled = true
manager_port = 0

[shelf]
driver = fake
"""

BACKEND = "test@shelf"


@full_only("outages")
class Case(testtools.TestCase):
    settings = ""

    def setUp(self):
        super().setUp()
        self.deployment = deployments.Deployment(self, "mariadb", "shelf", workers=1)
        self.agent_broker = rabbitmq.create_agents_vhost(self)
        agents = f"[agent]\nenabled = true\ntransport_url = {self.agent_broker}\n"
        self.deployment.configure(CONFIGURATION + agents + self.settings)
        self.manager = self.deployment.start_manager()
        self.manager.show_in_failures(self)
        self.server = self.deployment.start_gunicorn()
        self.server.show_in_failures(self)
        self.deployment.wait_until_served()
        self.metrics_url = self.manager.wait_for(r"Metrics are at (http://\S+)")[1]
        self.volume = self.deployment.api.create_volume()
        self.assertEqual(200, self.attach_status())

    def channel(self, broker=None):
        """Return a new channel of an account that may delete anything.

        :param broker: URL; None: that of managers
        """
        return rabbitmq.connect(self, broker or self.deployment.broker)()

    def attach_status(self):
        """Attach the volume, detach it again, and return the status of the attach."""
        body = {"attachment": {"volume_uuid": self.volume, "connector": {"host": "here"}}}
        response = self.deployment.api.request("POST", "/attachments", body)
        if response.status == 200:
            path = f"/attachments/{response.body['attachment']['id']}"
            self.deployment.api.request_json("DELETE", path)
        return response.status

    def restored(self, queue):
        """Return the value of the metric for a server."""
        text = requests.get(self.metrics_url, timeout=TIMEOUT).text
        key = ("attachd_rpc_paths_restored_total", frozenset({("server", queue)}))
        return metric_samples.parse_samples(text).get(key)

    def broker_check(self):
        """Return the check of the message queue of the detailed health check."""
        body = requests.get(f"{self.deployment.url}/healthcheck?detailed", timeout=TIMEOUT).json()
        return next(check for check in body["checks"] if check["name"] == "broker")

    def assert_restored(self, queue):
        """Wait until a server has restored its path, and attach; nothing was restarted."""
        line = rf"RPC server {re.escape(queue)}: .*\. Exchange, queues and bindings are declared"
        self.manager.wait_for(line)
        wait_until(lambda: self.restored(queue), lambda: self.restored(queue))
        wait_until(lambda: self.attach_status() == 200)
        wait_until(lambda: self.broker_check()["status"] == "ok", self.broker_check)
        for process in (self.manager, self.server):
            self.assertNotIn("Traceback", process.output)


class DeletedTest(Case):
    def test_deleted_exchange_is_restored_without_restart(self):
        self.assertEqual("ok", self.broker_check()["status"])
        self.assertEqual(0.0, self.restored(f"{transport.MANAGER_TOPIC}.{BACKEND}"))
        self.channel().exchange_delete(service.EXCHANGE)
        self.assertEqual(503, self.attach_status())
        self.assert_restored(f"{transport.MANAGER_TOPIC}.{BACKEND}")
        # The server of agents is in another virtual host.
        self.assertEqual(0.0, self.restored(f"{received.REGISTRY_TOPIC}.test"))

    def test_deleted_binding_is_restored_without_restart(self):
        queue = f"{transport.MANAGER_TOPIC}.{BACKEND}"
        self.channel().queue_unbind(queue, service.EXCHANGE, queue)
        self.assertEqual(503, self.attach_status())
        self.assert_restored(queue)
        self.assertEqual(0.0, self.restored(f"{received.REGISTRY_TOPIC}.test"))

    def test_deleted_binding_of_agents_queue_is_restored(self):
        channel = self.channel(self.agent_broker)
        channel.queue_unbind(
            received.REGISTRY_TOPIC, received.REGISTRY_EXCHANGE, received.REGISTRY_TOPIC
        )
        self.assert_restored(f"{received.REGISTRY_TOPIC}.test")

    def test_deleted_fanout_exchange_is_restored(self):
        self.channel().exchange_delete(f"{transport.MANAGER_TOPIC}_fanout")
        self.assert_restored(f"{transport.MANAGER_TOPIC}.{BACKEND}")

    def test_deleted_queues_are_declared_again(self):
        """oslo.messaging does that itself: the broker cancels the consumers of a deleted queue."""
        vhost = parse.urlsplit(self.deployment.broker).path[1:]
        listed = processes.check_output(
            ["rabbitmqctl", "-q", "--no-table-headers", "list_queues", "-p", vhost, "name"]
        )
        queues = listed.split()
        self.assertTrue([name for name in queues if name.startswith("reply_")], queues)
        for queue in queues:
            self.channel().queue_delete(queue)
        wait_until(lambda: self.attach_status() == 200)

    def test_deleted_exchange_is_reported_by_health_check(self):
        # Nothing repairs the path of a manager that is stopped; its last report is recent.
        self.manager.end()
        self.channel().exchange_delete(service.EXCHANGE)
        # The first message to a deleted exchange breaks its connection, and names no backend.
        wait_until(lambda: BACKEND in (self.broker_check()["reason"] or ""), self.broker_check)
        self.assertEqual("failed", self.broker_check()["status"])


class QuorumTest(Case):
    """The queues of the high-availability guide."""

    settings = next(
        block.text[block.text.index("[oslo_messaging_rabbit]") :]
        for block in guides.parse_blocks(processes.ROOT / "doc/source/admin/high-availability.rst")
        if block.readers == "quorum"
    )

    def test_deleted_exchange_of_quorum_queues_is_restored(self):
        self.channel().exchange_delete(service.EXCHANGE)
        self.assert_restored(f"{transport.MANAGER_TOPIC}.{BACKEND}")


@full_only("outages")
class OutageTest(testtools.TestCase):
    def test_outage_of_broker_restores_no_path(self):
        deployment = deployments.ProxiedDeployment(self, "mariadb", "shelf")
        deployment.configure(CONFIGURATION)
        manager = deployment.start_manager()
        deployment.start_gunicorn()
        deployment.wait_until_served()
        volume = deployment.create_volume()
        for away in (deployment.queue_proxy.refuse, deployment.queue_proxy.freeze):
            before = len(manager.output)
            away()
            # A check of the path or a heartbeat notices it.
            wait_until(lambda seen=before: "oslo" in manager.output[seen:])
            deployment.queue_proxy.pass_on()
            attachment = deployment.reserve(volume)
            wait_until(lambda item=attachment: deployment.connect(item).status == 200)
            self.assertEqual(
                200, deployment.request("DELETE", f"/attachments/{attachment}").status
            )
        self.assertNotIn("declared again", manager.output)
