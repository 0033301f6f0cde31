# SPDX-License-Identifier: Apache-2.0
"""Limits of waiting calls: by volume, project, backend and process."""

import contextlib
import os
from unittest import mock

import oslo_messaging as messaging

from attachd import exception
from attachd.rpc import bulkheads
from attachd.telemetry import metrics
from attachd.tests.fixtures import conf_fixture


class _BulkheadCase(conf_fixture.DefaultConfCase):
    def setUp(self):
        super().setUp()
        self.now = 100.0
        clock = mock.Mock(monotonic=lambda: self.now)
        self.enterContext(mock.patch.object(bulkheads, "time", clock))
        state = bulkheads._State(bulkheads.DEFAULT_THREADS)
        self.enterContext(mock.patch.object(bulkheads, "_state", state))
        self.limit(process=100)

    def limit(self, **values):
        names = {"process": "max_calls"}
        for kind, value in values.items():
            name = names.get(kind, f"max_calls_{kind}")
            conf_fixture.override(self, name, value, "rpc")

    def add_calls(self, count, server="h@b", volume=None, project=None):
        """Have ``count`` calls wait until the returned stack is closed."""
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        for _ in range(count):
            stack.enter_context(bulkheads.slot(server, volume, project))
        return stack

    def give_up(self):
        with self.assertRaises(messaging.MessagingTimeout), bulkheads.slot("h@b", "v", "p"):
            raise messaging.MessagingTimeout


class LimitTest(_BulkheadCase):
    def test_call_over_limit_of_volume_raises_too_many_calls(self):
        self.limit(per_volume=2)
        waiting = self.add_calls(2, volume="v")
        with self.assertRaisesRegex(
            exception.TooManyCalls, "Volume v is busy: 2 .* h@b"
        ) as raised:
            self.add_calls(1, volume="v")
        self.assertEqual(1, raised.exception.details["retry_after"])
        self.add_calls(1, volume="other").close()
        waiting.close()
        self.add_calls(2, volume="v")

    def test_call_over_limit_of_project_raises_too_many_calls(self):
        self.limit(per_project=2)
        self.add_calls(1, "h@b", "v", "p")
        self.add_calls(1, "h@c", "w", "p")
        with self.assertRaisesRegex(exception.TooManyCalls, "Project p is busy: 2 "):
            self.add_calls(1, "h@d", "x", "p")
        self.add_calls(1, "h@b", "v", "other")

    def test_call_over_limit_of_backend_raises_unavailable(self):
        self.limit(per_backend=2)
        self.add_calls(2)
        with self.assertRaisesRegex(exception.Unavailable, "Backend h@b is busy: 2 calls wait"):
            self.add_calls(1)
        self.add_calls(2, "h@c")

    def test_call_over_limit_of_agent_names_the_agent(self):
        self.limit(per_backend=1)
        self.add_calls(1, "the agent of host one")
        with self.assertRaisesRegex(exception.Unavailable, "The agent of host one is busy"):
            self.add_calls(1, "the agent of host one")

    def test_call_over_limit_of_process_raises_unavailable(self):
        self.limit(process=2)
        self.limit(per_backend=2)
        self.add_calls(1, "h@a")
        self.add_calls(1, "h@b")
        with self.assertRaisesRegex(exception.Unavailable, "The API is busy: 2 calls"):
            self.add_calls(1, "h@c")
        self.assertEqual(2, bulkheads.waiting_calls())

    def test_check_raises_as_slot_and_counts_nothing(self):
        self.limit(per_volume=1)
        bulkheads.check("h@b", "v", "p")
        self.assertEqual(0, bulkheads.waiting_calls())
        self.add_calls(1, volume="v")
        self.assertRaises(exception.TooManyCalls, bulkheads.check, "h@b", "v", "p")
        self.assertEqual(1, bulkheads.waiting_calls())

    def test_refused_call_is_counted_by_limit(self):
        self.limit(per_volume=1)
        self.add_calls(1, volume="v")
        with mock.patch.object(metrics, "count") as count:
            self.assertRaises(exception.TooManyCalls, self.add_calls, 1, volume="v")
        count.assert_called_once_with(metrics.RPC_REFUSED, "volume")

    def test_ended_calls_leave_no_entries(self):
        self.add_calls(3, volume="v", project="p").close()
        self.assertFalse(bulkheads._state.waiting)
        self.assertFalse(bulkheads._state.silent_since)

    def test_forked_child_has_no_waiting_calls_and_the_same_threads(self):
        bulkheads.set_threads(7)
        self.add_calls(1)
        child = os.fork()
        if not child:
            intact = not bulkheads.waiting_calls() and bulkheads._state.threads == 7
            os._exit(0 if intact else 1)
        self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


class DerivedLimitTest(_BulkheadCase):
    def setUp(self):
        super().setUp()
        self.limit(process=None)

    def test_limits_leave_threads_for_other_requests(self):
        for threads in (2, 3, 4, 8, 16, 48, 200):
            bulkheads.set_threads(threads)
            limits = bulkheads.limits()
            self.assertLess(limits.process, threads)
            self.assertEqual(sorted(limits, reverse=True), list(limits))
            self.assertGreater(limits.volume, 0)

    def test_limits_of_48_threads_leave_slots_for_others(self):
        bulkheads.set_threads(48)
        self.assertEqual((30, 20, 15, 10), bulkheads.limits())

    def test_options_replace_derived_limits(self):
        self.limit(process=10, per_volume=9)
        self.assertEqual((10, 6, 5, 9), bulkheads.limits())


class UnresponsiveBackendTest(_BulkheadCase):
    def setUp(self):
        super().setUp()
        self.limit(unresponsive=2)
        self.limit(process=300)

    def test_calls_up_to_other_limits_wait_for_responsive_backend(self):
        self.add_calls(50)
        self.now += bulkheads.OPEN_AFTER - 1
        with bulkheads.slot("h@b", None, None):
            pass  # is answered
        self.now += bulkheads.OPEN_AFTER - 1
        self.add_calls(50)
        self.assertEqual(100, bulkheads.waiting_calls())

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
