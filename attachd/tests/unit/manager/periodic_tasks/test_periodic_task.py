# SPDX-License-Identifier: Apache-2.0
"""Periodic tasks in a thread, and the work on single rows."""

import unittest
from unittest import mock

from attachd import exception
from attachd.manager.periodic_tasks import periodic_task
from attachd.manager.periodic_tasks.periodic_task import run_safely
from attachd.tests.fixtures import backends


class Task(periodic_task.PeriodicTask):
    def run_once(self):
        raise NotImplementedError


class RunTest(backends.BackendCase):
    def test_run_logs_traceback_only_of_unforeseen_error(self):
        gone = exception.Unavailable(reason="The database does not answer.")
        for error, traced in ((gone, False), (RuntimeError("odd"), True)):
            with (
                self.subTest(error=error),
                mock.patch.object(Task, "run_once", side_effect=error),
                mock.patch.object(Task, "on_failure", Task.stop),
                self.assertLogs("attachd.manager.periodic_tasks.periodic_task", "ERROR") as logged,
            ):
                Task(self.backend).run()
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
        with self.assertLogs("attachd.manager.periodic_tasks.periodic_task", "INFO") as logged:
            self.after()
        self.assertEqual("Volume one: recovered", logged.records[0].getMessage())

    def test_run_safely_with_missing_or_changed_row_returns_true(self):
        self.assertTrue(self.after(exception.VolumeNotFound(volume_id="v")))
        self.assertTrue(self.after(exception.InvalidTransition("It is in other hands.")))

    def test_run_safely_with_temporary_failure_returns_false(self):
        with self.assertLogs("attachd.manager.periodic_tasks.periodic_task", "WARNING") as logged:
            self.assertFalse(self.after(exception.Unavailable(reason="It is away.")))
        self.assertIsNone(logged.records[0].exc_info)

    def test_run_safely_with_unforeseen_error_logs_and_returns_false(self):
        with self.assertLogs("attachd.manager.periodic_tasks.periodic_task", "ERROR") as logged:
            self.assertFalse(self.after(ZeroDivisionError()))
        self.assertTrue(logged.records[0].exc_info)
