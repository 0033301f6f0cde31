# SPDX-License-Identifier: Apache-2.0
"""Periodic tasks in a thread, and the work on single rows."""

import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.manager.ha import periodic_task
from attachd.manager.ha.periodic_task import run_safely
from attachd.tests.fixtures import backends, conf_fixture
from attachd.tests.wait import TIMEOUT


class Task(periodic_task.PeriodicTask):
    def run_once(self):
        raise NotImplementedError


class RunTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.backend = backends.use(self)
        self.task = Task(self.backend)
        self.rounds = threading.Semaphore(0)
        self.stop = threading.Event()

    def _run(self, *outcomes):
        """Run the task with these results, repeating the last one."""
        left = list(outcomes)

        def run_once(_rounds):
            self.rounds.release()
            error = left.pop(0) if len(left) > 1 else left[0]
            if error is not None:
                raise error

        self.enterContext(mock.patch.object(Task, "run_once", run_once))
        thread = threading.Thread(target=self.task.run, args=(self.stop,), daemon=True)
        thread.start()
        return thread

    def _end(self, thread):
        self.stop.set()
        self.task.wake()
        thread.join(TIMEOUT)
        self.assertFalse(thread.is_alive())

    def test_run_starts_at_once_after_wake_and_ends_at_stop(self):
        conf_fixture.override(self, "report_interval", 3600, group="manager")
        self.enterContext(mock.patch.object(periodic_task, "MAX_INTERVAL", 3600.0))
        thread = self._run(None)
        self.assertTrue(self.rounds.acquire(timeout=TIMEOUT))
        self.assertFalse(self.rounds.acquire(timeout=0.05))  # slow, there are even fewer
        self.task.wake()
        self.assertTrue(self.rounds.acquire(timeout=TIMEOUT))
        # On a slow machine there are even fewer.
        self.assertFalse(self.rounds.acquire(timeout=0.05), "once is enough")
        self._end(thread)

    def test_run_repeats_without_wake(self):
        self.enterContext(mock.patch.object(periodic_task, "MAX_INTERVAL", 0.01))
        thread = self._run(None)
        for _ in range(2):
            self.assertTrue(self.rounds.acquire(timeout=TIMEOUT))
        self._end(thread)

    def test_run_continues_after_failure(self):
        self.enterContext(mock.patch.object(periodic_task, "MAX_INTERVAL", 0.01))
        thread = self._run(exception.Unavailable(reason="gone"), RuntimeError("odd"), None)
        for _ in range(3):
            self.assertTrue(self.rounds.acquire(timeout=TIMEOUT))
        self._end(thread)

    def test_run_logs_traceback_only_of_unforeseen_error(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        for error, traced in ((gone, False), (RuntimeError("odd"), True)):
            self.task.wake()
            with (
                self.subTest(error=error),
                mock.patch.object(Task, "run_once", side_effect=error),
                self.assertLogs("attachd.manager.ha.periodic_task", "ERROR") as logged,
            ):
                self.task.run(mock.Mock(is_set=mock.Mock(side_effect=[False, True])))
                (record,) = logged.records
                self.assertEqual(traced, bool(record.exc_info))
                self.assertIn(f"{error}", record.getMessage())


class RunSafelyTest(unittest.TestCase):
    """Whether a row needs more work."""

    def after(self, error=None):
        return run_safely("Volume one", mock.Mock(side_effect=error))

    def test_run_safely_after_success_returns_true(self):
        self.assertTrue(self.after())

    def test_run_safely_names_the_kind_of_row_in_messages(self):
        with self.assertLogs("attachd.manager.ha.periodic_task", "INFO") as logged:
            self.after()
        self.assertEqual("Volume one: recovered", logged.records[0].getMessage())

    def test_run_safely_with_missing_or_changed_row_returns_true(self):
        self.assertTrue(self.after(exception.VolumeNotFound(volume_id="v")))
        self.assertTrue(self.after(exception.InvalidTransition("It is in other hands.")))

    def test_run_safely_with_stored_failure_returns_true(self):
        for kind in (exception.ConnectFailed, exception.DisconnectFailed):
            self.assertTrue(self.after(kind(attachment_id="a", reason="It burns.")))

    def test_run_safely_with_temporary_failure_returns_false(self):
        with self.assertLogs("attachd.manager.ha.periodic_task", "WARNING") as logged:
            self.assertFalse(self.after(exception.Unavailable(reason="It is away.")))
        self.assertIsNone(logged.records[0].exc_info)

    def test_run_safely_with_unforeseen_error_logs_and_returns_false(self):
        with self.assertLogs("attachd.manager.ha.periodic_task", "ERROR") as logged:
            self.assertFalse(self.after(ZeroDivisionError()))
        self.assertTrue(logged.records[0].exc_info)
