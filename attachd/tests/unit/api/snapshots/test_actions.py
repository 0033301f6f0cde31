# SPDX-License-Identifier: Apache-2.0
"""Tests of the actions of snapshots."""

from unittest import mock

from attachd import exception
from attachd.api.snapshots import actions, backend_calls
from attachd.tests.fixtures import api_context, captured_notifications, db_rows


class ActionsTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        self.admin = api_context.make_context(*api_context.ADMIN)
        self.member = api_context.make_context()
        self.volume = db_rows.add_volume()["id"]

    def add(self, state, **values):
        return db_rows.add_snapshot(self.volume, state, **values)["id"]

    def state(self, snapshot_id):
        return db_rows.get_snapshot(snapshot_id)["state"]

    def test_reset_sets_status_and_notifies(self):
        captured = captured_notifications.use(self)
        snapshot_id = self.add("creating")
        actions.reset_status(self.admin, snapshot_id, {"status": "Error"})
        self.assertEqual("error", self.state(snapshot_id))
        sent = captured.messages()
        self.assertEqual(
            [("snapshot.reset_status.start", "creating"), ("snapshot.reset_status.end", "error")],
            [(item["event_type"], item["payload"]["status"]) for item in sent],
        )

    def test_reset_to_other_status_lists_those_that_are_possible(self):
        with self.assertRaisesRegex(exception.InvalidInput, "available, creating, deleting"):
            actions.reset_status(self.admin, self.add("error"), {"status": "restoring"})

    def test_update_status_follows_its_table(self):
        for before, after in (
            *(("creating", "available"), ("creating", "error"), ("creating", "creating")),
            *(("deleting", "error_deleting"), ("deleting", "deleting")),
        ):
            snapshot_id = self.add(before)
            actions.update_status(self.member, snapshot_id, {"status": after, "progress": "80%"})
            row = db_rows.get_snapshot(snapshot_id)
            self.assertEqual((after, 80), (row["state"], row["progress"]))
        for before, after, text in (
            ("available", "error", "status available not allowed"),
            ("creating", "deleting", "snapshot status deleting not allowed"),
        ):
            with self.assertRaisesRegex(exception.BadRequest, text):
                actions.update_status(self.member, self.add(before), {"status": after})

    def test_status_of_snapshot_at_work_is_left_to_manager(self):
        snapshot_id = self.add("creating", owner="here@fake")
        with self.assertRaisesRegex(exception.BadRequest, "at its backend"):
            actions.update_status(self.member, snapshot_id, {"status": "available"})
        self.assertEqual("creating", self.state(snapshot_id))

    def test_force_delete_is_for_administrators(self):
        snapshot_id = self.add("creating")
        with self.assertRaises(exception.Forbidden):
            actions.force_delete(self.member, snapshot_id)
        with mock.patch.object(backend_calls, "manager_api"):
            actions.force_delete(self.admin, snapshot_id)
        self.assertEqual("deleting", self.state(snapshot_id))
