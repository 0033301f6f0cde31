# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.csi import csi_pb2
from attachd.csi.snapshots import Snapshots
from attachd.platforms import calls
from attachd.platforms.calls import Call, CallError
from attachd.tests.fixtures.csi_requests import GIB
from attachd.tests.unit.platforms.fake_storage import FakeStorage, refusal

DRIVER = "csi.example.org"


class SnapshotsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()
        self.snapshots = Snapshots(self.storage, DRIVER)

    def add(self, driver: "str | None" = DRIVER, status="available", **metadata):
        """Add a snapshot of a driver; None: of a user."""
        own = {"csi.driver": driver} if driver else {}
        return self.storage.snapshots.add(status=status, metadata={**own, **metadata})

    def failed(self, call, *arguments):
        with self.assertRaises(CallError) as caught, calls.serving(Call.start(0.5)):
            call(*arguments)
        return caught.exception.code.name, f"{caught.exception}"

    def list(self, **fields):
        answer = self.snapshots.list(csi_pb2.ListSnapshotsRequest(**fields))
        return [entry.snapshot.snapshot_id for entry in answer.entries]

    def test_creation_shows_snapshot(self):
        volume = self.storage.add()
        self.storage.statuses = ["available", "available"]
        request = csi_pb2.CreateSnapshotRequest(name="a", source_volume_id=volume.id)
        shown = self.snapshots.create(request)
        self.assertEqual((volume.id, True), (shown.source_volume_id, shown.ready_to_use))
        self.assertIn(shown.snapshot_id, self.storage.snapshots)

    def test_snapshot_is_shown_with_size_and_time(self):
        shown = self.snapshots.get(self.add().id)
        self.assertEqual(GIB, shown.size_bytes)
        self.assertEqual("2026-01-02T03:04:05Z", shown.creation_time.ToJsonString())
        self.assertEqual("", shown.group_snapshot_id)

    def test_only_available_snapshots_are_ready(self):
        for status, expected in (
            ("available", True),
            ("restoring", False),
            ("deleting", False),
            ("error_deleting", False),
        ):
            snapshot = self.add(status=status)
            self.assertIs(expected, self.snapshots.get(snapshot.id).ready_to_use, status)

    def test_snapshots_that_were_not_taken_are_not_listed(self):
        kept = self.add(status="error", **{"csi.created": "true"})
        for status in ("creating", "error"):
            snapshot = self.add(status=status)
            self.assertFalse(self.snapshots.get(snapshot.id).ready_to_use)
            self.assertEqual([], self.list(snapshot_id=snapshot.id))
        self.assertEqual([kept.id], self.list())

    def test_snapshot_of_user_is_shown_by_id_and_that_of_another_driver_is_not(self):
        user, other = self.add(None), self.add("other")
        self.assertEqual([user.id], self.list(snapshot_id=user.id))
        self.assertEqual([], self.list(snapshot_id=other.id))
        self.assertEqual("NOT_FOUND", self.failed(self.snapshots.get, other.id)[0])

    def test_snapshot_is_listed_by_id_and_volume(self):
        snapshot = self.add()
        self.assertEqual([snapshot.id], self.list(snapshot_id=snapshot.id))
        both = {"snapshot_id": snapshot.id, "source_volume_id": snapshot.volume_id}
        self.assertEqual([snapshot.id], self.list(**both))
        self.assertEqual([], self.list(**{**both, "source_volume_id": "other"}))
        self.assertEqual([], self.list(snapshot_id="none"))

    def test_list_asks_for_snapshots_of_driver(self):
        self.list(source_volume_id="v", max_entries=2)
        filters = ("metadata", f"{{'csi.driver': '{DRIVER}'}}"), ("volume_id", "v")
        self.assertEqual([("page", (2, None, *filters))], self.storage.requested)
        request = csi_pb2.ListSnapshotsRequest(max_entries=-1, snapshot_id="a")
        self.assertEqual("INVALID_ARGUMENT", self.failed(self.snapshots.list, request)[0])

    def test_deletion_is_repeated_with_success(self):
        snapshot = self.add()
        for _ in range(2):
            self.snapshots.delete(snapshot.id)
        self.snapshots.delete("none")
        self.assertEqual([("delete", (snapshot.id,))], self.storage.requested)

    def test_snapshot_of_others_is_not_deleted(self):
        for driver in (None, "other"):
            code, text = self.failed(self.snapshots.delete, self.add(driver).id)
            self.assertEqual("FAILED_PRECONDITION", code)
            self.assertIn("was not created by csi.example.org", text)
        self.assertEqual([], self.storage.requested)

    def test_busy_snapshot_is_waited_for(self):
        for status in ("creating", "restoring"):
            snapshot = self.add(status=status)
            self.assertEqual("ABORTED", self.failed(self.snapshots.delete, snapshot.id)[0])
            self.storage.statuses = [status, status, "available"]
            self.snapshots.delete(snapshot.id)
            self.assertNotIn(snapshot.id, self.storage.snapshots)

    def test_snapshot_of_which_a_volume_is_made_is_in_use(self):
        self.storage.failures = [refusal(400, "invalid_snapshot")]
        code, _ = self.failed(self.snapshots.delete, self.add().id)
        self.assertEqual("FAILED_PRECONDITION", code)
