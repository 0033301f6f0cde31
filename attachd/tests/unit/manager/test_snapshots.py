# SPDX-License-Identifier: Apache-2.0
"""Taking and deleting snapshots: the calls of the driver, and the rows after them."""

import datetime
from pathlib import Path
import threading
from unittest import mock

from attachd import exception
from attachd.conf import CONF
from attachd.db import messages, models
from attachd.db.cluster import members
from attachd.db.engine.paging import Page
from attachd.db.volumes import snapshot_store, volume_store
from attachd.drivers import base
from attachd.manager import snapshots, volumes
from attachd.manager.periodic_tasks import recovery
from attachd.periodics import Backoff
from attachd.states import Event
from attachd.tests.fixtures import backends, captured_notifications, db_rows
from attachd.tests.wait import TIMEOUT, wait_until


class SnapshotCase(backends.BackendCase):
    def setUp(self):
        super().setUp()
        self.volume = db_rows.add_volume(size_gib=3, provider={"lun": 1})["id"]

    def add(self, state="creating", **values):
        owner = None if state == "available" else backends.HOST
        return db_rows.add_snapshot(self.volume, state, **{"owner": owner, **values})["id"]

    def calls(self):
        return [(call.method, call.volume, *call.others) for call in self.driver.calls]

    def messages(self):
        return [
            (row["resource_type"], row["resource_uuid"], row["event_id"])
            for row in messages.page({}, Page(10))
        ]


class TakeTest(SnapshotCase):
    def test_take_calls_driver_and_stores_its_data(self):
        snapshot_id = self.add()
        snapshots.create(self.backend, snapshot_id)
        self.assertEqual([("create_snapshot", self.volume, snapshot_id)], self.calls())
        row = db_rows.get_snapshot(snapshot_id)
        self.assertEqual(("available", None, 100), (row["state"], row["owner"], row["progress"]))
        self.assertIsNone(row["lease_holder"])

    def test_failure_is_reverted_and_stored_with_message(self):
        snapshot_id = self.add()
        with self.driver.failing("create_snapshot"):
            snapshots.create(self.backend, snapshot_id)
        self.assertEqual(["create_snapshot", "delete_snapshot"], [c[0] for c in self.calls()])
        row = db_rows.get_snapshot(snapshot_id)
        self.assertEqual(
            ("error", "Backend error: The backend failed."), (row["state"], row["error"])
        )
        expected = ("VOLUME_SNAPSHOT", snapshot_id, "VOLUME_VOLUME_SNAPSHOT_009_013")
        self.assertEqual([expected], self.messages())

    def test_late_message_does_nothing(self):
        for state in ("available", "deleting", "error"):
            before = db_rows.get_snapshot(self.add(state))
            snapshots.take(self.backend, before["id"])
            after = db_rows.get_snapshot(before["id"])
            self.assertEqual(before["state"], after["state"])
        snapshots.take(self.backend, "gone")
        self.assertEqual([], self.calls())

    def test_volume_is_free_while_snapshot_is_copied_in_background(self):
        self.driver.copies_snapshots = True
        self.addCleanup(setattr, self.driver, "copies_snapshots", False)
        entered, may_end = threading.Event(), threading.Event()
        self.addCleanup(may_end.set)

        def script(_call):
            base.report_progress(0.5)
            entered.set()
            may_end.wait(TIMEOUT)

        self.driver.script = script
        snapshot_id = self.add()
        snapshots.create(self.backend, snapshot_id)
        self.assertTrue(entered.wait(TIMEOUT))
        with self.backend.lock(self.volume):
            self.assertEqual("creating", db_rows.get_snapshot(snapshot_id)["state"])
        may_end.set()
        wait_until(lambda: db_rows.get_snapshot(snapshot_id)["state"] == "available")

    def test_result_of_process_that_was_taken_over_is_not_stored(self):
        snapshot_id = self.add()

        def script(_call):
            snapshot_store.reset(snapshot_id, "error")

        self.driver.script = script
        snapshots.take(self.backend, snapshot_id)
        self.assertEqual("error", db_rows.get_snapshot(snapshot_id)["state"])

    def test_notifications_have_keys_of_cinder(self):
        captured = captured_notifications.use(self)
        snapshot_id = self.add(name="n")
        snapshots.take(self.backend, snapshot_id)
        snapshot_store.transition(snapshot_id, Event.DELETE)
        snapshots.delete(self.backend, snapshot_id)
        sent = captured.messages()
        self.assertEqual(
            [f"snapshot.{step}" for step in
             ("create.start", "create.end", "delete.start", "delete.end")],
            [message["event_type"] for message in sent],
        )  # fmt: skip
        statuses = [message["payload"]["status"] for message in sent]
        self.assertEqual(["creating", "available", "deleting", "deleted"], statuses)


class DeleteTest(SnapshotCase):
    def test_delete_removes_row_and_lock_files(self):
        snapshot_id = self.add("deleting")
        snapshots.delete(self.backend, snapshot_id)
        self.assertEqual([("delete_snapshot", self.volume, snapshot_id)], self.calls())
        self.assertEqual([], db_rows.list_snapshots())
        self.assertEqual([], list(Path(CONF.state_path).rglob(f"*{snapshot_id}*")))

    def test_failure_is_stored_and_deletion_can_be_repeated(self):
        snapshot_id = self.add("deleting")
        with self.driver.failing("delete_snapshot"):
            snapshots.delete(self.backend, snapshot_id)
        self.assertEqual("error_deleting", db_rows.get_snapshot(snapshot_id)["state"])
        expected = ("VOLUME_SNAPSHOT", snapshot_id, "VOLUME_VOLUME_SNAPSHOT_010_016")
        self.assertEqual([expected], self.messages())
        snapshot_store.transition(snapshot_id, Event.DELETE)
        snapshots.delete(self.backend, snapshot_id)
        self.assertEqual([], db_rows.list_snapshots())

    def test_volume_is_deleted_after_its_snapshots(self):
        ids = [self.add("available") for _ in range(2)]
        volume_store.delete_with_snapshots(self.volume)
        with self.driver.failing("delete_snapshot"):
            volumes.delete(self.backend, self.volume)
        row = db_rows.get_volume(self.volume)
        self.assertEqual("error_deleting", row["state"])
        self.assertRegex(row["error"], "Snapshot .* could not be deleted")
        volume_store.delete_with_snapshots(self.volume)
        volumes.delete(self.backend, self.volume)
        self.assertEqual(([], []), (db_rows.list_volumes(), db_rows.list_snapshots()))
        self.assertEqual(["delete"], [call[0] for call in self.calls()[-1:]])
        self.assertEqual(set(ids), {call[2] for call in self.calls()[:-1]})


class DeleteWithVolumeTest(SnapshotCase):
    """Snapshots that are deleted with their volume, by one thread, while recovery runs as well."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(recovery, "GRACE_PERIOD", -1))
        self.thread = threading.Thread(target=volumes.delete, args=(self.backend, self.volume))

    def recover(self):
        return recovery.recover_stale(self.backend, Backoff())

    def test_recovery_leaves_snapshots_to_the_deletion_of_the_volume(self):
        old = self.add("available", created_at=models.now() - datetime.timedelta(minutes=1))
        latest = self.add("available")
        entered, may_end = threading.Event(), threading.Event()
        self.addCleanup(may_end.set)

        def script(_call):
            entered.set()
            may_end.wait(TIMEOUT)

        self.driver.script = script
        volume_store.delete_with_snapshots(self.volume)
        self.thread.start()
        self.assertTrue(entered.wait(TIMEOUT))
        self.driver.script = None
        self.recover()
        self.assertEqual([("delete_snapshot", self.volume, latest)], self.calls())
        may_end.set()
        self.thread.join()
        deleted = [("delete_snapshot", self.volume, item) for item in (latest, old)]
        self.assertEqual([*deleted, ("delete", self.volume)], self.calls())
        self.assertEqual([], db_rows.list_volumes())

    def test_volume_waits_for_a_snapshot_that_another_operation_deletes(self):
        CONF.set_override("attach_timeout", 1, "rpc")
        snapshot_id = self.add("deleting")
        volume_store.delete_with_snapshots(self.volume)
        with self.backend.lock_snapshot(snapshot_id):
            self.thread.start()
            self.thread.join()
        row = db_rows.get_volume(self.volume)
        self.assertEqual(("deleting", None), (row["state"], row["error"]))
        self.recover()
        self.assertEqual(([], []), (db_rows.list_volumes(), db_rows.list_snapshots()))

    def test_recovery_deletes_both_after_the_manager_was_killed(self):
        members.join(killed := models.new_id(), "manager-1")
        snapshot_id = self.add("available")
        volume_store.delete_with_snapshots(self.volume)
        db_rows.change_snapshot(snapshot_id, lease_holder=killed)
        db_rows.change_volume(self.volume, lease_holder=killed)
        self.recover()
        self.assertEqual([], self.calls())
        members.expire(killed)
        self.recover()
        self.assertEqual(([], []), (db_rows.list_volumes(), db_rows.list_snapshots()))

    def test_recovery_deletes_a_snapshot_whose_volume_could_not_be_deleted(self):
        snapshot_id = self.add("available")
        volume_store.delete_with_snapshots(self.volume)
        volume_store.transition(self.volume, Event.DELETE_FAILED)
        self.recover()
        self.assertEqual([("delete_snapshot", self.volume, snapshot_id)], self.calls())
        self.assertEqual("error_deleting", db_rows.get_volume(self.volume)["state"])


class RevertTest(SnapshotCase):
    def setUp(self):
        super().setUp()
        self.snapshot = self.add("available", size_gib=3)
        volume_store.revert(self.volume, self.snapshot)

    def states(self):
        volume = db_rows.get_volume(self.volume)["state"]
        return volume, db_rows.get_snapshot(self.snapshot)["state"]

    def test_revert_calls_driver_and_makes_both_available(self):
        volumes.run_revert(self.backend, self.volume)
        self.assertEqual([("revert", self.volume, self.snapshot)], self.calls())
        self.assertEqual(("ready", "available"), self.states())

    def test_revert_is_requested_while_backend_copies(self):
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        with mock.patch.object(self.driver, "revert", lambda _snapshot: go_on.wait(TIMEOUT)):
            volumes.revert(self.backend, self.volume)
            self.assertEqual(("reverting", "restoring"), self.states())
            go_on.set()
            wait_until(lambda: not self.backend.background_tasks.is_busy)
        self.assertEqual(("ready", "available"), self.states())

    def test_failed_revert_leaves_volume_in_error_with_message(self):
        with self.driver.failing("revert"):
            volumes.run_revert(self.backend, self.volume)
        self.assertEqual(("error", "available"), self.states())
        self.assertEqual([("VOLUME", self.volume, "VOLUME_VOLUME_105_106")], self.messages())

    def test_revert_while_backend_is_away_is_left_to_recovery(self):
        with self.driver.raising(exception.BackendUnreachable("away"), "revert"):
            volumes.run_revert(self.backend, self.volume)
        self.assertEqual(("reverting", "restoring"), self.states())


class VolumeOfSnapshotTest(SnapshotCase):
    def test_volume_is_created_of_snapshot(self):
        snapshot_id = self.add("available", provider={"a": 1})
        made = db_rows.add_volume(
            "creating", owner=backends.HOST, size_gib=5, snapshot_id=snapshot_id
        )["id"]
        volumes.create(self.backend, made)
        self.assertEqual([("create_from_snapshot", made, snapshot_id)], self.calls())
        self.assertEqual("ready", db_rows.get_volume(made)["state"])

    def test_volume_of_missing_snapshot_is_in_error(self):
        made = db_rows.add_volume("creating", owner=backends.HOST, snapshot_id="gone")["id"]
        volumes.create(self.backend, made)
        row = db_rows.get_volume(made)
        self.assertEqual(
            ("error", "Snapshot gone could not be found."), (row["state"], row["error"])
        )


class ManageTest(SnapshotCase):
    """Objects that become snapshots, and snapshots that become objects."""

    def to_manage(self, name="then"):
        return self.add(provider={snapshot_store.TO_MANAGE: {"source-name": name}})

    def test_object_becomes_the_snapshot(self):
        self.driver.existing_snapshots["then"] = self.volume
        snapshot_id = self.to_manage()
        snapshots.take(self.backend, snapshot_id)
        self.assertEqual([("manage_snapshot", self.volume, snapshot_id)], self.calls())
        row = db_rows.get_snapshot(snapshot_id)
        self.assertEqual(("available", {}), (row["state"], row["provider"]))

    def test_object_stays_when_its_failed_snapshot_is_deleted(self):
        self.driver.existing_snapshots["then"] = self.volume
        snapshot_id = self.to_manage()
        with self.driver.failing("manage_snapshot"):
            snapshots.take(self.backend, snapshot_id)
        self.assertEqual("error", db_rows.get_snapshot(snapshot_id)["state"])
        snapshot_store.transition(snapshot_id, Event.DELETE)
        snapshots.delete(self.backend, snapshot_id)
        self.assertEqual([], db_rows.list_snapshots())
        methods = [call[0] for call in self.calls()]
        self.assertEqual(["manage_snapshot", "unmanage_snapshot", "unmanage_snapshot"], methods)
        self.assertEqual({"then": self.volume}, self.driver.existing_snapshots)

    def test_unmanaged_snapshot_leaves_its_data_and_no_row(self):
        snapshot_id = self.add("unmanaging")
        self.driver.create_snapshot(
            base.SnapshotRef(snapshot_id, base.VolumeRef(self.volume, 3), 3)
        )
        snapshots.delete(self.backend, snapshot_id)
        self.assertEqual([], db_rows.list_snapshots())
        expected = {f"snapshot-{snapshot_id}": self.volume}
        self.assertEqual(expected, self.driver.existing_snapshots)

    def test_work_waits_while_the_backend_is_away(self):
        away = exception.BackendUnreachable("It is away.")
        pending, leaving = self.to_manage(), self.add("unmanaging")
        with self.driver.raising(away, "manage_snapshot", "unmanage_snapshot"):
            snapshots.take(self.backend, pending)
            snapshots.delete(self.backend, leaving)
        states = [db_rows.get_snapshot(item)["state"] for item in (pending, leaving)]
        self.assertEqual(["creating", "unmanaging"], states)
        self.assertEqual([], self.messages())

    def test_failed_unmanage_is_an_error_with_message(self):
        snapshot_id = self.add("unmanaging")
        with self.driver.failing("unmanage_snapshot"):
            snapshots.delete(self.backend, snapshot_id)
        self.assertEqual("error", db_rows.get_snapshot(snapshot_id)["state"])
        expected = ("VOLUME_SNAPSHOT", snapshot_id, "VOLUME_VOLUME_SNAPSHOT_006_105")
        self.assertEqual([expected], self.messages())

    def test_list_needs_the_ability(self):
        self.driver.existing_snapshots["then"] = self.volume
        (item,) = snapshots.list_manageable(self.backend)
        self.assertEqual(({"source-name": "then"}, ""), (item["reference"], item["refusal"]))
        found = snapshots.get_manageable(self.backend, self.volume, {"source-name": "then"})
        self.assertEqual(item, found)
        with self.driver.failing("list_manageable_snapshots"):
            self.assertRaises(exception.Unavailable, snapshots.list_manageable, self.backend)
        self.backend.driver = backends.without_abilities(self.driver)
        self.assertRaises(exception.AbilityMissing, snapshots.list_manageable, self.backend)
