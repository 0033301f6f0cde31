# SPDX-License-Identifier: Apache-2.0
"""Tests that the RabbitMQ permissions of the administrator's guide suffice for agents."""

from pathlib import Path
import re
import subprocess
import unittest
from urllib import parse
import uuid

import amqp  # type: ignore[import-untyped]
import oslo_messaging as messaging

from attachd import context, service
from attachd.conf import CONF
from attachd.rpc import agent_api, agent_manager_api, transport
from attachd.rpc.transport import expected_errors
from attachd.tests.fixtures import (
    conf_fixture,
    databases,
    fake_agent,
    rabbitmq,
    requirements,
)
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT

GUIDE = Path(__file__).parents[3] / "doc" / "source" / "admin" / "agents.rst"
HOST, OTHER_HOST = "node-1", "node-2"
PASSWORD = "secret"


class Listener:
    """Stands in for the server of agents, and for an agent."""

    target = messaging.Target(version="1.0")

    def __init__(self):
        self.looked = []

    @expected_errors
    def desired_state(self, _context, host, key, attachment_id):
        """See agent_manager_api.desired_state()."""
        return [host, key, attachment_id]

    @expected_errors
    def reconcile(self, _context, attachment_id):
        """See agent_api.reconcile()."""
        self.looked.append(attachment_id)


@full_only("agents")
class AccountTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        if not GUIDE.is_file():
            self.skipTest(f"The guide is not here: {GUIDE}")
        databases.use(self)
        CONF([], project="attachd", default_config_files=[])
        url = rabbitmq.create_vhost(self)
        self.server = parse.urlsplit(url)
        self.name = f"attachd_test_{uuid.uuid4().hex[:12]}"
        self.add_account()
        messaging.set_transport_defaults(service.EXCHANGE)
        messaging.TransportURL(CONF)
        conf_fixture.override(self, "transport_url", url)
        conf_fixture.override(self, "work_timeout", int(TIMEOUT), "agent")
        transport.reset_after_fork()
        self.addCleanup(transport.close)

    def add_account(self):
        control = requirements.require_tool(self, "rabbitmqctl")
        script = re.search(r"# (OWN=.*?)\n\n", GUIDE.read_text(), re.DOTALL)[1]
        script = re.sub(r"(?m)^ *(# )?", "", script)
        script = script.replace("rabbitmqctl", control).replace("-p attachd", '-p "$VHOST"')
        script = script.replace("SECRET", PASSWORD).replace("$HOST", "$ACCOUNT")
        vhost = self.server.path[1:]
        self.addCleanup(subprocess.run, [control, "-q", "delete_user", self.name], check=False)
        subprocess.run(
            ["/bin/bash", "-ec", script],
            env={
                "NAME": HOST,
                "ACCOUNT": self.name,
                "VHOST": vhost,
                "PATH": "/usr/sbin:/usr/bin:/bin",
            },
            check=True,
            capture_output=True,
            timeout=TIMEOUT,
        )

    def served(self, listener, name, topic, connection=None):
        made = messaging.get_rpc_server(
            connection or transport.get_transport(),
            messaging.Target(topic=topic, server=name),
            [listener],
        )
        made.start(override_pool_size=1)
        self.addCleanup(made.wait)
        self.addCleanup(made.stop)

    def account_transport(self):
        netloc = f"{self.name}:{PASSWORD}@{self.server.hostname}:{self.server.port}"
        url = parse.urlunsplit(self.server._replace(netloc=netloc))
        made = messaging.get_rpc_transport(CONF, url)
        self.addCleanup(made.cleanup)
        return made

    def channel(self):
        """Return a new channel of the account: the broker closes those that it refuses."""
        connection = amqp.Connection(
            host=f"{self.server.hostname}:{self.server.port}",
            userid=self.name,
            password=PASSWORD,
            virtual_host=self.server.path[1:],
            confirm_publish=True,
        )
        connection.connect()
        self.addCleanup(connection.close)
        return connection.channel()

    def test_rabbitmq_agent_account_is_sufficient_for_an_agent(self):
        endpoint, agent = Listener(), Listener()
        self.served(endpoint, "manager", CONF.agent.manager_topic)
        account = self.account_transport()
        self.served(agent, HOST, CONF.agent.topic, account)
        target = messaging.Target(
            topic=CONF.agent.manager_topic, version=agent_manager_api.VERSION
        )
        client = messaging.get_rpc_client(account, target, timeout=TIMEOUT)
        said = {"host": HOST, "key": fake_agent.KEY, "attachment_id": "a1"}
        self.assertEqual(list(said.values()), client.call({}, "desired_state", **said))
        agent_api.reconcile(context.get_admin_context(), HOST, "a1")
        self.assertEqual(["a1"], agent.looked)

    def test_rabbitmq_agent_account_cannot_reach_managers_or_other_hosts(self):
        self.served(Listener(), "here@fake", CONF.rpc.topic)
        self.served(Listener(), OTHER_HOST, CONF.agent.topic)
        for topic in (f"{CONF.rpc.topic}.here@fake", f"{CONF.agent.topic}.{OTHER_HOST}"):
            with self.subTest(topic):
                with self.assertRaises(amqp.AccessRefused):
                    self.channel().basic_publish(
                        amqp.Message("{}"), exchange=service.EXCHANGE, routing_key=topic
                    )
                with self.assertRaises(amqp.AccessRefused):
                    self.channel().basic_consume(topic)
                with self.assertRaises(amqp.AccessRefused):
                    channel = self.channel()
                    channel.queue_declare(CONF.agent.topic, passive=True)
                    channel.queue_bind(CONF.agent.topic, service.EXCHANGE, routing_key=topic)

    def test_rabbitmq_agent_account_has_the_documented_rights(self):
        """Were it not, the guide would frighten without a reason."""
        self.served(Listener(), "here@fake", CONF.rpc.topic)
        self.channel().basic_publish(
            amqp.Message("{}"), exchange="", routing_key=f"{CONF.rpc.topic}.here@fake"
        )
