# SPDX-License-Identifier: Apache-2.0
"""Events get their revisions in the background."""

from unittest import mock

from attachd.db.attachments import events
from attachd.manager.periodic_tasks.number_events import INTERVAL, NumberEventsTask
from attachd.tests.fixtures import databases, db_rows


class NumberEventsTaskTest(databases.DatabaseCase):
    def test_all_events_get_revisions(self):
        volume_id = db_rows.add_volume()["id"]
        row = db_rows.add_attachment(volume_id, "attached")
        for _ in range(5):
            events.record_fenced(row, {})
        task = NumberEventsTask(mock.Mock())
        self.assertEqual(INTERVAL, task.interval())
        with mock.patch.multiple(events, BATCH=1, _UNASSIGNED=events._UNASSIGNED.limit(1)):
            task.run_once()
        self.assertEqual(5, events.sequence().assigned)
