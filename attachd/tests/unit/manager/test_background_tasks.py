# SPDX-License-Identifier: Apache-2.0
"""Background tasks: a limited number at a time, each once."""

import threading
import time
import unittest

from oslo_context import context as oslo_context

from attachd import context
from attachd.manager import background_tasks
from attachd.manager.background_tasks import BackgroundTasks, Later
from attachd.tests.wait import TIMEOUT, wait_until


class BackgroundTasksTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.work = BackgroundTasks("shelf", 2)
        self.go_on = threading.Event()
        self.addCleanup(self.go_on.set)
        self.started = []
        self.done = threading.Semaphore(0)

    def submit(self, name):
        def do():
            self.started.append(name)
            self.go_on.wait(TIMEOUT)
            self.done.release()

        self.work.submit(name, do)

    def test_submit_returns_at_once_and_limits_running_tasks(self):
        for name in "abcd":
            self.submit(name)
        wait_until(lambda: len(self.started) == 2)
        time.sleep(0.05)  # for a third one that must not begin; slow, it is only not found
        self.assertEqual({"a", "b"}, set(self.started))
        self.go_on.set()
        for _ in "abcd":
            self.assertTrue(self.done.acquire(timeout=TIMEOUT))
        self.assertEqual({"a", "b", "c", "d"}, set(self.started))

    def test_submit_second_task_of_volume_is_ignored(self):
        for _ in range(3):
            self.submit("a")
        wait_until(lambda: self.started)
        self.submit("a")
        self.go_on.set()
        self.assertTrue(self.done.acquire(timeout=TIMEOUT))
        wait_until(lambda: not self.work._volume_ids)
        self.assertEqual(["a"], self.started)
        self.submit("a")
        wait_until(lambda: self.started == ["a", "a"])

    def test_is_busy_until_all_tasks_are_done(self):
        self.assertFalse(self.work.is_busy)
        for name in "abc":
            self.submit(name)
        self.assertTrue(self.work.is_busy)
        self.go_on.set()
        wait_until(lambda: not self.work.is_busy)
        self.assertEqual(3, len(self.started))

    def test_failed_task_does_not_block_others(self):
        def fail():
            raise ZeroDivisionError

        with self.assertLogs("attachd.manager.background_tasks", "ERROR"):
            self.work.submit("bad", fail)
            wait_until(lambda: not self.work._volume_ids)
        self.go_on.set()
        for name in "abc":
            self.submit(name)
        wait_until(lambda: len(self.started) == 3)

    def test_projects_take_turns(self):
        for name in ("first", "second"):
            self.submit(name)
        wait_until(lambda: len(self.started) == 2)
        for project, names in (("a", "12345"), ("b", "67")):
            with background_tasks.of_project(project):
                for name in names:
                    self.submit(name)
        with background_tasks.of_project("a"):
            self.submit("8")
        self.go_on.set()
        wait_until(lambda: not self.work.is_busy)
        order = self.started[2:]
        self.assertLess(max(order.index("6"), order.index("7")), order.index("4"), order)

    def test_a_quarter_of_the_places_is_left_to_other_projects(self):
        self.work = BackgroundTasks("shelf", 4)
        with background_tasks.of_project("a"):
            for name in "12345":
                self.submit(name)
        wait_until(lambda: len(self.started) == 3)
        with background_tasks.of_project("b"):
            self.submit("6")
        wait_until(lambda: "6" in self.started)
        self.assertEqual(4, len(self.started))
        self.assertTrue(self.work.has_task("5"))
        self.go_on.set()
        wait_until(lambda: not self.work.is_busy)
        self.assertEqual(set("123456"), set(self.started))
        self.assertFalse(self.work.has_task("5"))
        self.assertFalse(self.work._running)

    def test_project_of_request_counts_where_no_other_is_named(self):
        before = oslo_context.get_current()
        self.addCleanup(setattr, oslo_context._request_store, "context", before)
        context.RequestContext(project_id="p", overwrite=True)
        work = BackgroundTasks("shelf", 0)  # It starts no thread.
        work.submit("a", lambda: None)
        with background_tasks.of_project("q"):
            work.submit("b", lambda: None)
        self.assertEqual({"p", "q"}, set(work._waiting.names()))

    def test_postponed_task_leaves_its_place_and_is_called_again(self):
        results = [Later(0.01), Later(0.3), None]  # The second one is longer than the others run.
        called = []

        def call():
            called.append(time.monotonic())
            return results[len(called) - 1]

        work = BackgroundTasks("shelf", 1)
        work.submit("a", call)
        wait_until(lambda: len(called) == 2)
        done = threading.Event()
        work.submit("b", done.set)
        self.assertTrue(done.wait(TIMEOUT))
        work.submit("a", self.fail)  # It has a task.
        wait_until(lambda: not work.is_busy)
        self.assertEqual(3, len(called))
        self.assertGreaterEqual(called[2] - called[1], 0.3)
        wait_until(lambda: work._threads == 0)

    def test_task_runs_with_context_of_request(self):
        seen = []
        before = oslo_context.get_current()
        context.RequestContext(request_id="req-1", overwrite=True)
        self.work.submit("a", lambda: seen.append(oslo_context.get_current().request_id))
        wait_until(lambda: seen)
        self.assertEqual(["req-1"], seen)
        oslo_context._request_store.context = before
