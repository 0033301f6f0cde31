# SPDX-License-Identifier: Apache-2.0
"""The thread that sends notifications: order, losses, ends."""

import os
import socket
import threading
import time
from unittest import mock

from oslo_context import context as oslo_context
import oslo_messaging as messaging
from oslo_messaging.transport import NotificationTransport

from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.notifications import sender
from attachd.tests.fixtures import captured_notifications, conf_fixture
from attachd.tests.wait import TIMEOUT, wait_until

LOGGER = "attachd.notifications.sender"


class Case(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.notifications = captured_notifications.use(self)

    def send(self, kind="volume.attach.start", about="v1", payload=None, **more):
        made = {"x": 1} if payload is None else payload
        build = made if callable(made) else (lambda: made)
        sender.send(sender.Event(kind, about, "volume.here", build, **more))

    def hold(self):
        """Keep the sender busy until the returned event is set."""
        go, busy = threading.Event(), threading.Event()

        def slow():
            busy.set()
            go.wait(TIMEOUT)
            return {}

        self.send("volume.slow", "v0", slow)
        busy.wait(TIMEOUT)
        self.addCleanup(go.set)
        return go


class EnabledTest(Case):
    def test_enabled_without_driver_or_with_noop_is_false(self):
        for drivers, expected in (([], False), (["noop"], False), (["noop", "log"], True)):
            with self.subTest(drivers):
                CONF.set_override("driver", drivers, group=sender.GROUP)
                sender.enabled.cache_clear()
                self.assertIs(expected, sender.enabled())

    def test_stop_without_notifications_leaves_no_thread(self):
        before = threading.active_count()
        sender.stop()
        self.assertEqual(before, threading.active_count())


class SendingTest(Case):
    def test_notifications_arrive_complete_and_in_order(self):
        for number in range(50):
            self.send(f"volume.x{number}", payload={"n": number})
        found = self.notifications.messages()
        self.assertEqual(list(range(50)), [item["payload"]["n"] for item in found])
        self.assertEqual({"volume.here"}, {item["publisher_id"] for item in found})
        self.assertEqual({"INFO"}, {item["priority"] for item in found})

    def test_notification_has_priority_of_event(self):
        self.send(priority="error")
        self.assertEqual("ERROR", self.notifications.messages()[0]["priority"])

    def test_send_does_not_wait_for_delivery(self):
        go = self.hold()
        self.send()
        self.assertEqual(0, sender._get_sender().sent, "it would have been the second one")
        go.set()
        self.assertEqual(2, len(self.notifications.event_types()))

    def test_notification_context_has_user_and_no_token(self):
        RequestContext(user_id="u", project_id="p", auth_token="secret", roles=["member"])
        self.addCleanup(setattr, oslo_context._request_store, "context", None)
        self.send()
        (context,) = self.notifications.contexts()
        self.assertEqual(("u", "p"), (context["user_id"], context["project_id"]))
        self.assertIn("request_id", context)
        self.assertNotIn("secret", str(context))

    def test_notification_without_request_has_empty_context(self):
        oslo_context._request_store.context = None
        self.send()
        self.assertEqual([{}], self.notifications.contexts())

    def test_timestamp_is_time_of_event_and_not_of_delivery(self):
        CONF.set_override("driver", ["messagingv2"], group=sender.GROUP)
        sent = []
        with mock.patch.object(
            NotificationTransport, "_send_notification", lambda *args, **_: sent.append(args)
        ):
            go = self.hold()
            before = str(sender.now())
            self.send("volume.later")
            after = sender.now()
            wait_until(lambda: sender.now() > after)
            go.set()
            sender.stop()
        (_self, target, _context, message, *_rest) = sent[-1]
        self.assertEqual("notifications.info", target.topic)
        self.assertTrue(before <= message["timestamp"] <= str(after), message["timestamp"])


class LossTest(Case):
    def lost(self, logged):
        return [record.getMessage() for record in logged.records]

    def test_full_queue_drops_last_notification(self):
        self.enterContext(mock.patch.object(sender, "QUEUE_SIZE", 2))
        go = self.hold()
        self.send("volume.one")
        self.send("volume.two")
        with self.assertLogs(LOGGER, "ERROR") as logged:
            self.send("volume.three", "v3")
        self.assertEqual(
            ["Notification volume.three of v3 is lost, 1 so far: the queue is full"],
            self.lost(logged),
        )
        go.set()
        self.assertEqual(
            ["volume.slow", "volume.one", "volume.two"], self.notifications.event_types()
        )

    def test_end_of_lost_start_is_dropped(self):
        self.enterContext(mock.patch.object(sender, "QUEUE_SIZE", 1))
        go = self.hold()
        self.send("volume.other", "v9")
        with self.assertLogs(LOGGER, "ERROR") as logged:
            self.send("volume.attach.start", "v1")
            go.set()
            self.assertEqual(["volume.slow", "volume.other"], self.notifications.event_types())
            self.enterContext(mock.patch.object(sender, "QUEUE_SIZE", 10))
            found = sender._get_sender()
            found._losses.add(sender.Event("volume.attach.start", "v2", "p", dict), "why")
            self.send("volume.attach.end", "v2")
            self.send("volume.detach.end", "v2")
            self.send("volume.attach.end", "v2")
            self.assertEqual(
                ["volume.detach.end", "volume.attach.end"], self.notifications.event_types()[2:]
            )
        self.assertIn(
            "attach.end of v2 is lost, 2 so far: its start was lost", self.lost(logged)[-1]
        )

    def test_number_of_remembered_lost_starts_is_limited(self):
        losses = sender._LostNotifications()
        with self.assertLogs(LOGGER, "ERROR"), mock.patch.object(sender, "_MAX_REMEMBERED", 2):
            for about in "abc":
                losses.add(sender.Event("volume.attach.start", about, "p", dict), "why")
        self.assertEqual(2, len(losses._lost_starts))

    def test_failing_payload_is_lost_and_next_is_sent(self):
        def broken():
            raise KeyError("gone")

        with self.assertLogs(LOGGER, "ERROR") as logged:
            self.send("volume.broken", "v1", broken)
            self.send("volume.fine")
            self.assertEqual(["volume.fine"], self.notifications.event_types())
        self.assertIn("volume.broken of v1 is lost, 1 so far: KeyError", self.lost(logged)[0])

    def use_message_queue(self, retry, **answers):
        """Replace the transport of oslo.messaging; return its mock."""
        CONF.set_override("driver", ["messagingv2"], group=sender.GROUP)
        conf_fixture.override(self, "retry", retry, sender.GROUP)
        return self.enterContext(
            mock.patch.object(NotificationTransport, "_send_notification", **answers)
        )

    def test_library_retries_as_often_as_configured(self):
        for configured, expected in ((-1, None), (0, 0), (2, 2)):
            send = self.use_message_queue(configured)
            self.send("volume.a", "v1")
            sender.stop()
            self.assertEqual(expected, send.call_args.kwargs["retry"])

    def test_first_connection_is_retried(self):
        # A port that is bound, and refuses connections until it listens.
        server = socket.socket()
        self.addCleanup(server.close)
        server.bind(("127.0.0.1", 0))
        url = f"rabbit://guest:guest@127.0.0.1:{server.getsockname()[1]}/"
        CONF.set_override("driver", ["messagingv2"], group=sender.GROUP)
        conf_fixture.override(self, "transport_url", url, sender.GROUP)
        conf_fixture.override(self, "flush_timeout", 0, "notifications")
        self.send("volume.a", "v1")
        with self.assertLogs("oslo.messaging._drivers.impl_rabbit", "ERROR") as logged:
            wait_until(lambda: len(logged.records) > 1)
        self.assertEqual(0, sender._get_sender().lost)
        with self.assertLogs(LOGGER, "ERROR") as logged:
            sender.stop()
        self.assertIn("volume.a of v1 is lost, 1 so far: the process ends", logged.output[0])

    def test_lost_notification_is_logged_without_payload(self):
        self.use_message_queue(0, side_effect=messaging.MessageDeliveryFailure("no broker"))
        with self.assertLogs(level="ERROR") as logged:
            self.send("volume.a", "v1", {"word": "private"})
            sender.stop()
        self.assertEqual(1, len(logged.records))
        self.assertIn("volume.a of v1 is lost", logged.output[0])
        self.assertIn("MessageDeliveryFailure: no broker", logged.output[0])
        self.assertNotIn("private", logged.output[0])

    def test_failure_of_other_threads_is_logged_by_oslo_messaging(self):
        self.use_message_queue(0, side_effect=[None, OSError("foreign")])
        self.send("volume.a", "v1")
        sender.stop()
        transport = messaging.get_notification_transport(CONF)
        notifier = messaging.Notifier(transport, driver="messagingv2", publisher_id="p")
        with self.assertLogs("oslo_messaging.notify.messaging", "ERROR"):
            notifier.info({}, "a.b", {})

    def test_failure_of_one_driver_does_not_stop_the_others(self):
        self.use_message_queue(0, side_effect=OSError("reset"))
        CONF.set_override("driver", ["messagingv2", "test"], group=sender.GROUP)
        with self.assertLogs(LOGGER, "ERROR"):
            self.send("volume.a", "v1")
            self.assertEqual(["volume.a"], self.notifications.event_types())

    def test_unknown_driver_is_logged_and_nothing_sent(self):
        CONF.set_override("driver", ["test", "carrier-pigeon"], group=sender.GROUP)
        with self.assertLogs(LOGGER, "ERROR") as logged:
            self.send()
            self.assertEqual([], self.notifications.event_types())
        self.assertIn("there is no driver carrier-pigeon", logged.output[0])


class FlushTest(Case):
    def flush(self, seconds=TIMEOUT):
        """Return whether flush() ended before its timeout."""
        started = time.monotonic()
        with mock.patch.object(sender, "FLUSH_WAIT", seconds):
            sender.flush()
        return time.monotonic() - started < seconds

    def test_flush_waits_until_all_is_sent(self):
        go = self.hold()
        threading.Timer(0.05, go.set).start()
        self.send("volume.one")
        self.assertTrue(self.flush())
        self.assertEqual(2, sender._get_sender().sent)

    def test_flush_returns_after_timeout(self):
        self.hold()
        self.assertFalse(self.flush(0.05))  # slow, what is held goes no sooner
        self.assertEqual(0, sender._get_sender().sent)

    def test_flush_with_nothing_to_send_returns_at_once(self):
        sender.flush()
        self.assertIsNone(sender._sender)
        self.send()
        self.assertTrue(self.flush())
        self.assertTrue(self.flush())

    def test_flush_does_not_wait_for_stuck_message_queue(self):
        self.hold()
        self.send("volume.one")
        sender._get_sender()._sending_since -= 2 * TIMEOUT
        self.assertTrue(self.flush())


class EndTest(Case):
    def test_stop_after_timeout_logs_unsent_as_lost(self):
        # What is held goes no sooner on a slow machine.
        conf_fixture.override(self, "flush_timeout", 0.2, "notifications")
        go = self.hold()
        self.send("volume.one", "v1")
        self.send("volume.two", "v2")
        found = sender._get_sender()
        with self.assertLogs(LOGGER, "ERROR") as logged:
            sender.stop()
        self.assertTrue(found._thread.is_alive(), "it is not waited for")
        logged_messages = [record.getMessage() for record in logged.records]
        self.assertEqual(3, found.lost)
        self.assertEqual(3, len(logged_messages))
        self.assertIn("volume.two of v2 is lost, 3 so far: the process ends", logged_messages[-1])
        go.set()
        found._thread.join(TIMEOUT)
        self.assertEqual(0, found.sent)

    def test_stop_with_full_queue_keeps_timeout(self):
        self.enterContext(mock.patch.object(sender, "QUEUE_SIZE", 1))
        conf_fixture.override(self, "flush_timeout", 0.2, "notifications")
        self.hold()
        self.send("volume.one", "v1")
        thread = sender._get_sender()._thread
        with (
            self.assertLogs(LOGGER, "ERROR") as logged,
            mock.patch.object(thread, "join", wraps=thread.join) as join,
        ):
            sender.stop()
        join.assert_called_once_with(0.0)  # the queue was waited for all the time that there is
        self.assertEqual(2, len(logged.records))

    def test_send_after_stop_starts_again(self):
        self.send("volume.one")
        sender.stop()
        self.send("volume.two")
        self.assertEqual(["volume.one", "volume.two"], self.notifications.event_types())

    def test_forked_process_has_its_own_sender(self):
        self.send("volume.one")
        first = sender._get_sender()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, b"new" if sender._sender is None else b"old")
            os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(b"new", os.read(reading, 3))
        os.close(reading)
        os.close(writing)
        self.assertIs(first, sender._get_sender())


class LibraryTest(Case):
    """Behaviour of oslo.messaging on which sender.py relies."""

    def test_message_has_keys_and_context_of_notifier(self):
        context = RequestContext(user_id="u", project_id="p", roles=["member"])
        self.addCleanup(setattr, oslo_context._request_store, "context", None)
        self.send()
        sender.stop()
        transport = messaging.get_notification_transport(CONF)
        messaging.Notifier(transport, driver="test", publisher_id="volume.here").info(
            context, "volume.attach.start", {"x": 1}
        )
        ours, theirs = self.notifications.messages()
        for changing in ("message_id", "timestamp"):
            self.assertEqual(len(ours.pop(changing)), len(theirs.pop(changing)))
        self.assertEqual(theirs, ours)
