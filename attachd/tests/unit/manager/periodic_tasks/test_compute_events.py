# SPDX-License-Identifier: Apache-2.0
"""Tests of the periodic sending of events to Compute."""

from unittest import mock

from attachd import exception
from attachd.manager import compute_events as sending
from attachd.manager.periodic_tasks import compute_events
from attachd.tests.fixtures import conf_fixture
from attachd.tests.wait import wait_until


class ListTasksTest(conf_fixture.DefaultConfCase):
    def test_without_credentials_there_is_no_task_and_one_line_of_the_log(self):
        with self.assertLogs(compute_events.LOG.logger, "INFO") as logged:
            self.assertEqual([], compute_events.list_tasks())
        self.assertRegex("".join(logged.output), r"not notified.*\[nova\] has no auth_type")

    def test_task_goes_on_after_failures(self):
        conf_fixture.override(self, "auth_type", "none", "nova")
        self.enterContext(mock.patch.object(compute_events, "INTERVAL", 0.01))
        failures = [exception.Unavailable(reason="no database"), ValueError("bug"), None]
        called = mock.Mock(side_effect=failures + [None] * 10000)
        self.enterContext(mock.patch.object(sending, "send_due", called))
        with self.assertLogs(compute_events.LOG.logger, "ERROR") as logged:
            (task,) = compute_events.list_tasks()
            task.start()
            wait_until(lambda: called.call_count > 3)
            task.stop()
            task.join()
        self.assertEqual(2, len(logged.records))
        self.assertEqual([False, True], [bool(record.exc_info) for record in logged.records])
