# SPDX-License-Identifier: Apache-2.0
"""Turns of calls: by volume, project, backend and process."""

from concurrent import futures
import contextlib
import os
import threading
from unittest import mock

import oslo_messaging as messaging

from attachd import exception
from attachd.rpc import bulkheads
from attachd.telemetry import metrics
from attachd.tests.fixtures import conf_fixture, metric_samples
from attachd.tests.wait import TIMEOUT, wait_until


class _BulkheadCase(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.now = 100.0
        clock = mock.Mock(monotonic=lambda: self.now)
        self.enterContext(mock.patch.object(bulkheads, "time", clock))
        self.calls = bulkheads._Calls(bulkheads.DEFAULT_THREADS)
        self.enterContext(mock.patch.object(bulkheads, "_calls", self.calls))
        self.limit(process=100)

    def limit(self, **values):
        names = {"process": "max_calls"}
        for kind, value in values.items():
            name = names.get(kind, f"max_calls_{kind}")
            conf_fixture.override(self, name, value, "rpc")

    def never_wait(self):
        """Have calls without a turn be refused at once."""
        self.enterContext(mock.patch.object(bulkheads, "max_wait", lambda: 0.0))

    def add_calls(self, count, server="h@b", volume=None, project=None):
        """Have ``count`` calls be in progress until the returned stack is closed."""
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        for _ in range(count):
            stack.enter_context(bulkheads.slot(server, volume, project))
            bulkheads._thread.has_turn = False  # as if each had a thread
        return stack

    def give_up(self):
        with self.assertRaises(messaging.MessagingTimeout), bulkheads.slot("h@b", "v", "p"):
            raise messaging.MessagingTimeout


class LimitTest(_BulkheadCase):
    """Calls that get no turn in time."""

    def setUp(self):
        super().setUp()
        self.never_wait()

    def test_call_over_limit_of_volume_raises_too_many_calls(self):
        self.limit(per_volume=2)
        others = self.add_calls(2, volume="v")
        with self.assertRaisesRegex(
            exception.TooManyCalls, "Volume v has 2 calls in progress, and this one got no turn"
        ) as raised:
            self.add_calls(1, volume="v")
        self.assertEqual(1, raised.exception.details["retry_after"])
        self.add_calls(1, volume="other").close()
        others.close()
        self.add_calls(2, volume="v")

    def test_call_over_limit_of_project_raises_too_many_calls(self):
        self.limit(per_project=2)
        self.add_calls(1, "h@b", "v", "p")
        self.add_calls(1, "h@c", "w", "p")
        with self.assertRaisesRegex(exception.TooManyCalls, "Project p has 2 calls in progress"):
            self.add_calls(1, "h@d", "x", "p")
        self.add_calls(1, "h@b", "v", "other")

    def test_call_over_limit_of_backend_raises_unavailable(self):
        self.limit(per_backend=2)
        self.add_calls(2)
        with self.assertRaisesRegex(exception.Unavailable, "Backend h@b has 2 calls in progress"):
            self.add_calls(1)
        self.add_calls(2, "h@c")

    def test_call_over_limit_of_agent_names_the_agent(self):
        self.limit(per_backend=1)
        self.add_calls(1, "the agent of host one")
        with self.assertRaisesRegex(exception.Unavailable, "The agent of host one has 1 calls"):
            self.add_calls(1, "the agent of host one")

    def test_call_over_limit_of_process_raises_unavailable(self):
        self.limit(process=2)
        self.limit(per_backend=2)
        self.add_calls(1, "h@a")
        self.add_calls(1, "h@b")
        with self.assertRaisesRegex(exception.Unavailable, "The API has 2 calls in progress"):
            self.add_calls(1, "h@c")
        self.assertEqual(2, bulkheads.calls_in_progress())

    def test_refused_call_is_counted_by_limit(self):
        self.limit(per_volume=1)
        self.add_calls(1, volume="v")
        with mock.patch.object(metrics, "count") as count:
            self.assertRaises(exception.TooManyCalls, self.add_calls, 1, volume="v")
        count.assert_called_once_with(metrics.RPC_REFUSED, "volume")

    def test_ended_and_refused_calls_leave_no_entries(self):
        self.limit(per_volume=3)
        others = self.add_calls(3, volume="v", project="p")
        self.assertRaises(exception.TooManyCalls, self.add_calls, 1, volume="v", project="p")
        others.close()
        self.assertFalse(self.calls.in_progress)
        self.assertFalse(self.calls.held)
        self.assertFalse(self.calls.waiting.length)
        self.assertFalse(self.calls.silent_since)

    def test_forked_child_has_no_calls_and_the_same_threads(self):
        bulkheads.set_threads(7)
        self.add_calls(1)
        child = os.fork()
        if not child:
            intact = not bulkheads.calls_in_progress() and bulkheads._calls.threads == 7
            os._exit(0 if intact else 1)
        self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


class TurnTest(_BulkheadCase):
    """Calls that wait for their turn in threads of their own."""

    def setUp(self):
        super().setUp()
        self.pool = self.enterContext(futures.ThreadPoolExecutor(16))
        self.ended = threading.Event()
        self.addCleanup(self.ended.set)
        self.order = []

    def start(self, name, server="h@b", volume=None, project=None):
        """Make a call in a thread, which is in progress until all shall end."""
        before = self.calls.waiting.length + bulkheads.calls_in_progress()

        def call():
            with bulkheads.slot(server, volume, project):
                self.order.append(name)
                self.ended.wait(TIMEOUT)

        made = self.pool.submit(call)
        wait_until(lambda: self.calls.waiting.length + bulkheads.calls_in_progress() > before)
        return made

    def test_call_over_each_limit_waits_and_is_made_when_another_ends(self):
        for limit in ("per_volume", "per_project", "per_backend", "process"):
            with self.subTest(limit):
                self.limit(**{limit: 1})
                others = self.add_calls(1, "h@b", "v", "p")
                self.ended.set()
                waiting = self.start("late", "h@b", "v", "p")
                self.assertEqual(1, self.calls.waiting.length)
                others.close()
                waiting.result(TIMEOUT)
                self.assertFalse(self.calls.held)
                self.limit(**{limit: 100})

    def test_project_with_many_waiting_calls_delays_another_by_one(self):
        self.limit(process=1)
        others = self.add_calls(1)
        self.ended.set()
        made = [self.start(f"p{number}", volume=f"{number}", project="p") for number in range(5)]
        made.append(self.start("q", volume="w", project="q"))
        others.close()
        futures.wait(made, TIMEOUT)
        self.assertEqual(["p0", "q", "p1", "p2", "p3", "p4"], self.order)

    def test_cost_of_an_end_is_the_same_however_many_calls_wait_at_a_limit(self):
        self.limit(process=30, per_backend=20, per_project=15)
        for number in range(1000):
            call = bulkheads._Call("h@b", f"v{number}", "p")
            self.calls.waiting.put(call.place, call)
        self.add_calls(15, project="p")
        asked = []
        is_full = self.calls._is_full

        def record(place, maximum):
            asked.append(place)
            return is_full(place, maximum)

        self.enterContext(mock.patch.object(self.calls, "_is_full", record))
        self.add_calls(5, project="q").close()
        self.add_calls(1, project="q").close()
        self.assertEqual({("q", "h@b", ""), ("q",), ("q", "h@b"), ("p",)}, set(asked))
        self.assertLess(len(asked), 30)
        self.assertEqual(1000, self.calls.waiting.length)

    def test_call_that_no_limit_stops_overtakes_those_that_wait(self):
        self.limit(per_volume=1)
        self.add_calls(1, volume="v")
        self.start("v", volume="v")
        self.start("w", volume="w")
        wait_until(lambda: self.order == ["w"])
        self.assertEqual(1, self.calls.waiting.length)

    def test_yields_seconds_of_the_wait(self):
        self.limit(process=1)
        others = self.add_calls(1)

        def waited():
            with bulkheads.slot("h@b", None, None) as seconds:
                return seconds

        metric_samples.use(self)
        made = self.pool.submit(waited)
        wait_until(lambda: self.calls.waiting.length == 1)
        self.now += 7
        others.close()
        self.assertEqual(7, made.result(TIMEOUT))
        name = "attachd_rpc_turn_duration_seconds_sum"
        self.assertEqual(7, metric_samples.sample_value(name, limit="backend"))
        with bulkheads.slot("h@b", None, None) as seconds:
            self.assertEqual(0, seconds)

    def test_project_has_at_most_its_share_of_threads(self):
        bulkheads.set_threads(11)
        self.limit(process=1)
        maximum = bulkheads.limits()
        self.assertEqual((9, 7, 10), maximum[-3:])
        for number in range(7):
            self.start(f"{number}", project="p")
        with self.assertRaisesRegex(
            exception.TooManyCalls, "Project p has 7 calls in progress or"
        ):
            self.add_calls(1, project="p")
        self.assertRaises(exception.TooManyCalls, bulkheads.check, "h@b", None, "p")
        for number in range(2):
            self.start(f"{number}", project="q")
        with self.assertRaisesRegex(exception.Unavailable, "The API has 9 calls in progress or"):
            self.add_calls(1, project="r")

    def test_check_counts_nothing_and_accepts_what_may_wait(self):
        self.limit(per_volume=1)
        self.add_calls(1, volume="v")
        bulkheads.check("h@b", "v", "p")
        self.assertEqual((1, 0), (bulkheads.calls_in_progress(), self.calls.waiting.length))

    def test_waiting_call_whose_backend_becomes_unresponsive_is_refused(self):
        self.limit(per_volume=1, unresponsive=1)
        with mock.patch.object(bulkheads, "OPEN_AFTER", 0.1):  # it waits as long by the real clock
            self.add_calls(1, volume="v")
            waiting = self.start("late", volume="v")
            self.now += 1
            with self.assertRaisesRegex(exception.Unavailable, "h@b has answered nothing"):
                waiting.result(TIMEOUT)
        self.assertFalse(self.calls.waiting.length)
        self.assertEqual(1, self.calls.held.total())

    def test_calls_for_silent_backend_leave_turns_to_other_backends(self):
        self.limit(per_backend=100, per_volume=100)
        for limit in ("per_project", "process"):
            self.limit(**{"per_project": 100, limit: 2})
            with (
                self.subTest(limit),
                mock.patch.object(bulkheads, "OPEN_AFTER", 0.1),  # as long by the real clock
            ):
                hanging = self.add_calls(2, "silent@b", project="p")
                waiting = [self.start(f"{number}", "h@b", project="p") for number in range(3)]
                self.assertEqual(3, self.calls.waiting.length)
                self.now += 1
                wait_until(lambda: bulkheads.calls_in_progress() == 4)
                self.assertEqual(1, self.calls.waiting.length, "the limit holds for them")
                self.ended.set()
                futures.wait(waiting, TIMEOUT)
                self.assertEqual([None] * 3, [made.result() for made in waiting])
                hanging.close()
                self.ended.clear()
                self.assertFalse(self.calls.in_progress)
            self.limit(**{limit: 100})

    def test_calls_for_many_silent_servers_leave_threads_to_others(self):
        bulkheads.set_threads(48)
        self.limit(process=None)
        maximum = bulkheads.limits()
        self.never_wait()

        def call_silent(project):
            for number in range(100):
                self.now += bulkheads.OPEN_AFTER + 1
                self.add_calls(8, f"{project}{number}@b", project=project)

        with self.assertRaisesRegex(exception.TooManyCalls, "Project p has 36 calls in progress"):
            call_silent("p")
        self.assertEqual(maximum.threads_of_project, self.calls.held["p"])
        self.add_calls(1, "h@b", project="q").close()
        with self.assertRaisesRegex(exception.Unavailable, "The API has 45 calls in progress or"):
            call_silent("q")

    def test_call_in_a_call_needs_no_turn_of_its_own(self):
        self.limit(per_project=1)
        self.never_wait()
        with bulkheads.slot("h@b", None, "p") as first:
            with bulkheads.slot("h@c", "v", "p") as second:
                self.assertEqual((0, 0), (first, second))
                self.assertEqual(1, bulkheads.calls_in_progress())
            self.assertEqual(1, bulkheads.calls_in_progress())
        self.assertFalse(self.calls.held)
        with bulkheads.slot("h@b", None, "p"), self.assertRaises(exception.TooManyCalls):
            self.pool.submit(self.add_calls, 1, project="p").result(TIMEOUT)


class DerivedLimitTest(_BulkheadCase):
    def setUp(self):
        super().setUp()
        self.limit(process=None)

    def test_limits_leave_threads_for_other_requests(self):
        for threads in (2, 3, 4, 8, 16, 48, 200, 1024):
            bulkheads.set_threads(threads)
            limits = bulkheads.limits()
            self.assertLess(limits.threads, threads)
            self.assertLess(limits.threads_with_turns, threads)
            self.assertLessEqual(limits.threads, limits.threads_with_turns)
            self.assertLessEqual(limits.process, limits.threads)
            self.assertEqual(sorted(limits[:4], reverse=True), list(limits[:4]))
            self.assertGreater(limits.volume, 0)

    def test_limits_of_1024_threads_leave_some_to_other_projects(self):
        bulkheads.set_threads(1024)
        self.assertEqual((30, 20, 15, 10, 896, 784, 960), bulkheads.limits())

    def test_options_replace_derived_limits(self):
        self.limit(process=10, per_volume=9)
        self.assertEqual((10, 6, 5, 9), bulkheads.limits()[:4])


class UnresponsiveBackendTest(_BulkheadCase):
    def setUp(self):
        super().setUp()
        self.limit(unresponsive=2)
        self.limit(process=300, per_backend=200)

    def test_calls_up_to_other_limits_wait_for_responsive_backend(self):
        self.add_calls(50)
        self.now += bulkheads.OPEN_AFTER - 1
        with bulkheads.slot("h@b", None, None):
            pass  # is answered
        self.now += bulkheads.OPEN_AFTER - 1
        self.add_calls(50)
        self.assertEqual(100, bulkheads.calls_in_progress())

    def test_calls_over_limit_to_unresponsive_backend_raise_unavailable(self):
        self.add_calls(1)
        self.now += bulkheads.OPEN_AFTER + 1
        self.add_calls(1)
        with self.assertRaisesRegex(exception.Unavailable, "h@b has answered nothing for 11 sec"):
            self.add_calls(1)
        self.add_calls(5, "h@other")

    def test_timeouts_keep_backend_unresponsive(self):
        self.give_up()
        self.now += bulkheads.OPEN_AFTER + 1
        self.give_up()
        self.add_calls(2)
        self.assertRaises(exception.Unavailable, self.add_calls, 1)

    def test_timeout_long_ago_refuses_no_call_of_a_new_burst(self):
        self.give_up()
        with contextlib.suppress(messaging.MessagingTimeout), bulkheads.slot("h@c", "v", "p"):
            raise messaging.MessagingTimeout
        self.now += 3600
        self.add_calls(5)
        self.assertEqual({"h@b": self.now}, self.calls.silent_since)

    def test_error_counts_as_answer(self):
        self.give_up()
        self.now += bulkheads.OPEN_AFTER + 1
        failed = exception.ConnectFailed(attachment_id="a", reason="no.")
        with contextlib.suppress(exception.ConnectFailed), bulkheads.slot("h@b", "v", "p"):
            raise failed
        self.add_calls(5)

    def test_backend_without_calls_is_not_unresponsive(self):
        self.add_calls(1).close()
        self.now += 1000
        self.add_calls(5)
