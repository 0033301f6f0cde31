# SPDX-License-Identifier: Apache-2.0
"""The properties of messaging that attachd needs: equal by RabbitMQ and in one process."""

import datetime
import threading
import unittest
from unittest import mock

import oslo_messaging as messaging
from oslo_messaging import exceptions as messaging_exceptions
from oslo_messaging.rpc.dispatcher import RPCDispatcher

from attachd import exception
from attachd.context import RequestContext
from attachd.objects import Volume
from attachd.rpc import fair_dispatch, transport
from attachd.tests.contract.transports import VERSION, Endpoint, InProcess, RabbitMQ
from attachd.tests.selection import full_only
from attachd.tests.wait import TIMEOUT, wait_until

_MOMENT = datetime.datetime.fromisoformat("2026-01-02T03:04:05")


class Answers:
    def test_answer_is_converted_by_json(self):
        self.serve()
        cases = [
            (None, None),
            (False, False),
            (0, 0),
            ("", ""),
            ("\N{SNOWMAN}\x00 '\"", "\N{SNOWMAN}\x00 '\""),
            (2**70, 2**70),
            (1.5, 1.5),
            ([1, [2, {"a": None}]], [1, [2, {"a": None}]]),
            ((1, 2), [1, 2]),
            ({1: "a"}, {"1": "a"}),
            (_MOMENT, "2026-01-02T03:04:05.000000"),
        ]
        for sent, expected in cases:
            with self.subTest(sent=sent):
                self.assertEqual(expected, self.call("echo", value=sent))

    def test_answer_is_a_copy(self):
        self.serve()
        sent = {"list": []}
        answer = self.call("echo", value=sent)
        answer["list"].append(1)
        self.assertEqual({"list": []}, sent)

    def test_versioned_object_arrives_as_versioned_object(self):
        self.serve()
        volume = Volume(id="v1", size_gib=3, metadata={"a": "b"}, created_at=_MOMENT)
        self.assertEqual(["Volume", "dict"], self.call("kinds", volume=volume, connector=volume))
        for answer in (self.call("echo", value=volume), self.call("echo", value=[volume])[0]):
            self.assertEqual(("v1", 3, {"a": "b"}), (answer.id, answer.size_gib, answer.metadata))
            self.assertEqual(_MOMENT, answer.created_at)

    def test_server_receives_context_without_token(self):
        endpoint = self.serve()
        self.call("echo", value=1)
        seen = endpoint.contexts[0]
        self.assertIsInstance(seen, RequestContext)
        self.assertEqual(
            ("u", "p", ["member"], self.context.request_id, None),
            (seen.user_id, seen.project_id, seen.roles, seen.request_id, seen.auth_token),
        )

    def test_argument_without_json_form_is_refused_by_sender(self):
        self.serve()
        with self.assertRaises(ValueError):
            self.call("echo", value=object())

    def test_answer_without_json_form_is_not_sent(self):
        self.serve()
        with self.assertRaises(messaging.MessagingTimeout):
            self.call("unsendable", timeout=0.5)  # no answer comes, however slow all is
        self.assertEqual(1, self.call("echo", value=1))


class Errors:
    def test_attachd_error_arrives_with_its_class(self):
        self.serve()
        with self.assertRaises(exception.VolumeNotFound) as caught:
            self.call("missing")
        self.assertIs(exception.VolumeNotFound, type(caught.exception))
        self.assertEqual("Volume v1 could not be found.", str(caught.exception))

    def test_error_message_with_percent_sign_arrives_unchanged(self):
        self.serve()
        with self.assertRaises(exception.Conflict) as caught:
            self.call("refuse")
        self.assertEqual("Not now. 100 % sure.", str(caught.exception))

    def test_foreign_error_arrives_as_remote_error(self):
        self.serve()
        with self.assertRaises(messaging.RemoteError) as caught:
            self.call("weird")
        self.assertEqual(("Weird", "odd"), (caught.exception.exc_type, caught.exception.value))

    def test_builtin_error_arrives_with_its_class(self):
        self.serve()
        with self.assertRaises(KeyError):
            self.call("key_error")

    def test_unknown_method_is_refused(self):
        self.serve()
        with self.assertRaises(messaging.RemoteError) as caught:
            self.call("nonsense")
        self.assertEqual("NoSuchMethod", caught.exception.exc_type)

    def test_private_method_is_refused(self):
        self.serve()
        with self.assertRaises(messaging.RemoteError) as caught:
            self.call("_private")
        self.assertEqual("NoSuchMethod", caught.exception.exc_type)

    def test_older_minor_version_is_served(self):
        self.serve()
        client = self.client(version="1.0")
        self.assertEqual(1, client.call(self.context, "echo", value=1))

    def test_newer_version_is_refused(self):
        self.serve()
        for version in ("1.4", "2.0"):
            with (
                self.subTest(version=version),
                self.assertRaises(messaging.RemoteError) as caught,
            ):
                self.client(version=version).call(self.context, "echo", value=1)
            self.assertEqual("UnsupportedVersion", caught.exception.exc_type)

    def test_wrong_argument_raises_in_caller(self):
        self.serve()
        with self.assertRaises(TypeError):
            self.call("echo", volume=1)

    def test_call_to_fanout_is_refused(self):
        target = messaging.Target(topic=transport.MANAGER_TOPIC, fanout=True)
        client = messaging.get_rpc_client(transport.get_transport(), target)
        with self.assertRaises(messaging_exceptions.InvalidTarget):
            client.call({}, "echo", value=1)


class Delivery:
    def test_backends_receive_only_their_messages(self):
        one = self.serve("host@one")
        two = self.serve("host@two")
        self.client("host@one").call(self.context, "note", value=1)
        self.client("host@two").call(self.context, "note", value=2)
        self.assertEqual(([1], [2]), (one.seen, two.seen))

    def test_workers_of_one_backend_share_its_messages(self):
        workers = [self.serve(), self.serve()]
        for number in range(20):
            self.call("note", value=number)
        self.assertEqual(list(range(20)), sorted(workers[0].seen + workers[1].seen))
        self.assertTrue(workers[0].seen)
        self.assertTrue(workers[1].seen)

    def test_message_without_receiver_is_undeliverable(self):
        with self.assertRaises(messaging.MessageUndeliverable):
            self.call("echo", value=1)
        with self.assertRaises(messaging.MessageUndeliverable):
            self.client().cast(self.context, "echo", value=1)

    def test_optional_message_without_receiver_is_dropped(self):
        target = messaging.Target(topic=transport.MANAGER_TOPIC, server="missing")
        # There is no server, so no slow machine matters.
        client = messaging.get_rpc_client(transport.get_transport(), target, timeout=0.3)
        client.cast({}, "echo", value=1)
        with self.assertRaises(messaging.MessagingTimeout):
            client.call({}, "echo", value=1)

    def test_cast_without_worker_is_delivered_to_next_worker(self):
        self.serve().stop()
        self.client().cast(self.context, "note", value="later")
        endpoint = self.serve()
        wait_until(lambda: endpoint.seen == ["later"])

    def test_messages_to_stopping_server_are_executed_by_it_or_by_the_next(self):
        first, second, count = self.serve(threads=1), Endpoint(), 400
        client = self.client()
        values = iter(range(count))
        sender = threading.Thread(
            target=lambda: [client.cast(self.context, "note", value=item) for item in values]
        )
        sender.start()
        wait_until(lambda: len(first.seen) >= count // 8)
        first.stop()
        self.serve(endpoint=second)
        sender.join(TIMEOUT)
        wait_until(
            lambda: len(first.seen) + len(second.seen) == count,
            lambda: f"lost: {sorted({*range(count)} - {*first.seen, *second.seen})}",
        )
        self.assertEqual([*range(count)], sorted([*first.seen, *second.seen]))

    def test_messages_to_stopping_server_are_executed_while_it_ends(self):
        first, second, answers = self.serve(), Endpoint(), []
        caller = threading.Thread(target=lambda: answers.append(self.call("outlast")))
        caller.start()
        self.assertTrue(first.running.acquire(timeout=TIMEOUT))
        self.serve(endpoint=second)
        first.server.stop()  # Its call goes on.
        values = [*range(20)]
        for value in values:
            self.call("note", value=value)
        self.assertEqual((values, []), (second.seen, first.seen))
        first.stopped.set()
        caller.join(TIMEOUT)
        self.assertEqual(["late"], answers)

    def test_call_that_timed_out_is_not_carried_out_later(self):
        self.serve().stop()
        with self.assertRaises(messaging.MessagingTimeout):
            self.call("note", timeout=0.3, value="too late")  # there is no server
        self.until_it_has_expired()
        endpoint = self.serve()
        self.call("note", value="in time")
        self.assertEqual(["in time"], endpoint.seen)

    def test_fanout_reaches_all_servers_of_topic(self):
        endpoints = [self.serve("host@one"), self.serve("host@two"), self.serve("host@two")]
        transport.get_fanout_client(VERSION).cast(self.context, "note", value="all")
        wait_until(lambda: [endpoint.seen for endpoint in endpoints] == [["all"]] * 3)

    def test_call_to_topic_reaches_one_server(self):
        endpoints = [self.serve("host@one"), self.serve("host@two")]
        target = messaging.Target(topic=transport.MANAGER_TOPIC)
        client = messaging.get_rpc_client(
            transport.get_transport(), target, serializer=transport.Serializer()
        )
        client.call(self.context, "note", value="any")
        self.assertEqual(["any"], endpoints[0].seen + endpoints[1].seen)


class Time:
    def test_late_answer_raises_timeout(self):
        endpoint = self.serve()
        with self.assertRaises(messaging.MessagingTimeout):
            self.call("wait", timeout=0.5)  # the gate is closed, however slow all is
        self.assertEqual([], endpoint.ended)

    def test_late_answer_is_not_mistaken_for_next_answer(self):
        endpoint = self.serve()
        with self.assertRaises(messaging.MessagingTimeout):
            self.call("wait", timeout=0.5)  # the gate is closed, however slow all is
        endpoint.gate.set()
        self.assertEqual("mine", self.call("echo", value="mine"))

    def test_cast_does_not_wait(self):
        endpoint = self.serve()
        self.client().cast(self.context, "wait")
        self.assertTrue(endpoint.running.acquire(timeout=TIMEOUT))
        self.assertEqual([], endpoint.ended)

    def test_casts_to_one_thread_keep_order(self):
        endpoint = self.serve(threads=1)
        for number in range(200):
            self.client().cast(self.context, "note", value=number)
        wait_until(lambda: len(endpoint.seen) == 200)
        self.assertEqual(list(range(200)), endpoint.seen)

    def test_failing_cast_does_not_affect_others(self):
        self.serve(threads=1)
        self.client().cast(self.context, "weird")
        self.assertEqual(1, self.call("echo", value=1))

    def test_calls_run_in_parallel_up_to_number_of_threads(self):
        endpoint = self.serve(threads=3)
        callers = [
            threading.Thread(target=self.call, args=("wait",), daemon=True) for _ in range(4)
        ]
        for caller in callers:
            caller.start()
        for _ in range(3):
            self.assertTrue(endpoint.running.acquire(timeout=TIMEOUT))
        self.assertFalse(endpoint.running.acquire(timeout=0.3))  # slow, it comes no sooner
        endpoint.gate.set()
        for caller in callers:
            caller.join(TIMEOUT)
            self.assertFalse(caller.is_alive())

    def test_calls_for_busy_volume_occupy_one_thread(self):
        endpoint = self.serve(threads=2)
        for _ in range(5):
            self.client().cast(self.context, "work", volume_id="busy")
        self.assertTrue(endpoint.running.acquire(timeout=TIMEOUT))
        self.assertTrue(self.call("work", volume_id="free"))
        self.assertEqual(["busy", "free"], endpoint.seen)
        endpoint.gate.set()
        wait_until(lambda: len(endpoint.ended) == 5)

    def test_call_of_other_project_precedes_earlier_calls_of_busy_project(self):
        endpoint = self.serve(threads=1)
        self.client().cast(self.context, "wait")
        self.assertTrue(endpoint.running.acquire(timeout=TIMEOUT))
        for number in range(9):
            self.client().cast(self.context, "note", value=number)
        other = RequestContext(user_id="u", project_id="other")
        self.client().cast(other, "note", value="other")
        wait_until(lambda: ("host@backend", 10, 2) in fair_dispatch.queue_lengths())
        endpoint.gate.set()
        wait_until(lambda: len(endpoint.seen) == 10)
        self.assertEqual([0, "other", *range(1, 9)], endpoint.seen)

    def test_concurrent_callers_receive_their_own_answers(self):
        self.serve(threads=8)
        wrong = []

        def ask(number):
            for turn in range(10):
                sent = [number, turn]
                if self.call("echo", value=sent) != sent:
                    wrong.append(sent)

        callers = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(TIMEOUT)
        self.assertEqual([], wrong)

    def test_stopping_server_answers_started_calls(self):
        endpoint = self.serve()
        answers = []
        caller = threading.Thread(target=lambda: answers.append(self.call("outlast")))
        waiter = threading.Thread(target=lambda: answers.append(self.call("wait")))
        caller.start()
        waiter.start()
        for _ in range(2):
            self.assertTrue(endpoint.running.acquire(timeout=TIMEOUT))
        endpoint.stop()
        caller.join(TIMEOUT)
        waiter.join(TIMEOUT)
        self.assertCountEqual([True, "late"], answers)

    def test_heartbeat_of_long_call_prevents_timeout(self):
        endpoint = self.serve()
        real, shown = RPCDispatcher._watchdog, []

        def watchdog(dispatcher, event, incoming):
            incoming.client_timeout = 2  # of which half passes between two signs
            heartbeat_ = incoming.heartbeat

            def heartbeat():
                heartbeat_()
                shown.append(True)
                if len(shown) == 2:
                    endpoint.gate.set()

            with mock.patch.object(incoming, "heartbeat", heartbeat):
                real(dispatcher, event, incoming)

        self.enterContext(mock.patch.object(RPCDispatcher, "_watchdog", watchdog))
        target = messaging.Target(topic=transport.MANAGER_TOPIC, server="host@backend")
        client = messaging.get_rpc_client(
            transport.get_transport(),
            target,
            timeout=TIMEOUT,
            call_monitor_timeout=int(TIMEOUT),
            serializer=transport.Serializer(),
        )
        self.assertIs(True, client.call(self.context, "wait"))
        self.assertLessEqual(2, len(shown))

    def test_server_can_call_another_server(self):
        context, client = self.context, self.client

        class Asking(Endpoint):
            def ask(self, _context):
                return client("host@other").call(context, "echo", value="passed on")

        self.serve(threads=1, endpoint=Asking())
        self.serve("host@other", threads=1)
        self.assertEqual("passed on", self.call("ask"))


class TestAnswersInProcess(Answers, InProcess, unittest.TestCase):
    pass


class TestAnswersRabbitMQ(Answers, RabbitMQ, unittest.TestCase):
    pass


class TestErrorsInProcess(Errors, InProcess, unittest.TestCase):
    pass


class TestErrorsRabbitMQ(Errors, RabbitMQ, unittest.TestCase):
    pass


class TestDeliveryInProcess(Delivery, InProcess, unittest.TestCase):
    pass


class TestDeliveryRabbitMQ(Delivery, RabbitMQ, unittest.TestCase):
    pass


@full_only("outages")
class TestTimeInProcess(Time, InProcess, unittest.TestCase):
    pass


@full_only("outages")
class TestTimeRabbitMQ(Time, RabbitMQ, unittest.TestCase):
    pass
