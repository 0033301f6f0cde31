# SPDX-License-Identifier: Apache-2.0
"""Snapshots, their volumes and the volumes made of them."""

import itertools

from attachd import exception
from attachd.db.volumes import snapshot_store, volume_store
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows

AVAILABLE = ("available",)
ANY = ("available", "in-use")


class SnapshotRulesCase(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(size_gib=2)["id"]

    def add(self, state="available", **values):
        return db_rows.add_snapshot(self.volume, state, **{"size_gib": 2, **values})["id"]

    def take(self, statuses=ANY):
        values = {"volume_id": self.volume, "project_id": db_rows.PROJECT, "user_id": "u"}
        return snapshot_store.create(values, statuses)

    def make_volume(self, snapshot_id, size_gib=2):
        values = {
            "project_id": db_rows.PROJECT,
            "size_gib": size_gib,
            "host": "here@fake#pool",
            "snapshot_id": snapshot_id,
        }
        return volume_store.create(values, {})


class VolumeTest(SnapshotRulesCase):
    def test_volume_with_snapshots_is_not_removed_and_some_are_named(self):
        ids = [self.add() for _ in range(7)]
        for event in (Event.DELETE, Event.UNMANAGE):
            with self.assertRaisesRegex(exception.InvalidVolume, "has snapshots") as refused:
                volume_store.transition(self.volume, event)
            self.assertEqual(5, sum(found in str(refused.exception) for found in ids))
        for snapshot_id in ids:
            for event in (Event.DELETE, Event.DELETED):
                snapshot_store.transition(snapshot_id, event)
        volume_store.transition(self.volume, Event.DELETE)

    def test_delete_with_snapshots_moves_all_to_deletion(self):
        for state in ("available", "error", "error_deleting", "deleting"):
            self.add(state)
        volume_store.delete_with_snapshots(self.volume)
        self.assertEqual("deleting", db_rows.get_volume(self.volume)["state"])
        self.assertEqual({"deleting"}, {row["state"] for row in db_rows.list_snapshots()})

    def test_delete_with_snapshot_in_use_changes_nothing(self):
        self.add()
        for state, text in (("creating", "creating and cannot"), ("restoring", "restoring")):
            busy = self.add(state)
            with self.assertRaisesRegex(exception.InvalidVolume, f"{busy}.*{text}"):
                volume_store.delete_with_snapshots(self.volume)
            db_rows.change_snapshot(busy, state="error")
        foreign = self.add(project_id="other")
        with self.assertRaisesRegex(exception.InvalidVolume, "does not see") as refused:
            volume_store.delete_with_snapshots(self.volume)
        self.assertNotIn(foreign, str(refused.exception))
        self.assertEqual("ready", db_rows.get_volume(self.volume)["state"])
        self.assertNotIn("deleting", {row["state"] for row in db_rows.list_snapshots()})

    def test_snapshots_of_other_projects_prevent_removal_and_are_not_named(self):
        foreign = self.add("creating", project_id="other")
        for says, call in (
            ("does not see", lambda: volume_store.transition(self.volume, Event.DELETE)),
            ("a snapshot of it", lambda: volume_store.extend(self.volume, db_rows.PROJECT, 3)),
        ):
            with self.assertRaisesRegex(exception.InvalidVolume, says) as refused:
                call()
            self.assertNotIn(foreign, str(refused.exception))

    def test_volume_is_not_extended_or_reverted_while_snapshot_is_created(self):
        latest = self.add()
        creating = self.take()["id"]
        for call in (
            lambda: volume_store.extend(self.volume, db_rows.PROJECT, 3),
            lambda: volume_store.revert(self.volume, latest),
        ):
            with self.assertRaisesRegex(exception.InvalidVolume, creating):
                call()
        snapshot_store.transition(creating, Event.CREATED)
        volume_store.extend(self.volume, db_rows.PROJECT, 3)


class SourceTest(SnapshotRulesCase):
    def test_snapshot_that_is_not_available_is_no_source(self):
        for state in ("creating", "deleting", "restoring", "error", "error_deleting"):
            with self.assertRaisesRegex(exception.InvalidSnapshot, f"currently {state}"):
                self.make_volume(self.add(state))
        with self.assertRaises(exception.SnapshotNotFound):
            self.make_volume("gone")

    def test_snapshot_stays_until_its_volume_is_complete(self):
        snapshot_id = self.add()
        made = self.make_volume(snapshot_id)
        self.assertEqual(snapshot_id, made["snapshot_id"])
        for call in (
            lambda: snapshot_store.transition(snapshot_id, Event.DELETE),
            lambda: volume_store.revert(self.volume, snapshot_id),
        ):
            with self.assertRaisesRegex(exception.InvalidSnapshot, made["id"]):
                call()
        with self.assertRaisesRegex(exception.InvalidVolume, made["id"]):
            volume_store.delete_with_snapshots(self.volume)
        volume_store.transition(made["id"], Event.CREATED)
        snapshot_store.transition(snapshot_id, Event.DELETE)


class RevertTest(SnapshotRulesCase):
    def test_revert_moves_volume_and_latest_snapshot_together(self):
        self.add()
        latest = self.add()
        volume_store.revert(self.volume, latest)
        self.assertEqual("reverting", db_rows.get_volume(self.volume)["status"])
        self.assertEqual("restoring", db_rows.get_snapshot(latest)["state"])
        for end, state in ((Event.REVERTED, "ready"), (Event.REVERT_FAILED, "error")):
            volume_store.transition(self.volume, end)
            self.assertEqual(state, db_rows.get_volume(self.volume)["state"])
            self.assertEqual("available", db_rows.get_snapshot(latest)["state"])
            if end is Event.REVERTED:
                volume_store.revert(self.volume, latest)

    def test_other_snapshot_than_latest_is_refused(self):
        first = self.add()
        self.add()
        with self.assertRaisesRegex(exception.InvalidSnapshot, "not the latest"):
            volume_store.revert(self.volume, first)

    def test_volume_of_other_size_is_not_reverted(self):
        with self.assertRaisesRegex(exception.InvalidSnapshot, "2 GiB.*1 GiB"):
            volume_store.revert(self.volume, self.add(size_gib=1))

    def test_only_available_volume_is_reverted(self):
        snapshot_id = self.add()
        db_rows.add_attachment(self.volume, "attached")
        with self.assertRaisesRegex(exception.InvalidVolume, "status is: in-use"):
            volume_store.revert(self.volume, snapshot_id)

    def test_volume_reset_from_revert_has_snapshot_available(self):
        snapshot_id = self.add()
        for status in ("error", "available"):
            volume_store.revert(self.volume, snapshot_id)
            volume_store.reset(self.volume, status, None)
            self.assertEqual("available", db_rows.get_snapshot(snapshot_id)["state"])
            volume_store.reset(self.volume, "available", None)


class StatusesTest(SnapshotRulesCase):
    def test_snapshot_needs_status_of_volume(self):
        attached = db_rows.add_volume()["id"]
        db_rows.add_attachment(attached, "attached")
        self.volume = attached
        self.take(ANY)
        with self.assertRaisesRegex(exception.InvalidVolume, "status is: in-use"):
            self.take(AVAILABLE)
        for state, statuses in itertools.product(
            ("creating", "deleting", "extending", "error", "reverting", "maintenance"),
            (ANY, AVAILABLE),
        ):
            self.volume = db_rows.add_volume(state)["id"]
            with self.assertRaisesRegex(exception.InvalidVolume, f"status is: {state}"):
                self.take(statuses)
