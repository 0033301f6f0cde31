# SPDX-License-Identifier: Apache-2.0
"""A host that has been taken over sends messages that no agent sends.

Its account has the rights of the guide.  The server for agents has to answer the agents of other
hosts all the same.
"""

import bz2
import codecs
import json
import lzma
import resource
import threading
import time
from typing import Any
import unittest
from urllib import parse
import zlib

import amqp  # type: ignore[import-untyped]
import oslo_messaging as messaging

from attachd import exception, service
from attachd.conf import CONF
from attachd.rpc import (
    admission,
    agent_manager_api,
    agent_transport,
    host_queues,
    received,
    transport,
)
from attachd.tests.fixtures import conf_fixture, databases, fake_agent, rabbitmq
from attachd.tests.functional.test_agent_accounts import (
    CALLS,
    HOST,
    OTHER_HOST,
    OWN,
    Registry,
    add_account,
    with_account,
)
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

THREADS = 2
"""Of the server for agents."""

COUNT = 40 * THREADS
"""Number of messages of an attack; if each stopped a thread for some seconds, no answer came."""

CALL = {
    "method": "desired_state",
    "version": agent_manager_api.VERSION,
    "args": {
        "host": OTHER_HOST,
        "key": "k" * 43,
        "process": fake_agent.PROCESS,
        "attachment_id": "a",
    },
}


def envelope(**message):
    """Return the body of a message of oslo.messaging."""
    return json.dumps({"oslo.version": "2.0", "oslo.message": json.dumps(message)})


def call(number, **message):
    """Return a body that calls as another host, for an answer into a queue that is missing."""
    reply = {"_msg_id": f"{number:032x}", "_reply_q": f"reply_{OTHER_HOST}_{number % 16:x}"}
    return envelope(**{**CALL, **reply, **message})


class KeyedRegistry(Registry):
    """Stands in for the server of agents, and knows one key."""

    @transport.expected_errors
    def desired_state(self, _context, host, key, process, attachment_id):
        """See agent_manager_api.desired_state()."""
        if key != fake_agent.KEY:
            raise exception.Forbidden("The key is wrong.")
        return [host, key, attachment_id]


ODD_VOLUME = {"volume": {"attachd_object.data": 1}}

WRONG_VALUES: dict[str, tuple[Any, ...]] = {
    "args": ([1], None, {}, {"host": 1}, {"host": "h" * 1_000_000}, ODD_VOLUME),
    "method": (1, None, "__init__", "target", "_check"),
    "namespace": ({}, "x"),
    "version": ([1], "x", 7, {}),
    "_context_conf": ([1],),
    "_context_request_id": ([1], "a\nb"),
    "_context_roles": ([1], 7),
    "_context_self": (1,),
    "_msg_id": ([1], {}, 7),
    "_reply_q": ([1], {"a": 1}, 7, "", "x"),
    "_timeout": ("x", [1], 1e300, float("inf"), -1),
    "_unique_id": ([1], {}, 7),
}
"""By the parts of a message."""

MALFORMED = (
    b"",
    b"\xff",
    b"[" * 200_000,
    b"[]",
    b"1",
    b'{"oslo.version": "2.0", "oslo.message": "[1]"}',
    b'{"oslo.version": 2, "oslo.message": "{}"}',
    envelope(),
    *(call(1, **{name: value}) for name, values in WRONG_VALUES.items() for value in values),
)


@full_only("agents")
class AttackTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        databases.use(self)
        CONF([], project="attachd", default_config_files=[])
        url = rabbitmq.create_agents_vhost(self)
        messaging.set_transport_defaults(service.EXCHANGE)
        messaging.TransportURL(CONF)
        conf_fixture.override(self, "transport_url", url, "agent")
        transport.reset_after_fork()
        self.addCleanup(transport.close)
        queues = host_queues.HostQueues()
        server = agent_transport.get_registry_server(KeyedRegistry(), TIMEOUT, queues)
        server.start(override_pool_size=THREADS)
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        queues.serve([HOST, OTHER_HOST])
        account = add_account(self, parse.urlsplit(url).path[1:])
        self.channel = rabbitmq.connect(self, with_account(url, account))()
        self.channel.exchange_declare(OWN, "topic", durable=True, auto_delete=False)
        self.assert_other_host_is_answered()
        self.channel.queue_bind(CALLS, OWN, CALLS)

    def send(self, body, **properties):
        """Send a message to the server for agents."""
        form = {"content_type": "application/json", "content_encoding": "utf-8"} | properties
        body = body.encode() if isinstance(body, str) else body
        self.channel.basic_publish(amqp.Message(body, **form), OWN, CALLS)

    def assert_other_host_is_answered(self):
        """Call the server as the agent of another host, which waits for half a minute."""
        credentials = fake_agent.get_credentials(OTHER_HOST)
        answer = agent_manager_api.desired_state(credentials, "a1")
        self.assertEqual([*credentials[:2], "a1"], answer)

    def test_missing_reply_queues_delay_no_other_host(self):
        for number in range(COUNT):
            self.send(call(number))
        self.assert_other_host_is_answered()

    def test_full_reply_queue_delays_no_other_host(self):
        queue = f"reply_{HOST}_0"
        full = {"x-max-length": 0, "x-overflow": "reject-publish"}
        self.channel.queue_declare(queue, arguments=full, auto_delete=False)
        arguments = {**CALL["args"], "host": HOST, "key": fake_agent.KEY}
        for number in range(COUNT):
            self.send(call(number, args=arguments, _reply_q=queue))
        self.assert_other_host_is_answered()
        # Else the answer would be repeated until the process ends.
        self.channel.queue_delete(queue)

    def test_malformed_messages_delay_no_other_host(self):
        for body in MALFORMED:
            for form in ({}, {"content_type": "text/plain"}, {"content_type": "application/x"}):
                self.send(body, **form)
        for number in range(COUNT):
            self.send(call(number, _context_self=1))
        self.assert_other_host_is_answered()

    def test_unreadable_properties_and_keys_delay_no_other_host(self):
        self.channel.queue_bind(CALLS, OWN, "#")
        for name in ("content_type", "content_encoding", "message_id", "app_id"):
            self.send(call(1), **{name: b"\xff\xfe"})
        for key in (b"\xff", b"a" * 254 + b"\xff", b""):
            self.channel.basic_publish(amqp.Message(call(2)), OWN, key)
        nested: dict[str, Any] = {}
        for _ in range(400):
            nested = {"": nested}
        self.send(call(3), application_headers=nested)
        self.assert_other_host_is_answered()

    def test_message_beyond_all_limits_is_not_kept(self):
        peak = peak_memory()
        body = bytes(6 * received.MAX_SIZE)
        for _ in range(2):
            self.send(body)
        self.assert_other_host_is_answered()
        # The test itself has one copy of the body.
        self.assertLess(peak_memory() - peak, 2.5 * len(body))

    def test_heartbeats_of_unknown_methods_leave_no_threads(self):
        queue = f"reply_{HOST}_0"
        self.channel.queue_declare(queue, auto_delete=False)
        before = threading.active_count()
        for number in range(COUNT):
            arguments = {"host": HOST}
            self.send(call(number, method="x", args=arguments, _timeout=10**6, _reply_q=queue))
        self.assert_other_host_is_answered()
        wait_until(lambda: threading.active_count() < before + COUNT // 2, threading.enumerate)

    def test_compressed_messages_do_not_fill_memory(self):
        plain = bytes(2**27)
        peak = peak_memory()
        for name, packed in (
            ("zlib", zlib.compress(plain)),
            ("bzip2", bz2.compress(plain)),
            ("xz", lzma.compress(plain, preset=0)),
        ):
            for _ in range(3):
                self.send(packed, application_headers={"compression": name})
        self.send(
            codecs.encode(plain, "bz2_codec"), content_type="x", content_encoding="bz2_codec"
        )
        self.assert_other_host_is_answered()
        self.assertLess(peak_memory() - peak, len(plain))

    def test_texts_where_bytes_are_expected_wait_for_the_budget_of_the_host(self):
        """amqp would decode them, and each failed with a traceback beside the budget."""
        form: dict[str, Any] = {"application_headers": {"compression": "application/x-gzip"}}
        with self.assertLogs("attachd.rpc", "WARNING") as logs:
            for _ in range(4 * int(admission.BURST)):
                self.send("[]", **form, content_encoding="latin-1")
            self.assert_other_host_is_answered()
        self.assertNotIn("Traceback", "".join(logs.output))
        self.assertIn("form: 1", "".join(logs.output))
        # It drops none of them by itself while the host has no budget.
        waiting = self.channel.queue_declare(CALLS, passive=True).message_count
        self.assertGreater(waiting, admission.BURST)

    def test_slow_codecs_of_senders_are_not_used(self):
        before = time.process_time()
        for _ in range(4):
            # Punycode takes seconds for it.
            self.send(b"-" + b"aa" * 400_000, content_encoding="punycode")
        self.assert_other_host_is_answered()
        self.assertLess(time.process_time() - before, 4)

    def test_large_message_is_refused(self):
        with self.assertLogs("attachd.rpc.admission", "WARNING") as logs:
            self.send(b'"' + bytes(admission.MAX_REPORT_SIZE) + b'"')
            self.send(b"[" + b"[]," * admission.MAX_REPORT_SIZE + b"[]]")
            self.assert_other_host_is_answered()
        self.assertIn("size: 1", "".join(logs.output))


def peak_memory():
    """Return the largest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
