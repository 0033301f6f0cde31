# SPDX-License-Identifier: Apache-2.0
"""Sets that no process completes are undone."""

from unittest import mock

from attachd.closed_hosts import set_undo
from attachd.db.attachments import attachment_sets
from attachd.manager.periodic_tasks.expired_sets import INTERVAL, ExpiredSetsTask
from attachd.tests.fixtures import databases

ROW = {"id": "s", "attachment_ids": ["a"]}


class ExpiredSetsTaskTest(databases.DatabaseCase):
    def run_task(self, *, taken, **advance):
        task = ExpiredSetsTask(mock.Mock())
        self.assertEqual(INTERVAL, task.interval())
        with (
            mock.patch.object(attachment_sets, "list_expired", return_value=[ROW, ROW]),
            mock.patch.object(attachment_sets, "take_over", return_value=taken),
            mock.patch.object(set_undo, "advance", **advance) as call,
        ):
            task.run_once()
        return call.call_count

    def test_sets_that_were_taken_over_are_undone(self):
        self.assertEqual(2, self.run_task(taken=True))

    def test_set_that_was_renewed_stays(self):
        self.assertEqual(0, self.run_task(taken=False))

    def test_one_failure_does_not_stop_the_others(self):
        with self.assertLogs("attachd.manager.periodic_tasks.expired_sets", "ERROR"):
            self.assertEqual(2, self.run_task(taken=True, side_effect=ValueError))
