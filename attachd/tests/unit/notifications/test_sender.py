# SPDX-License-Identifier: Apache-2.0
"""The thread that sends notifications: order, losses, ends."""

import os
import threading
import unittest
from unittest import mock

from kombu import exceptions as kombu_exceptions
from oslo_context import context as oslo_context
import oslo_messaging as messaging
from oslo_messaging.transport import NotificationTransport

from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.notifications import sender
from attachd.tests.fixtures import captured_notifications, conf_fixture
from attachd.tests.wait import TIMEOUT, wait_until

LOGGER = "attachd.notifications.sender"


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        CONF([], project="attachd", default_config_files=[])
        self.heard = captured_notifications.use(self)

    def tell(self, kind="volume.attach.start", about="v1", payload=None, **more):
        made = {"x": 1} if payload is None else payload
        build = made if callable(made) else (lambda: made)
        sender.send(sender.Event(kind, about, "volume.here", build, **more))

    def hold(self):
        """Keep the sender busy until what is returned is set."""
        go, busy = threading.Event(), threading.Event()

        def slow():
            busy.set()
            go.wait(TIMEOUT)
            return {}

        self.tell("volume.slow", "v0", slow)
        busy.wait(TIMEOUT)
        self.addCleanup(go.set)
        return go


class EnabledTest(Case):
    def test_without_a_driver_or_with_noop_nobody_listens(self):
        for drivers, expected in (([], False), (["noop"], False), (["noop", "log"], True)):
            with self.subTest(drivers):
                CONF.set_override("driver", drivers, group=sender.GROUP)
                sender.enabled.cache_clear()
                self.assertIs(expected, sender.enabled())

    def test_where_nobody_listens_there_is_no_thread(self):
        before = threading.active_count()
        sender.stop()
        self.assertEqual(before, threading.active_count())


class SendingTest(Case):
    def test_what_is_told_arrives_whole_and_in_order(self):
        for number in range(50):
            self.tell(f"volume.x{number}", payload={"n": number})
        found = self.heard.messages()
        self.assertEqual(list(range(50)), [each["payload"]["n"] for each in found])
        self.assertEqual({"volume.here"}, {each["publisher_id"] for each in found})
        self.assertEqual({"INFO"}, {each["priority"] for each in found})

    def test_it_has_its_priority(self):
        self.tell(priority="error")
        self.assertEqual("ERROR", self.heard.messages()[0]["priority"])

    def test_whoever_tells_something_does_not_wait(self):
        go = self.hold()
        self.tell()
        self.assertEqual(0, sender._get_sender().sent, "it would have been the second one")
        go.set()
        self.assertEqual(2, len(self.heard.event_types()))

    def test_it_says_who_asked_and_nothing_that_proves_it(self):
        RequestContext(user_id="u", project_id="p", auth_token="secret", roles=["member"])
        self.addCleanup(setattr, oslo_context._request_store, "context", None)
        self.tell()
        (context,) = self.heard.contexts()
        self.assertEqual(("u", "p"), (context["user_id"], context["project_id"]))
        self.assertIn("request_id", context)
        self.assertNotIn("secret", str(context))

    def test_where_nobody_asked_there_is_no_context(self):
        oslo_context._request_store.context = None
        self.tell()
        self.assertEqual([{}], self.heard.contexts())

    def test_its_time_is_when_it_was_told(self):
        CONF.set_override("driver", ["messagingv2"], group=sender.GROUP)
        sent = []
        with mock.patch.object(
            NotificationTransport, "_send_notification", lambda *args, **_: sent.append(args)
        ):
            go = self.hold()
            before = str(sender.now())
            self.tell("volume.later")
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

    def test_a_full_queue_loses_what_comes_last(self):
        conf_fixture.override(self, "queue_size", 2, "notifications")
        go = self.hold()
        self.tell("volume.one")
        self.tell("volume.two")
        with self.assertLogs(LOGGER, "ERROR") as logged:
            self.tell("volume.three", "v3")
        self.assertEqual(
            ["Notification volume.three of v3 is lost, 1 so far: the queue is full"],
            self.lost(logged),
        )
        go.set()
        self.assertEqual(["volume.slow", "volume.one", "volume.two"], self.heard.event_types())

    def test_nobody_hears_of_an_end_without_its_beginning(self):
        conf_fixture.override(self, "queue_size", 1, "notifications")
        go = self.hold()
        self.tell("volume.other", "v9")
        with self.assertLogs(LOGGER, "ERROR") as logged:
            self.tell("volume.attach.start", "v1")
            go.set()
            self.assertEqual(["volume.slow", "volume.other"], self.heard.event_types())
            CONF.set_override("queue_size", 10, "notifications")
            found = sender._get_sender()
            found._losses.add(sender.Event("volume.attach.start", "v2", "p", dict), "why")
            self.tell("volume.attach.end", "v2")
            self.tell("volume.detach.end", "v2")
            self.tell("volume.attach.end", "v2")
            self.assertEqual(
                ["volume.detach.end", "volume.attach.end"], self.heard.event_types()[2:]
            )
        self.assertIn("attach.end of v2 is lost, 2 so far: its beginning", self.lost(logged)[-1])

    def test_it_remembers_only_so_many_beginnings(self):
        losses = sender._LostNotifications()
        with self.assertLogs(LOGGER, "ERROR"), mock.patch.object(sender, "_MAX_REMEMBERED", 2):
            for about in "abc":
                losses.add(sender.Event("volume.attach.start", about, "p", dict), "why")
        self.assertEqual(2, len(losses._lost_starts))

    def test_what_cannot_be_put_together_does_not_stop_the_others(self):
        def broken():
            raise KeyError("gone")

        with self.assertLogs(LOGGER, "ERROR") as logged:
            self.tell("volume.broken", "v1", broken)
            self.tell("volume.fine")
            self.assertEqual(["volume.fine"], self.heard.event_types())
        self.assertIn("volume.broken of v1 is lost, 1 so far: KeyError", self.lost(logged)[0])

    def use_message_queue(self, retry):
        CONF.set_override("driver", ["messagingv2"], group=sender.GROUP)
        conf_fixture.override(self, "retry", retry, sender.GROUP)
        self.enterContext(mock.patch.object(sender, "LONGEST_PAUSE", 0.01))

    def test_what_the_message_queue_refuses_is_tried_again(self):
        self.use_message_queue(-1)
        refused = messaging.MessageDeliveryFailure("no broker")
        answers = [refused, OSError("reset"), kombu_exceptions.OperationalError("no"), None, None]
        with (
            mock.patch.object(
                NotificationTransport, "_send_notification", side_effect=answers
            ) as send,
            self.assertLogs(LOGGER, "WARNING") as logged,
        ):
            self.tell("volume.a", "v1")
            self.tell("volume.b", "v2")
            sender.stop()
        sent = [call.args[2] for call in send.call_args_list]
        self.assertEqual(["volume.a"] * 4 + ["volume.b"], [each["event_type"] for each in sent])
        self.assertEqual(2, len({each["message_id"] for each in sent}))
        self.assertEqual(
            ["Notifications are kept, the message queue refuses: no broker",
             "The message queue takes notifications again"],
            self.lost(logged),
        )  # fmt: skip

    def test_it_is_tried_as_often_as_is_configured(self):
        self.use_message_queue(2)
        refused = messaging.MessageDeliveryFailure("no broker")
        with (
            mock.patch.object(
                NotificationTransport, "_send_notification", side_effect=refused
            ) as send,
            self.assertLogs(LOGGER, "ERROR"),
        ):
            self.tell("volume.a", "v1")
            sender.stop()
        self.assertEqual(3, send.call_count)

    def test_what_will_never_be_sent_is_not_tried_again(self):
        self.use_message_queue(-1)
        with (
            mock.patch.object(
                NotificationTransport, "_send_notification", side_effect=TypeError("no JSON")
            ) as send,
            self.assertLogs(LOGGER, "ERROR"),
        ):
            self.tell("volume.a", "v1")
            sender.stop()
        self.assertEqual(1, send.call_count)

    def test_what_the_message_queue_refuses_is_lost_and_told_without_its_payload(self):
        self.use_message_queue(0)
        refused = messaging.MessageDeliveryFailure("no broker")
        with (
            mock.patch.object(NotificationTransport, "_send_notification", side_effect=refused),
            self.assertLogs(level="ERROR") as logged,
        ):
            self.tell("volume.a", "v1", {"word": "private"})
            sender.stop()
        self.assertEqual(1, len(logged.records))
        self.assertIn("volume.a of v1 is lost", logged.output[0])
        self.assertIn("notifications.info: MessageDeliveryFailure", logged.output[0])
        self.assertNotIn("private", logged.output[0])

    def test_a_driver_that_does_not_exist_loses_all_and_says_so(self):
        CONF.set_override("driver", ["test", "carrier-pigeon"], group=sender.GROUP)
        with self.assertLogs(LOGGER, "ERROR") as logged:
            self.tell()
            self.assertEqual([], self.heard.event_types())
        self.assertIn("names what is not there: carrier-pigeon", logged.output[0])


class SettleTest(Case):
    def flush(self, seconds=TIMEOUT):
        """Return whether it has ended before its time was up."""
        progress, ended = sender._get_sender()._progress, []
        real = progress.wait_for
        with (
            mock.patch.object(sender, "FLUSH_WAIT", seconds),
            mock.patch.object(progress, "wait_for", lambda *asked: ended.append(real(*asked))),
        ):
            sender.flush()
        return ended == [True]

    def test_it_waits_until_all_is_sent(self):
        go = self.hold()
        threading.Timer(0.05, go.set).start()
        self.tell("volume.one")
        self.assertTrue(self.flush())
        self.assertEqual(2, sender._get_sender().sent)

    def test_it_waits_no_longer_than_a_moment(self):
        self.hold()
        self.assertFalse(self.flush(0.05))  # slow, what is held goes no sooner
        self.assertEqual(0, sender._get_sender().sent)

    def test_it_waits_for_nothing(self):
        sender.flush()
        self.assertIsNone(sender._sender)
        self.tell()
        self.assertTrue(self.flush())
        with mock.patch.object(sender._get_sender()._progress, "wait") as wait:
            self.assertTrue(self.flush())
        wait.assert_not_called()

    def test_it_waits_for_no_broken_message_queue(self):
        CONF.set_override("driver", ["messagingv2"], group=sender.GROUP)
        # The queue stays broken: slow, nothing is sent either.
        conf_fixture.override(self, "flush_timeout", 0.1, "notifications")
        refused = messaging.MessageDeliveryFailure("no broker")
        with (
            mock.patch.object(NotificationTransport, "_send_notification", side_effect=refused),
            self.assertLogs(LOGGER),
        ):
            self.tell()
            self.assertTrue(self.flush())
            sender.stop()


class EndTest(Case):
    def test_what_has_not_gone_in_time_is_lost_and_told(self):
        # What is held goes no sooner on a slow machine.
        conf_fixture.override(self, "flush_timeout", 0.2, "notifications")
        go = self.hold()
        self.tell("volume.one", "v1")
        self.tell("volume.two", "v2")
        found = sender._get_sender()
        with self.assertLogs(LOGGER, "ERROR") as logged:
            sender.stop()
        self.assertTrue(found._thread.is_alive(), "it is not waited for")
        told = [record.getMessage() for record in logged.records]
        self.assertEqual(3, found.lost)
        self.assertEqual(3, len(told))
        self.assertIn("volume.two of v2 is lost, 3 so far: the process ends", told[-1])
        go.set()
        found._thread.join(TIMEOUT)
        self.assertEqual(0, found.sent)

    def test_a_full_queue_does_not_make_it_wait_longer(self):
        conf_fixture.override(self, "queue_size", 1, "notifications")
        conf_fixture.override(self, "flush_timeout", 0.2, "notifications")
        self.hold()
        self.tell("volume.one", "v1")
        thread = sender._get_sender()._thread
        with (
            self.assertLogs(LOGGER, "ERROR") as logged,
            mock.patch.object(thread, "join", wraps=thread.join) as join,
        ):
            sender.stop()
        join.assert_called_once_with(0.0)  # the queue was waited for all the time that there is
        self.assertEqual(2, len(logged.records))

    def test_after_an_end_it_begins_anew(self):
        self.tell("volume.one")
        sender.stop()
        self.tell("volume.two")
        self.assertEqual(["volume.one", "volume.two"], self.heard.event_types())

    def test_a_forked_process_has_its_own(self):
        self.tell("volume.one")
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
    """What sender.py takes for granted of oslo.messaging."""

    def test_every_driver_sends_through_the_transport(self):
        transport = messaging.get_notification_transport(CONF)
        notifier = messaging.Notifier(transport, driver="messagingv2", publisher_id="p")
        with mock.patch.object(transport, "_send_notification") as send:
            notifier.info({}, "a.b", {})
        target, context, message = send.call_args.args
        self.assertEqual(("notifications.info", {}), (target.topic, context))
        self.assertIn("timestamp", message)

    def test_a_notifier_knows_its_drivers(self):
        transport = messaging.get_notification_transport(CONF)
        notifier = messaging.Notifier(transport, driver="log")
        self.assertEqual(["log"], notifier._driver_mgr.names())
