# SPDX-License-Identifier: Apache-2.0
"""Rows of snapshots: creation, transitions, resets, and whose work they are."""

from attachd import exception
from attachd.db import models, quotas
from attachd.db.cluster import members
from attachd.db.cluster.volume_leases import SNAPSHOTS, VolumeLeaseToken, acquire_committed
from attachd.db.volumes import snapshot_store, volume_store
from attachd.states import Event
from attachd.tests.fixtures import databases, db_rows

BACKEND = "here@fake"


class SnapshotStoreTest(databases.DatabaseCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(size_gib=3, availability_zone="z")["id"]

    def create(self, **values):
        wanted = {"volume_id": self.volume, "project_id": db_rows.PROJECT, "user_id": "u"}
        return snapshot_store.create({**wanted, **values}, ("available", "in-use"))

    def test_created_snapshot_has_size_and_backend_of_volume(self):
        made = self.create(name="n", metadata={"a": "b"})
        self.assertEqual(made, snapshot_store.get(made["id"], db_rows.PROJECT))
        self.assertEqual(
            ("creating", 3, BACKEND, "here@fake#pool", "z", {"a": "b"}),
            (
                *(made["state"], made["size_gib"], made["owner"], made["volume_host"]),
                *(made["availability_zone"], made["metadata"]),
            ),
        )

    def test_snapshot_of_other_project_is_not_found(self):
        made = self.create()["id"]
        self.assertEqual(made, snapshot_store.get(made, None)["id"])
        for snapshot_id, project in ((made, "other"), ("gone", None)):
            with self.assertRaises(exception.SnapshotNotFound):
                snapshot_store.get(snapshot_id, project)

    def test_quota_limits_number_and_sizes(self):
        quotas.set_limits(db_rows.PROJECT, {"snapshots": 1})
        self.create()
        with self.assertRaisesRegex(exception.QuotaExceeded, "SnapshotLimitExceeded.*snapshots"):
            self.create()
        quotas.set_limits(db_rows.PROJECT, {"snapshots": -1, "gigabytes": 8})
        with self.assertRaisesRegex(exception.QuotaExceeded, "gigabytes: 3 more.*6 of 8"):
            self.create()
        self.assertEqual(1, len(db_rows.list_snapshots()))

    def test_work_is_that_of_owner_until_it_ends(self):
        first, second = self.create()["id"], self.create()["id"]
        self.assertEqual([first, second], self.recoverable())
        snapshot_store.transition(first, Event.CREATED, {"provider": {"a": 1}})
        snapshot_store.transition(second, Event.CREATE_FAILED, {"error": "a\nb"})
        self.assertEqual([], self.recoverable())
        self.assertEqual({"a": 1}, db_rows.get_snapshot(first)["provider"])
        self.assertEqual("a b", db_rows.get_snapshot(second)["error"])
        snapshot_store.transition(second, Event.DELETE)
        self.assertEqual([second], self.recoverable())
        snapshot_store.transition(second, Event.DELETED)
        with self.assertRaises(exception.SnapshotNotFound):
            snapshot_store.transition(second, Event.DELETE)

    def recoverable(self, holder="me"):
        return [row["id"] for row in snapshot_store.list_recoverable(BACKEND, holder)]

    def test_work_of_living_process_is_left_to_it(self):
        members.join(other := models.new_id(), "other")
        made = self.create()["id"]
        token = VolumeLeaseToken(made, other, table=SNAPSHOTS)
        acquire_committed(token)
        self.assertEqual([], self.recoverable())
        self.assertEqual([made], self.recoverable(other))
        members.expire(other)
        self.assertEqual([made], self.recoverable())
        acquire_committed(VolumeLeaseToken(made, "me", table=SNAPSHOTS))
        with self.assertRaisesRegex(exception.TakenOver, f"snapshot {made}"):
            snapshot_store.transition(made, Event.CREATED, lease=token)

    def test_deletion_with_the_volume_is_work_on_the_volume(self):
        made = db_rows.add_snapshot(self.volume)["id"]
        volume_store.delete_with_snapshots(self.volume)
        self.assertEqual([], self.recoverable())
        volume_store.transition(self.volume, Event.DELETE_FAILED)
        self.assertEqual([made], self.recoverable())
        db_rows.change_volume(self.volume, state="deleting", owner=None)  # by an administrator
        self.assertEqual([made], self.recoverable())

    def test_lease_of_volume_is_free_while_snapshot_is_taken(self):
        made = self.create()["id"]
        acquire_committed(VolumeLeaseToken(made, "me", table=SNAPSHOTS))
        self.assertIsNone(db_rows.get_volume(self.volume)["lease_holder"])

    def test_progress_is_stored_only_while_it_is_created(self):
        made = self.create()["id"]
        snapshot_store.set_progress(made, 40)
        self.assertEqual(40, snapshot_store.get(made, None)["progress"])
        snapshot_store.transition(made, Event.CREATED, {"progress": 100})
        snapshot_store.set_progress(made, 50)
        self.assertEqual(100, snapshot_store.get(made, None)["progress"])

    def test_reset_ends_work(self):
        made = self.create()["id"]
        snapshot_store.reset(made, "available")
        self.assertEqual([], self.recoverable())
        self.assertEqual("available", db_rows.get_snapshot(made)["state"])

    def test_reset_to_available_is_refused_while_a_manager_works_on_it(self):
        members.join(other := models.new_id(), "other")
        for before in ("creating", "deleting", "unmanaging"):
            with self.subTest(before):
                values = {"owner": BACKEND, "lease_holder": other}
                made = db_rows.add_snapshot(self.volume, before, **values)["id"]
                with self.assertRaisesRegex(exception.InvalidTransition, "manager other"):
                    snapshot_store.reset(made, "available")
                snapshot_store.reset(made, "error")
                with self.assertRaisesRegex(exception.InvalidTransition, "manager other"):
                    snapshot_store.reset(made, "available")
        members.expire(other)
        self.assertEqual("available", snapshot_store.reset(made, "available")["state"])

    def test_reset_during_revert_is_refused(self):
        made = db_rows.add_snapshot(self.volume, size_gib=3)["id"]
        volume_store.revert(self.volume, made)
        with self.assertRaisesRegex(exception.InvalidTransition, "reset the volume"):
            snapshot_store.reset(made, "error")

    def test_update_changes_name(self):
        made = self.create()["id"]
        snapshot_store.update(made, {"name": "new"})
        self.assertEqual("new", snapshot_store.get(made, None)["name"])
        with self.assertRaises(exception.SnapshotNotFound):
            snapshot_store.update("gone", {"name": "new"})

    def test_snapshots_of_volume_are_listed_latest_first(self):
        ids = [self.create()["id"] for _ in range(3)]
        found = [row["id"] for row in snapshot_store.list_of_volume(self.volume)]
        self.assertEqual(ids[::-1], found)
