# SPDX-License-Identifier: Apache-2.0
"""Both transports and an endpoint to call, for test_transports."""

import threading
from typing import ClassVar
from unittest import mock
import uuid

import kombu
import oslo_messaging as messaging

from attachd import exception, service
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.rpc import bulkheads, transport
from attachd.tests.fixtures import rabbitmq
from attachd.tests.wait import TIMEOUT, wait_until

VERSION = "1.3"


class Weird(Exception):
    """An unexpected error of an endpoint."""


class Endpoint:
    target = messaging.Target(version=VERSION)

    def __init__(self):
        self.seen = []
        self.contexts = []
        self.ended = []
        self.gate = threading.Event()
        self.stopped = threading.Event()
        self.running = threading.Semaphore(0)

    def echo(self, context, value):
        self.contexts.append(context)
        return value

    def note(self, _context, value):
        self.seen.append(value)

    def kinds(self, _context, volume, connector):
        return [type(value).__name__ for value in (volume, connector)]

    def outlast(self, _context):
        """Return after the server was stopped."""
        self.running.release()
        return "late" if self.stopped.wait(TIMEOUT) else None

    def wait(self, _context):
        self.running.release()
        passed = self.gate.wait(TIMEOUT)
        self.ended.append(passed)
        return passed

    def work(self, _context, volume_id):
        self.seen.append(volume_id)
        return self.wait(_context) if volume_id == "busy" else True

    def missing(self, _context):
        raise exception.VolumeNotFound(volume_id="v1")

    def refuse(self, _context):
        raise exception.Conflict("Not now. 100 % sure.")

    def weird(self, _context):
        raise Weird("odd")

    def key_error(self, _context):
        raise KeyError("k")

    def unsendable(self, _context):
        return object()

    def _private(self, _context):
        return "secret"


class Case:
    """Servers and clients on the transport that a subclass names."""

    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        messaging.set_transport_defaults(service.EXCHANGE)
        messaging.TransportURL(CONF)
        CONF.set_override("transport_url", self.transport_url())
        self.addCleanup(CONF.clear_override, "transport_url")
        topic = f"topic-{uuid.uuid4().hex}"
        self.enterContext(mock.patch.object(transport, "MANAGER_TOPIC", topic))
        # The machine may be slow, and is not silent then.
        self.enterContext(mock.patch.object(bulkheads, "OPEN_AFTER", TIMEOUT))
        transport.reset_after_fork()
        self.addCleanup(transport.close)
        self.context = RequestContext(
            user_id="u", project_id="p", roles=["member"], auth_token="secret"
        )

    def serve(self, name="host@backend", threads=4, endpoint=None):
        endpoint = endpoint or Endpoint()
        server = transport.get_server(endpoint, name)
        server.start(override_pool_size=threads)
        stopped = []

        def stop():
            endpoint.gate.set()
            if not stopped:
                stopped.append(True)
                server.stop()
                endpoint.stopped.set()
                server.wait()

        self.addCleanup(stop)
        endpoint.stop, endpoint.server = stop, server
        return endpoint

    def client(self, name="host@backend", timeout=TIMEOUT, version=VERSION):
        return transport.get_client(name, timeout, version)

    def call(self, method, timeout=TIMEOUT, **arguments):
        return self.client(timeout=timeout).call(self.context, method, **arguments)


class InProcess(Case):
    def until_it_has_expired(self):
        """Return at once: a message expires when its sender gives up."""

    def transport_url(self):
        return f"inprocess://{uuid.uuid4().hex}"


class RabbitMQ(Case):
    _url: ClassVar[str | None] = None

    def until_it_has_expired(self):
        """Wait until nothing is in the queue of a server, whose clock is the broker's."""
        with kombu.Connection(f"pyamqp{self._url.removeprefix('rabbit')}") as connection:
            channel = connection.channel()
            queue = f"{transport.MANAGER_TOPIC}.host@backend"
            wait_until(
                lambda: channel.queue_declare(queue, passive=True).message_count == 0,
                "the message to expire",
            )

    def transport_url(self):
        cls = type(self)
        if cls._url is None:
            cls._url = rabbitmq.create_vhost(self, cls.addClassCleanup)
        return cls._url
