# SPDX-License-Identifier: Apache-2.0
"""Periodic tasks in a thread, and the work on single rows."""

import threading
import unittest
from unittest import mock

from attachd import exception
from attachd.db.cluster import members
from attachd.manager.ownership.membership import Membership
from attachd.manager.periodic_tasks import periodic_task
from attachd.manager.periodic_tasks.periodic_task import run_safely
from attachd.tests.fixtures import backends, conf_fixture
from attachd.tests.wait import TIMEOUT


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


class SharedTask(periodic_task.OneProcessTask):
    runs = 0
    errors = ()

    def interval(self):
        return 3600.0

    def run_once(self):
        self.runs += 1
        if self.runs <= len(self.errors):
            raise self.errors[self.runs - 1]
        self.stop()


class OneProcessTaskTest(backends.BackendCase):
    """A task of two processes, of which one has joined before the other."""

    def setUp(self):
        super().setUp()
        self.membership = Membership()
        self.addCleanup(self.membership.stop)
        members.join("older", "older")
        self.membership.start()
        self.membership.wait_until_joined(threading.Event())
        self.task = SharedTask(self.membership)

    def test_task_runs_as_soon_as_older_process_has_ended(self):
        conf_fixture.override(self, "member_timeout", 1.0, group="manager")
        self.task.start()
        self.task.join(0.1)  # it waits longer than that, however slow the machine is
        self.assertEqual(0, self.task.runs)
        members.expire("older")
        self.task.join(TIMEOUT)
        self.assertEqual(1, self.task.runs)

    def test_failed_run_is_logged_and_repeated_within_member_timeout(self):
        conf_fixture.override(self, "member_timeout", 1.0, group="manager")
        members.expire("older")
        self.task.errors = [exception.Unavailable(reason="The database does not answer.")]
        with self.assertLogs(periodic_task.__name__, "ERROR") as logged:
            self.task.run()
        self.assertEqual(2, self.task.runs)
        self.assertIn("SharedTask failed, trying again", logged.output[0])


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
