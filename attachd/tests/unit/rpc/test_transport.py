# SPDX-License-Identifier: Apache-2.0

import contextlib
import inspect
import os
import socket
import threading
import time
from types import MappingProxyType
import unittest
from unittest import mock
import uuid

import oslo_messaging as messaging
from oslo_messaging._drivers import amqpdriver, common
from oslo_utils import timeutils
from oslo_versionedobjects import fields, fixture

from attachd import exception, objects
from attachd.context import RequestContext
from attachd.objects import serializer
from attachd.rpc import deadlines, transport
from attachd.tests.fixtures import conf_fixture, rpc_clients
from attachd.tests.wait import TIMEOUT


class SerializerTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.serializer = transport.Serializer()

    def test_context_survives_serialization_without_token(self):
        context = RequestContext(
            user_id="u",
            project_id="p",
            roles=["admin", "member"],
            is_admin=True,
            system_scope="all",
            domain_id="d",
            user_domain_id="ud",
            project_domain_id="pd",
            global_request_id="req-" + str(uuid.uuid4()),
            auth_token="secret",
            resource_uuid="v",
        )
        sent = self.serializer.serialize_context(context)
        self.assertNotIn("secret", repr(sent))
        rebuilt = self.serializer.deserialize_context(sent)
        self.assertIsInstance(rebuilt, RequestContext)
        self.assertEqual({**context.to_dict(), "auth_token": None}, rebuilt.to_dict())

    def test_empty_context_serializes_to_request_id(self):
        sent = self.serializer.serialize_context(RequestContext(overwrite=False))
        self.assertEqual({"request_id"}, set(sent))


def received(message, waited=0.0, reply_q="reply"):
    """Return a message as a driver delivers it."""
    stopwatch = mock.Mock(elapsed=lambda: waited)
    return mock.Mock(
        message=message, ctxt={}, client_timeout=None, reply_q=reply_q, stopwatch=stopwatch
    )


class DispatcherTest(unittest.TestCase):
    """Answers to callers of former releases."""

    def test_dispatch_answers_with_objects_of_callers_contract(self):
        registry = fixture.VersionedObjectRegistryFixture()
        registry.setUp()
        self.addCleanup(registry.cleanUp)
        raised = {"1.0": {"Disk": "1.0"}, "1.3": {"Disk": "1.1"}, "1.4": {"Disk": "1.2"}}
        self.enterContext(mock.patch.object(serializer, "_RAISED", raised))

        @objects.Registry.register
        class Disk(objects.AttachdObject):
            VERSION = "1.2"
            ADDED = MappingProxyType({"key": "1.2"})
            fields = {name: fields.StringField() for name in ("id", "key")}

        class Endpoint:
            target = messaging.Target(version="1.9")

            def ask(self, _context):
                return [Disk(id="v", key="k")]

        dispatcher = transport.Dispatcher(Endpoint())
        for said, version in (("1.0", "1.0"), ("1.3", "1.1"), ("1.9", "1.2"), (None, "1.0")):
            message = {"method": "ask"} if said is None else {"method": "ask", "version": said}
            (answer,) = dispatcher.dispatch(received(message))
            self.assertEqual(version, answer["attachd_object.version"], said)
            self.assertEqual(version == "1.2", "key" in answer["attachd_object.data"], said)

    def test_dispatch_rebuilds_only_object_arguments(self):
        class Endpoint:
            target = messaging.Target(version="1.0")

            def ask(self, _context, volume, connector):
                return [volume.id, connector]

        volume = objects.Volume(id="v")
        primitive = transport.Serializer().serialize_entity(None, volume)
        message = {"method": "ask", "args": {"volume": primitive, "connector": primitive}}
        answer = transport.Dispatcher(Endpoint()).dispatch(received(message))
        self.assertEqual(["v", primitive], answer)

    def test_dispatch_of_newer_version_raises_unsupported_version(self):
        dispatcher = transport.Dispatcher(mock.Mock(target=messaging.Target(version="1.9")))
        message = {"method": "ask", "version": "1.10"}
        with self.assertRaises(messaging.UnsupportedVersion):
            dispatcher.dispatch(received(message))


class ClientTest(unittest.TestCase):
    def test_remote_error_has_original_class_and_message(self):
        rpc_clients.use_transport(self)
        error = exception.VolumeNotFound(volume_id="v")
        text = common.serialize_remote_exception((type(error), error, None))
        remote = common.deserialize_remote_exception(text, [exception.__name__])
        self.assertNotEqual(str(error), str(remote), "oslo.messaging is better now: simplify")
        with self.assertRaises(exception.VolumeNotFound) as caught:
            transport.Client(mock.Mock(call=mock.Mock(side_effect=remote))).call({}, "m")
        self.assertIs(exception.VolumeNotFound, type(caught.exception))
        self.assertEqual("Volume v could not be found.", str(caught.exception))

    def test_get_client_again_returns_same_client(self):
        rpc_clients.use_transport(self)
        self.assertIs(transport.get_client("h@b", 5, "1.0"), transport.get_client("h@b", 5, "1.0"))
        self.assertIsNot(
            transport.get_client("h@b", 5, "1.0"), transport.get_client("h@c", 5, "1.0")
        )

    def test_client_can_send_versions_up_to_its_own(self):
        rpc_clients.use_transport(self)
        for client in (transport.get_client("h@b", 5, "1.9"), transport.get_fanout_client("1.9")):
            self.assertTrue(client.can_send_version("1.9"))
            self.assertFalse(client.can_send_version("1.10"))

    def test_get_transport_again_returns_same_transport(self):
        rpc_clients.use_transport(self)
        self.assertIs(transport.get_transport(), transport.get_transport())

    def test_forked_process_has_its_own_transport_and_clients(self):
        rpc_clients.use_transport(self)
        before = (transport.get_transport(), transport.get_client("h@b", 5, "1.0"))
        child = os.fork()
        if not child:
            after = (transport.get_transport(), transport.get_client("h@b", 5, "1.0"))
            os._exit(sum(old is new for old, new in zip(before, after, strict=True)))
        self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        self.assertIs(before[0], transport.get_transport())

    def test_unreachable_message_queue_raises_delivery_failure(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        rpc_clients.use_transport(self, f"rabbit://guest:guest@127.0.0.1:{port}/")
        # Not by the time that a caller waits for an answer, which ends with another error.
        client = transport.get_client("h@b", TIMEOUT, "1.0")
        context = RequestContext(overwrite=False)
        for send in (client.call, client.cast):
            with self.assertRaises(messaging.MessageDeliveryFailure):
                send(context, "method")


class LateCallTest(unittest.TestCase):
    """Calls that wait in the server for longer than their callers do."""

    def setUp(self):
        super().setUp()
        conf_fixture.override(self, "attach_timeout", 10, "rpc")
        self.done = []

    def note(self, _context, name):
        self.done.append(name)

    def dispatch(self, name, waited, reply_q="reply", **options):
        """Dispatch one message; return it."""
        incoming = received({"method": "note", "args": {"name": name}}, waited, reply_q)
        transport.Dispatcher(self, **options).dispatch(incoming)
        return incoming

    def test_call_with_timed_out_caller_is_dropped_without_reply(self):
        with self.assertLogs("attachd.rpc.transport", "WARNING") as logged:
            incoming = self.dispatch("late", 10.1)
        self.assertEqual([], self.done)
        self.assertIn("note is dropped", logged.output[0])
        incoming.reply(None)
        self.assertEqual([], incoming.mock_calls)

    def test_call_with_waiting_caller_is_dispatched(self):
        self.dispatch("call", 9.9)
        self.assertEqual(["call"], self.done)

    def test_late_cast_is_dispatched(self):
        self.dispatch("cast", 10.1, None)
        self.assertEqual(["cast"], self.done)

    def test_call_with_longer_caller_timeout_is_dispatched(self):
        self.dispatch("call", 10.1, caller_timeout=60)
        self.assertEqual(["call"], self.done)

    def test_call_that_waited_longer_than_its_sender_does_is_dropped(self):
        incoming = received({"method": "note", "args": {"name": "late"}}, 4.1)
        incoming.ctxt["answer_within"] = 4
        with self.assertLogs("attachd.rpc.transport", "WARNING"):
            transport.Dispatcher(self).dispatch(incoming)
        self.assertEqual([], self.done)

    def test_call_may_wait_for_other_work_as_long_as_its_sender_waits(self):
        left = []
        self.note = lambda _context, name: left.append((name, deadlines.seconds_left()))
        for sent, name in ((8, "sent"), ("x", "default"), (None, "cast")):
            incoming = received({"method": "note", "args": {"name": name}}, 2)
            incoming.ctxt["answer_within"] = sent
            incoming.reply_q = sent
            transport.Dispatcher(self).dispatch(incoming)
        names, seconds = zip(*left, strict=True)
        self.assertEqual(("sent", "default", "cast"), names)
        self.assertEqual([6, 8, 10], [round(value) for value in seconds])

    def test_rabbitmq_message_has_arrival_time_and_reply_queue(self):
        made = [
            amqpdriver.AMQPIncomingMessage(None, {}, {}, "u", msg_id, reply_q, None, None, None)
            for msg_id, reply_q in (("m", "reply_1"), (None, None))
        ]
        self.assertEqual(["reply_1", None], [incoming.reply_q for incoming in made])
        self.assertLess(made[0].stopwatch.elapsed(), TIMEOUT)


class LateCallServerTest(unittest.TestCase):
    """A server with one thread, which the test keeps busy, over the in-process transport."""

    def setUp(self):
        super().setUp()
        rpc_clients.use_transport(self)
        self.busy, self.free = threading.Event(), threading.Event()
        self.addCleanup(self.free.set)
        self.passed = 0.0
        self.enterContext(
            mock.patch.object(timeutils, "now", lambda: time.monotonic() + self.passed)
        )
        self.done = []
        self.context = RequestContext(overwrite=False)

    def occupy(self, _context):
        self.busy.set()
        self.free.wait(TIMEOUT)

    def note(self, _context, name):
        self.done.append(name)

    def serve(self):
        """Start a server, and keep its thread busy."""
        server = transport.get_server(self, "h@b")
        server.start(override_pool_size=1)
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        # So short because the call below has to time out while the server is busy.
        client = transport.get_client("h@b", timeout=0.1, version="1.0")
        client.cast(self.context, "occupy")
        self.assertTrue(self.busy.wait(TIMEOUT))
        with self.assertRaises(messaging.MessagingTimeout):
            client.call(self.context, "note", name="late call")
        client.cast(self.context, "note", name="late cast")
        self.passed = 1.0  # longer than the caller waited, much shorter than attach_timeout

    def finish(self):
        """Make the server's thread process the messages that wait."""
        self.free.set()
        transport.get_client("h@b", TIMEOUT, "1.0").call(self.context, "note", name="call")
        return self.done

    def test_busy_server_drops_late_call_and_executes_late_cast(self):
        self.serve()
        with self.assertLogs("attachd.rpc.transport", "WARNING") as logged:
            self.assertEqual(["late cast", "call"], self.finish())
        self.assertIn("note is dropped", logged.output[0])


class PollIntervalTest(unittest.TestCase):
    """Pins the names of oslo.messaging that transport._set_poll_interval() uses."""

    def test_set_poll_interval_changes_constant_of_oslo_messaging(self):
        transport._set_poll_interval()
        self.assertEqual(transport.POLL_INTERVAL, amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MIN)
        self.assertLess(transport.POLL_INTERVAL, amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MAX)

    def test_waiter_for_answers_pauses_after_failures(self):
        conn, waits = mock.Mock(), []
        Timeout = transport.rpc_common.Timeout  # noqa: N806
        conn.consume.side_effect = [OSError, OSError, Timeout, OSError, None, OSError]
        kind = transport._PausingReplyWaiter
        waiter = kind.__new__(kind)
        waiter.waiters = amqpdriver.ReplyWaiters()
        with mock.patch.object(kind.__base__, "__init__", return_value=None):
            waiter.__init__("reply", conn, [])
        with self.assertNoLogs("oslo_messaging", "WARNING"):  # of calls that are in progress
            for number in range(transport.LEAK):
                waiter.waiters.add(f"{number}")
        with self.assertLogs("oslo_messaging", "WARNING"):
            waiter.waiters.add("one more")
        waiter._stopping = mock.Mock(wait=waits.append)
        for expected in (OSError, OSError, Timeout, OSError, None, OSError):
            with contextlib.ExitStack() as stack:
                if expected:
                    stack.enter_context(self.assertRaises(expected))
                conn.consume(timeout=TIMEOUT)
        self.assertEqual([1, 2, 1, 1], waits)

    def test_waiter_whose_queue_is_refused_closes_its_connection(self):
        conn = mock.Mock()
        conn.declare_direct_consumer.side_effect = messaging.MessageDeliveryFailure("queue limit")
        with self.assertRaises(messaging.MessageDeliveryFailure):
            transport._PausingReplyWaiter("reply", conn, [])
        conn.close.assert_called_once_with()

    def test_oslo_messaging_polls_each_millisecond_by_default(self):
        source = inspect.getsource(amqpdriver)
        self.assertIn("ACK_REQUEUE_EVERY_SECONDS_MIN = 0.001", source)
        self.assertIn("timeout=current_timeout", source)

    def test_rpc_messages_are_acknowledged_at_arrival(self):
        message = mock.Mock()
        with mock.patch.object(amqpdriver.AMQPListener, "__call__"):
            amqpdriver.RpcAMQPListener(mock.Mock(), mock.Mock())(message)
        message.acknowledge.assert_called_once_with()
        kind = amqpdriver.RpcAMQPListener.message_cls
        self.assertIsNone(kind.acknowledge(None))
        self.assertIsNone(kind.requeue(None))


class ExpectedErrorsTest(unittest.TestCase):
    def test_expected_errors_returns_attachd_errors_and_raises_others(self):
        @transport.expected_errors
        def fail(error):
            """Fail."""
            raise error

        with self.assertRaises(messaging.ExpectedException):
            fail(exception.Conflict(reason="x"))
        with self.assertRaises(ZeroDivisionError):
            fail(ZeroDivisionError())
        self.assertEqual(("fail", "Fail."), (fail.__name__, fail.__doc__))
