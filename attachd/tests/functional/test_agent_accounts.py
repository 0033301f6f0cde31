# SPDX-License-Identifier: Apache-2.0
"""The RabbitMQ permissions of the administrator's guide: enough for an agent, too few for more."""

import json
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
from attachd.rpc import (
    admission,
    agent_api,
    agent_manager_api,
    agent_transport,
    host_queues,
    transport,
)
from attachd.rpc.transport import expected_errors
from attachd.tests.fixtures import (
    agent_deployment,
    conf_fixture,
    databases,
    fake_agent,
    processes,
    rabbitmq,
    requirements,
)
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

GUIDE = Path(__file__).parents[3] / "doc" / "source" / "admin" / "agents.rst"
HOST, OTHER_HOST = "node-1", "node-2"
PASSWORD = "secret"
PAUSE = 1.0
"""Seconds between the first two attempts to connect: rabbit_retry_interval."""
HEX = "0123456789abcdef" * 2
OWN = f"attachd-agent.{HOST}"
OTHER = f"attachd-agent.{OTHER_HOST}"
REGISTRY = "attachd-agent-manager"
CALLS = f"attachd-agent-manager-calls.{HOST}"
OTHER_CALLS = f"attachd-agent-manager-calls.{OTHER_HOST}"


class Registry:
    """Stands in for the server of agents."""

    target = messaging.Target(version=agent_manager_api.VERSION)

    @expected_errors
    def desired_state(self, _context, host, key, process, attachment_id):
        """See agent_manager_api.desired_state()."""
        return [host, key, attachment_id]


class Listener:
    """Stands in for an agent."""

    target = messaging.Target(version=agent_api.VERSION)

    def __init__(self):
        self.seen = []

    def reconcile(self, _context, attachment_id):
        """See agent_api.reconcile()."""
        self.seen.append(attachment_id)


def add_account(test, vhost, host=HOST):
    """Add the account of a host, by the commands of the guide, and return its name."""
    if not GUIDE.is_file():
        test.skipTest(f"The guide is not here: {GUIDE}")
    control = requirements.require_tool(test, "rabbitmqctl")
    name = f"attachd_test_{uuid.uuid4().hex[:12]}"
    script = re.search(r"# (NAME=.*?)\n\n", GUIDE.read_text(), re.DOTALL)[1]
    script = re.sub(r"(?m)^ *(# )?", "", script)
    script = script.replace('printf %s "$HOST"', f"printf %s {host}")
    script = script.replace("rabbitmqctl", control).replace("-p attachd-agents", '-p "$VHOST"')
    script = script.replace("SECRET", PASSWORD).replace("$HOST", "$ACCOUNT")
    test.addCleanup(subprocess.run, [control, "-q", "delete_user", name], check=False)
    environment = {
        "ACCOUNT": name,
        "VHOST": vhost,
        "PATH": "/usr/sbin:/usr/bin:/bin",
    }
    subprocess.run(
        ["/bin/bash", "-ec", script],
        env=environment,
        check=True,
        capture_output=True,
        timeout=TIMEOUT,
    )
    return name


def with_account(url, name):
    """Return a URL with the name and password of an account."""
    server = parse.urlsplit(url)
    return parse.urlunsplit(
        server._replace(netloc=f"{name}:{PASSWORD}@{server.hostname}:{server.port}")
    )


def _failures(logs):
    name = f"reply_{HOST}"
    return [
        record
        for record in logs.records
        if "unreachable" in record.getMessage() and name in record.getMessage()
    ]


@full_only("agents")
class AccountTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self)
        CONF([], project="attachd", default_config_files=[])
        self.url = rabbitmq.create_agents_vhost(self)
        self.account_url = with_account(
            self.url, add_account(self, parse.urlsplit(self.url).path[1:])
        )
        messaging.set_transport_defaults(service.EXCHANGE)
        messaging.TransportURL(CONF)
        self.use(self.url)
        self.listener, self.other = Listener(), Listener()
        queues = host_queues.HostQueues()
        self.serve(agent_transport.get_registry_server(Registry(), TIMEOUT, queues))
        queues.serve([HOST, OTHER_HOST])
        self.serve(agent_transport.get_host_server(self.other, OTHER_HOST))

    def use(self, url):
        """Make the connections of this process with a URL from now on."""
        conf_fixture.override(self, "transport_url", url, "agent")
        transport.close()
        # Before the account is deleted: its connections would try to connect again forever.
        self.addCleanup(transport.get_agent_transport().cleanup)
        self.addCleanup(transport.close)

    def serve(self, server):
        server.start(override_pool_size=1)
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)

    def start_agent(self):
        self.use(self.account_url)
        self.serve(agent_transport.get_host_server(self.listener, HOST))

    def assert_refused(self, attempt):
        """Check that the broker refuses what a function does with a channel of the account."""
        with self.assertRaises(amqp.AccessRefused):
            attempt(self.channel())

    def test_agent_account_is_sufficient_for_an_agent(self):
        self.start_agent()
        credentials = fake_agent.get_credentials(HOST)
        self.assertEqual(
            [*credentials[:2], "a1"], agent_manager_api.desired_state(credentials, "a1")
        )
        self.use(self.url)
        agent_api.reconcile(context.get_admin_context(), HOST, "a1")
        wait_until(lambda: self.listener.seen == ["a1"])

    def test_agent_with_deleted_account_pauses_between_logins(self):
        self.start_agent()
        credentials = fake_agent.get_credentials(HOST)
        agent_manager_api.desired_state(credentials, "a1")
        control = requirements.require_tool(self, "rabbitmqctl")
        name = parse.urlsplit(self.account_url).username
        closing = ["close_all_user_connections", name, "deleted"]
        with self.assertLogs("attachd.rpc.receiver", "WARNING") as logs:
            for command in (["delete_user", name], closing):
                processes.check_output([control, "-q", *command], timeout=TIMEOUT)
            wait_until(lambda: len(_failures(logs)) > 2)
        first, second, third = (record.created for record in _failures(logs)[:3])
        self.assertGreaterEqual(second - first, PAUSE)
        self.assertGreaterEqual(third - second, 2 * PAUSE)

    def test_agent_account_reaches_no_other_host(self):
        self.channel = rabbitmq.connect(self, self.account_url)
        message = amqp.Message("{}")
        queues = (OTHER, f"{OTHER}.agent", f"reply_{OTHER_HOST}_0", OTHER_CALLS, REGISTRY)
        for queue in queues:
            for attempt in (
                lambda channel, name=queue: channel.queue_declare(name),
                lambda channel, name=queue: channel.queue_delete(name),
                lambda channel, name=queue: channel.queue_purge(name),
                lambda channel, name=queue: channel.basic_consume(name),
                lambda channel, name=queue: channel.basic_get(name),
                lambda channel, name=queue: channel.basic_publish(message, "", name),
                lambda channel, name=queue: channel.queue_bind(name, OWN, "#"),
            ):
                with self.subTest(queue):
                    self.assert_refused(attempt)
        self.assertEqual([], self.other.seen)

    def test_agent_account_declares_few_queues(self):
        self.channel = rabbitmq.connect(self, self.account_url)
        for name in admission.reply_queues(HOST):
            self.channel().queue_declare(name)
        for name in (
            "",
            f"{OWN}.agent",
            f"{OWN}_fanout",
            f"{OWN}_fanout_{HEX}",
            f"{OWN}x",
            f"reply_{HOST}_",
            f"reply_{HOST}_00",
            f"reply_{HOST}_{HEX}",
        ):
            with self.subTest(name):
                self.assert_refused(lambda channel, name=name: channel.queue_declare(name))

    def test_agent_draws_a_reply_queue_that_no_other_process_reads(self):
        connect = rabbitmq.connect(self, self.account_url)
        *read, free = admission.reply_queues(HOST)
        channel = connect()
        for name in read:
            channel.queue_declare(name)
            channel.basic_consume(name)
        url = messaging.TransportURL.parse(CONF, self.account_url)
        for _ in range(3):
            self.assertEqual(free, agent_transport._draw_reply_queue(url, HOST))

    def test_agent_account_only_binds_the_queue_of_its_calls(self):
        self.channel = rabbitmq.connect(self, self.account_url)
        wait_until(self.is_calls_queue_declared)
        for attempt in (
            lambda channel: channel.queue_declare(CALLS),
            lambda channel: channel.queue_delete(CALLS),
            lambda channel: channel.queue_purge(CALLS),
            lambda channel: channel.basic_consume(CALLS),
            lambda channel: channel.basic_get(CALLS),
            lambda channel: channel.queue_bind(CALLS, "amq.topic", "#"),
            lambda channel: channel.basic_publish(amqp.Message("{}"), "", CALLS),
        ):
            self.assert_refused(attempt)
        self.channel().exchange_declare(OWN, "topic", durable=True, auto_delete=False)
        self.channel().queue_bind(CALLS, OWN, "any.key")

    def is_calls_queue_declared(self):
        """Return whether the server of managers reads the queue of the host."""
        try:
            rabbitmq.connect(self, self.url)().queue_declare(CALLS, passive=True)
        except amqp.NotFound:
            return False
        return True

    def test_agent_account_cannot_change_exchanges_of_others(self):
        self.channel = rabbitmq.connect(self, self.account_url)
        for exchange in (OTHER, f"{REGISTRY}_fanout", "attachd", "amq.direct", "amq.topic"):
            for attempt in (
                lambda channel, name=exchange: channel.exchange_declare(name, "topic"),
                lambda channel, name=exchange: channel.exchange_delete(name),
                lambda channel, name=exchange: channel.basic_publish(
                    amqp.Message("{}"), name, "x"
                ),
            ):
                with self.subTest(exchange):
                    self.assert_refused(attempt)

    def test_agent_account_cannot_forward_messages(self):
        """Not by an alternate exchange, a binding of exchanges or a dead-letter exchange."""
        self.channel = rabbitmq.connect(self, self.account_url)
        for target in (OTHER, "", "amq.default", "amq.direct", "amq.topic"):
            for attempt in (
                lambda channel, name=target: channel.exchange_declare(
                    f"{OWN}_fanout",
                    "topic",
                    arguments={"alternate-exchange": name or "amq.default"},
                ),
                lambda channel, name=target: channel.queue_declare(
                    OWN, arguments={"x-dead-letter-exchange": name}
                ),
                lambda channel, name=target: _bind(channel, name or "amq.default"),
            ):
                with self.subTest(target):
                    self.assert_refused(attempt)

    def test_agent_account_cannot_read_what_others_send_to_managers(self):
        self.channel = rabbitmq.connect(self, self.account_url)

        def listen(channel):
            channel.queue_declare(OWN)
            channel.queue_bind(OWN, "amq.topic", REGISTRY)

        def follow(channel):
            channel.exchange_declare(OWN, "topic", durable=True, auto_delete=False)
            channel.exchange_bind(OWN, "amq.topic", "#")

        self.assert_refused(listen)
        self.assert_refused(follow)

    def test_messages_reach_other_hosts_after_exchange_of_host_was_broken(self):
        self.channel = rabbitmq.connect(self, self.account_url)
        self.channel().exchange_declare(OWN, "fanout", durable=True, auto_delete=False)
        with self.assertRaises(Exception):  # noqa: B017  any: the host has broken it
            agent_api.reconcile(context.get_admin_context(), HOST, "a1")
        agent_api.reconcile(context.get_admin_context(), OTHER_HOST, "a2")
        wait_until(lambda: self.other.seen == ["a2"])


def _bind(channel, target):
    channel.exchange_declare(OWN, "topic", durable=True, auto_delete=False)
    channel.exchange_bind(target, OWN, "#")


def forge(method, **arguments):
    """Return a message as oslo.messaging would send it."""
    message = {
        "method": method,
        "args": arguments,
        "version": "1.0",
        "_unique_id": uuid.uuid4().hex,
        "is_admin": True,
    }
    body = {"oslo.version": "2.0", "oslo.message": json.dumps(message)}
    return amqp.Message(
        json.dumps(body), content_type="application/json", content_encoding="utf-8"
    )


@full_only("agents")
class TakenOverHostTest(unittest.TestCase):
    """A host that has been taken over tries to have a volume in use detached."""

    def setUp(self):
        super().setUp()
        self.deployment = agent_deployment.shared(self)
        self.vhost = parse.urlsplit(self.deployment.agent_broker).path[1:]
        self.name = add_account(self, self.vhost)
        self.volume = self.deployment.create_volume()
        self.attachment = self.attach()
        self.addCleanup(self.deployment.detach, self.attachment)

    def attach(self):
        """Attach the volume as Compute does, and return the attachment's id."""
        connector = {"host": "compute-1", "initiator": "iqn.2026-01.org.example:compute-1"}
        body = {"attachment": {"volume_uuid": self.volume, "connector": connector}}
        answer = self.deployment.request("POST", "/attachments", body)
        self.assertEqual(200, answer.status_code, answer.text)
        identity = answer.json()["attachment"]["id"]
        path = f"/attachments/{identity}/action"
        answer = self.deployment.request("POST", path, {"os-complete": None})
        self.assertEqual(204, answer.status_code, answer.text)
        return identity

    def queues(self, vhost):
        """Return the names of all queues, as an administrator sees them."""
        control = requirements.require_tool(self, "rabbitmqctl")
        command = [control, "-q", "list_queues", "-p", vhost, "--no-table-headers", "name"]
        return processes.check_output(command, timeout=TIMEOUT).split()

    def test_taken_over_host_cannot_have_a_volume_detached(self):
        main_vhost = parse.urlsplit(self.deployment.broker).path[1:]
        managers = [
            name for name in self.queues(main_vhost) if name.startswith("attachd-manager.")
        ]
        self.assertTrue(managers)
        with self.assertRaises(amqp.NotAllowed):
            rabbitmq.connect(self, with_account(self.deployment.broker, self.name))
        channel = rabbitmq.connect(self, with_account(self.deployment.agent_broker, self.name))
        forged = forge("detach", attachment_id=self.attachment, volume_id=self.volume)
        for key in (*managers, "attachd-manager"):
            for attempt in (
                lambda opened, to=key: opened.basic_publish(forged, "", to),
                lambda opened, to=key: opened.basic_publish(forged, service.EXCHANGE, to),
                lambda opened, to=key: opened.basic_publish(forged, "amq.topic", to),
                lambda opened: opened.exchange_declare(
                    f"{OWN}_fanout",
                    "topic",
                    arguments={"alternate-exchange": service.EXCHANGE},
                ),
                lambda opened, to=key: opened.queue_declare(
                    OWN,
                    arguments={
                        "x-message-ttl": 1,
                        "x-dead-letter-exchange": service.EXCHANGE,
                        "x-dead-letter-routing-key": to,
                    },
                ),
                lambda opened: _bind(opened, service.EXCHANGE),
            ):
                with self.subTest(key), self.assertRaises(amqp.AccessRefused):
                    attempt(channel())
            # It is permitted to send to its own exchange.
            opened = channel()
            opened.exchange_declare(OWN, "topic", durable=True, auto_delete=False)
            opened.basic_publish(forged, OWN, key)
            opened.close()
        # The managers have received what could reach them: this call comes after it.
        host = agent_deployment.AgentHost(self.deployment, self)
        host.start()
        shown = self.deployment.attachment(self.attachment)
        self.assertEqual("attached", shown["status"])
        self.assertEqual("in-use", self.deployment.volume(self.volume)["status"])
        self.assertTrue(any(self.volume in item.name for item in self.deployment.tgtd.targets()))

    def test_virtual_host_of_agents_has_no_queue_of_the_service_but_the_registry(self):
        host = agent_deployment.AgentHost(self.deployment, self)
        host.start()
        volume = self.deployment.create_volume()
        answer = self.deployment.attach(volume, host.name)
        self.assertEqual(200, answer.status_code, answer.text)
        answer = self.deployment.detach(answer.json()["attachment"]["id"])
        self.assertEqual(200, answer.status_code, answer.text)
        names = self.queues(self.vhost)
        self.assertIn(f"attachd-agent.{host.name}", names)
        for name in names:
            self.assertRegex(
                name, r"\A(attachd-agent-manager|attachd-agent\.host-|reply_host-[0-9a-f]{8}_)"
            )
