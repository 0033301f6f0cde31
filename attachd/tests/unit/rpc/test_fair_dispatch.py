# SPDX-License-Identifier: Apache-2.0

from collections import Counter, defaultdict
import functools
import threading
from types import SimpleNamespace
import unittest
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from attachd.context import RequestContext
from attachd.objects import Attachment, Volume
from attachd.rpc import fair_dispatch, manager_api, transport
from attachd.rpc.fair_dispatch import FairExecutor
from attachd.tests import concurrency
from attachd.tests.fixtures import conf_fixture, metric_samples, rpc_clients
from attachd.tests.wait import TIMEOUT, wait_until


def message(number=0, project="p", volume=None, method="m", **arguments):
    """Return a message as the RPC server passes it to its executor."""
    if volume is not None:
        arguments["volume_id"] = volume
    context = {"project_id": project} if project else {}
    content = {"method": method, "args": arguments}
    return [SimpleNamespace(ctxt=context, message=content, number=number)]


class ShareTest(unittest.TestCase):
    """What a message is queued by."""

    def test_volume_of_message_is_id_in_arguments(self):
        self.assertEqual("v", fair_dispatch.volume_of({}, {"args": {"volume_id": "v"}}))

    def test_volume_of_message_with_volume_object_is_its_id(self):
        sent = transport.Serializer().serialize_entity(None, Volume(id="v"))
        self.assertEqual("v", fair_dispatch.volume_of({}, {"args": {"volume": sent}}))

    def test_message_of_wrong_form_has_no_volume(self):
        for arguments in ([1], None, {"volume": {"attachd_object.data": 1}}, {"volume": 1}):
            self.assertEqual("", fair_dispatch.volume_of({}, {"args": arguments}))

    def test_volume_of_message_about_attachment_is_in_its_context(self):
        client, _made = rpc_clients.patch_clients(self)
        conf_fixture.override(self, "attachd_manager", manager_api.VERSION, "upgrade_levels")
        context = RequestContext(project_id="p", overwrite=False)
        attachment = Attachment(id="a", volume_id="v", volume_host="h@b#pool")
        manager_api.process_pending(context, attachment)
        (sent, _method), arguments = client.cast.call_args
        sent = transport.Serializer().serialize_context(sent)
        self.assertEqual("v", fair_dispatch.volume_of(sent, {"args": arguments}))
        self.assertEqual("p", fair_dispatch.share_of(sent, {"args": arguments}))
        self.assertIsNone(context.resource_uuid)

    def test_volume_of_other_message_is_empty(self):
        for content in ({}, {"args": {}}, {"args": None}, {"args": {"volume": "x"}}):
            self.assertEqual("", fair_dispatch.volume_of({}, content))

    def test_share_of_message_is_project_or_else_host(self):
        content = {"args": {"host": "h"}}
        self.assertEqual("p", fair_dispatch.share_of({"project_id": "p"}, content))
        self.assertEqual("h", fair_dispatch.share_of({}, content))
        self.assertEqual("", fair_dispatch.share_of({}, {}))


class ExecutorTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.started, self.ended = [], []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.addCleanup(self.gate.set)

    def executor(self, threads):
        executor = FairExecutor("h@b", threads)
        self.addCleanup(executor.shutdown)
        self.addCleanup(self.gate.set)
        return executor

    def block(self, incoming):
        self.started.append(incoming[0].number)
        self.entered.release()
        self.gate.wait(TIMEOUT)
        self.ended.append(incoming[0].number)

    def await_started(self, count):
        for _ in range(count):
            self.assertTrue(self.entered.acquire(timeout=TIMEOUT))

    def test_calls_for_one_volume_run_one_after_the_other_in_order(self):
        executor = self.executor(4)
        for number in range(20):
            executor.submit(self.block, message(number, volume="v"))
        self.await_started(1)
        self.assertEqual([0], self.started)
        self.assertEqual(1, len(executor._threads))
        self.gate.set()
        executor.shutdown()
        self.assertEqual(list(range(20)), self.ended)

    def test_call_for_other_volume_passes_calls_for_busy_volume(self):
        executor = self.executor(2)
        for number in range(20):
            executor.submit(self.block, message(number, volume="v"))
        executor.submit(self.block, message("other", volume="w"))
        self.await_started(2)
        self.assertCountEqual([0, "other"], self.started)

    def test_calls_without_volume_use_all_threads_and_no_more(self):
        executor = self.executor(3)
        for number in range(5):
            executor.submit(self.block, message(number))
        self.await_started(3)
        self.assertEqual(3, len(executor._threads))
        self.assertEqual(("h@b", 2, 1), executor.describe())
        self.assertIn(("h@b", 2, 1), fair_dispatch.queue_lengths())
        self.gate.set()
        executor.shutdown()
        self.assertCountEqual(range(5), self.ended)
        self.assertEqual(("h@b", 0, 0), executor.describe())

    def test_slow_calls_of_one_project_leave_threads_to_others(self):
        executor = self.executor(8)
        for number in range(10):
            executor.submit(self.block, message(number, "a", f"v{number}" if number % 2 else None))
        self.await_started(6)
        for number in range(10, 13):
            executor.submit(self.block, message(number, "b", f"v{number}"))
        self.await_started(2)
        self.assertCountEqual([*range(6), 10, 11], self.started)
        self.gate.set()
        executor.shutdown()
        self.assertCountEqual(range(13), self.ended)
        self.assertEqual(0, executor._queue._slots._taken.total())

    def test_projects_take_turns_and_their_volumes_too(self):
        executor = self.executor(1)
        executor.submit(self.block, message("first", volume="x"))
        self.await_started(1)
        for number in range(4):
            executor.submit(self.block, message(f"a{number}", "a", "v"))
        for number in range(4, 6):
            executor.submit(self.block, message(f"a{number}", "a", "w"))
        for number in range(2):
            executor.submit(self.block, message(f"b{number}", "b", "v"))
        self.gate.set()
        executor.shutdown()
        result = ["first", "a0", "b0", "a4", "b1", "a1", "a5", "a2", "a3"]
        self.assertEqual(result, self.ended)

    def test_own_work_precedes_messages_of_many_projects_but_needs_a_thread(self):
        executor = self.executor(1)
        for number in range(20):
            executor.submit(self.block, message(number, project=f"p{number}"))
        self.await_started(1)
        executor.execute(lambda: self.started.append("own"))
        self.assertEqual([0], self.started)
        self.gate.set()
        executor.shutdown()
        self.assertEqual([0, "own", 1, 2], self.started[:4])

    def test_slow_background_calls_leave_threads_to_calls(self):
        executor = self.executor(4)
        for number in range(8):
            place = f"p{number % 2}", f"v{number}", "delete_volume"
            executor.submit(self.block, message(number, *place))
        self.await_started(2)
        executor.execute(lambda: self.block(message("own")))
        for number in range(8, 10):
            executor.submit(self.block, message(number, "q", f"v{number}"))
        self.await_started(2)
        self.assertCountEqual([0, 1, "own", 8], self.started)
        executor.execute(lambda: self.started.append("second"))
        executor.shutdown(wait=False)
        self.gate.set()
        executor.shutdown()
        self.assertEqual("second", self.started[4])
        self.assertCountEqual([*range(10), "own"], self.ended)

    def test_arrival_costs_the_same_however_many_calls_wait(self):
        executor = self.executor(2)
        for number in range(2):
            executor.submit(self.block, message(number, project=f"p{number}"))
        self.await_started(2)
        asked = record_questions(self, executor._queue)
        for number in range(2, 100):
            executor.submit(self.block, message(number, project=f"p{number}"))
        self.assertEqual([], asked)
        self.gate.set()
        executor.shutdown()
        self.assertEqual(set(range(100)), set(self.ended))

    def test_failed_call_frees_volume_and_thread(self):
        executor = self.executor(1)
        with self.assertLogs("attachd.rpc.fair_dispatch", "ERROR"):
            executor.submit(mock.Mock(side_effect=ValueError), message(volume="v"))
            executor.submit(self.block, message(1, volume="v"))
            self.await_started(1)

    def test_shutdown_executes_waiting_calls_and_ends_threads(self):
        executor = self.executor(2)
        for number in range(6):
            executor.submit(self.block, message(number, volume=str(number % 3)))
        self.await_started(2)
        executor.shutdown(wait=False)
        with self.assertRaises(RuntimeError):
            executor.submit(self.block, message())
        self.gate.set()
        executor.shutdown()
        self.assertCountEqual(range(6), self.ended)
        self.assertEqual(set(), executor._threads)

    def test_idle_threads_are_used_again(self):
        executor = self.executor(4)
        self.gate.set()
        for number in range(10):
            executor.submit(self.block, message(number))
            self.await_started(1)
            wait_until(lambda: executor._idle == len(executor._threads))
        self.assertEqual(1, len(executor._threads))

    def test_wait_in_queue_is_measured(self):
        metric_samples.use(self)
        executor = self.executor(1)
        self.gate.set()
        executor.submit(self.block, message())
        executor.shutdown()
        name = "attachd_queue_duration_seconds_count"
        self.assertEqual(1, metric_samples.sample_value(name, server="h@b"))


def record_questions(case, queue):
    """Record the places that a queue asks for whether they may be taken; return their list."""
    asked = []
    may_begin = queue._may_begin

    def record(place):
        asked.append(place)
        return may_begin(place)

    case.enterContext(mock.patch.object(queue, "_may_begin", record))
    return asked


class SlotTest(unittest.TestCase):
    """The queue without threads: which call has the next slot."""

    def fill(self, queue, *places):
        for place in places:
            queue.put(place, fair_dispatch._Call(None, (), place, 0.0))

    def begin_all(self, queue):
        """Begin all calls that may run now."""
        return list(iter(queue.begin_next, None))

    def volumes(self, kind, project, count):
        return [(kind, project, f"{kind}-{project}{number}") for number in range(count)]

    def run_steadily(self, queue, running, steps):
        """End the oldest call, let another for its volume wait, and begin; return projects."""
        projects = []
        for _ in range(steps):
            ended = running.pop(0)
            self.fill(queue, ended.place)
            queue.end(ended)
            started = self.begin_all(queue)
            running += started
            projects += [call.place[1] for call in started]
        return projects

    def test_busy_volumes_of_two_projects_leave_slots_to_a_third(self):
        for per_volume in (1, 4):
            with self.subTest(per_volume=per_volume):
                queue = fair_dispatch._Queue(16, per_volume)
                places = [*self.volumes("call", "a", 12), *self.volumes("call", "b", 4)]
                self.fill(queue, *places * per_volume * 2)
                running = self.begin_all(queue)
                self.assertEqual(16 * per_volume, len(running))
                self.fill(queue, ("call", "c", "c0"))
                self.assertIn("c", self.run_steadily(queue, running, 16 * per_volume))

    def test_call_for_volume_in_turn_of_another_project_gets_its_turn(self):
        queue = fair_dispatch._Queue(2, 4)
        self.fill(queue, *[("call", "a", "v"), ("call", "b", "w")] * 8)
        running = self.begin_all(queue)
        self.fill(queue, ("call", "c", "v"))
        self.assertIn("c", self.run_steadily(queue, running, 16))

    def test_volume_has_no_limit_while_no_call_waits_for_its_slot(self):
        queue = fair_dispatch._Queue(4, 4)
        self.fill(queue, *[("call", "a", "v")] * 8)
        self.fill(queue, *self.volumes("background", "b", 9))
        running = self.begin_all(queue)
        self.assertEqual(["a"] * 4 + ["b"] * 2, sorted(call.place[1] for call in running))
        for _ in range(100):
            ended = next(call for call in running if call.place[1] == "a")
            running.remove(ended)
            self.fill(queue, ended.place)
            queue.end(ended)
            running += self.begin_all(queue)
            self.assertEqual(4, sum(call.place[1] == "a" for call in running))

    def test_background_calls_have_half_of_the_slots(self):
        queue = fair_dispatch._Queue(16, 4)
        self.fill(queue, *self.volumes("background", "a", 20))
        self.assertEqual(6, len(self.begin_all(queue)))
        self.fill(queue, *self.volumes("background", "b", 20))
        self.assertEqual(2, len(self.begin_all(queue)))
        self.fill(queue, *self.volumes("call", "b", 20), *self.volumes("call", "a", 20))
        owners = [call.place[:2] for call in self.begin_all(queue)]
        self.assertEqual({("call", "a"): 4, ("call", "b"): 4}, Counter(owners))

    def test_kinds_of_calls_have_turns(self):
        queue = fair_dispatch._Queue(1, 1)
        self.fill(queue, *self.volumes("call", "a", 2), *self.volumes("background", "a", 2))
        kinds = []
        while (call := queue.begin_next()) is not None:
            kinds.append(call.place[0])
            queue.end(call)
        self.assertEqual(["call", "background", "call", "background"], kinds)

    def test_cost_of_a_call_is_the_same_however_many_wait_at_a_limit(self):
        for kind, limit in (("call", 12), ("background", 6)):
            with self.subTest(kind):
                queue = fair_dispatch._Queue(16, 4)
                self.fill(queue, *self.volumes(kind, "a", 5000))
                self.assertEqual(limit, len(self.begin_all(queue)))
                self.fill(queue, ("call", "b", "v"))
                asked = record_questions(self, queue)
                (call,) = self.begin_all(queue)
                queue.end(call)
                self.assertEqual([], self.begin_all(queue))
                self.assertEqual("b", call.place[1])
                self.assertLess(len(asked), 30)

    def test_background_methods_are_those_that_the_api_casts_about_data(self):
        client, _made = rpc_clients.patch_clients(self)
        conf_fixture.override(self, "attachd_manager", manager_api.VERSION, "upgrade_levels")
        context = RequestContext(project_id="p", overwrite=False)
        volume = Volume(id="v", host="h@b#pool")
        for method in fair_dispatch.BACKGROUND:
            about = ("h@b", "s") if "snapshot" in method else (volume,)
            getattr(manager_api, method)(context, *about)
            self.assertEqual(method, client.cast.call_args.args[1])


class Recorder:
    """Executes messages, and records their numbers and overlaps."""

    def __init__(self):
        self._mutex = threading.Lock()
        self._running = Counter()
        self.overlaps = []
        self.numbers = []

    def process(self, incoming):
        volume = incoming[0].message["args"].get("volume_id")
        with self._mutex:
            self._running[volume] += 1
            if volume is not None and self._running[volume] > 1:
                self.overlaps.append(volume)
        with self._mutex:
            self._running[volume] -= 1
            self.numbers.append(incoming[0].number)


class RaceTest(unittest.TestCase):
    """Many calls in many threads: each is executed once, and those of a volume never overlap."""

    @settings(deadline=None, max_examples=30)
    @given(
        threads=st.integers(1, 5),
        calls=st.lists(
            st.tuples(st.sampled_from("abc"), st.sampled_from(["", "u", "v", "w"])), max_size=60
        ),
        senders=st.integers(1, 3),
    )
    def test_calls_are_executed_once_without_overlap(self, threads, calls, senders):
        executor, recorder = FairExecutor("h@b", threads), Recorder()

        def send(sender):
            for number in range(sender, len(calls), senders):
                project, volume = calls[number]
                executor.submit(recorder.process, message(number, project, volume or None))

        concurrency.run_at_once(*(functools.partial(send, number) for number in range(senders)))
        executor.shutdown()
        self.assertEqual([], recorder.overlaps)
        self.assertEqual(list(range(len(calls))), sorted(recorder.numbers))
        order = defaultdict(list)
        for number in recorder.numbers:
            order[number % senders, *calls[number]].append(number)
        for (_sender, _project, volume), numbers in order.items():
            if volume:
                self.assertEqual(sorted(numbers), numbers)


class ServerTest(unittest.TestCase):
    """The server; test_private_names.py has what it depends on in oslo.messaging."""

    def test_server_has_fair_executor(self):
        rpc_clients.use_transport(self)
        server = transport.get_server(object(), "h@b")
        server.start(override_pool_size=3)
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        self.assertEqual(3, server._executor._max_threads)
        ran = threading.Event()
        server.execute(ran.set)
        self.assertTrue(ran.wait(TIMEOUT))

    def test_stopped_server_acknowledges_no_message(self):
        rpc_clients.use_transport(self)
        server = transport.get_server(object(), "h@b")
        consumer, receive = mock.Mock(), mock.Mock()
        consumer.callback = receive
        connection = mock.Mock(_consumers={consumer: 1})
        listener = mock.Mock(_poll_style_listener=mock.Mock(conn=connection))
        listener.stop.side_effect = lambda: consumer.callback("message")
        server.start(override_pool_size=1)
        self.addCleanup(server._server.listener.cleanup)
        self.addCleanup(server._server.listener.stop)
        server._server.listener = listener
        for _ in range(2):
            server.stop()
        receive.assert_not_called()
        connection.close.assert_called_once_with()
