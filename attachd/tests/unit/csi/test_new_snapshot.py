# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.csi import csi_pb2
from attachd.csi.new_snapshot import NewSnapshot, SnapshotCreator
from attachd.platforms import calls
from attachd.platforms.calls import Call, CallError
from attachd.tests.unit.platforms.fake_storage import FakeStorage, refusal

DRIVER = "csi.example.org"


def _new(name="snapshot-1", volume_id="v", driver=DRIVER, **parameters):
    request = csi_pb2.CreateSnapshotRequest(
        name=name, source_volume_id=volume_id, parameters=parameters
    )
    return NewSnapshot.from_request(driver, request)


class NewSnapshotTest(unittest.TestCase):
    def test_identity_depends_on_driver_and_name(self):
        ids = {_new().id, _new("other").id, _new(driver="other").id}
        self.assertEqual(3, len(ids))
        self.assertEqual(_new().id, _new(volume_id="w").id)

    def test_values_have_source_and_driver(self):
        values = _new("a\tb").values
        self.assertEqual(("a b", "v"), (values["name"], values["volume_id"]))
        self.assertEqual(
            (DRIVER, "a\tb"), tuple(map(values["metadata"].get, ("csi.driver", "csi.name")))
        )

    def test_unknown_parameter_is_refused_by_name(self):
        self.assertEqual("v", _new(**{"csi.storage.k8s.io/volumesnapshot/name": "a"}).volume_id)
        with self.assertRaisesRegex(CallError, "no parameter force-create"):
            _new(**{"force-create": "true"})


class CreationTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()
        self.volume = self.storage.add()

    def create(self, time_limit=30.0, **fields):
        with calls.serving(Call.start(time_limit)):
            creator = SnapshotCreator(self.storage)
            return creator.create(_new(**{"volume_id": self.volume.id, **fields}))

    def failed(self, **fields):
        with self.assertRaises(CallError) as caught:
            self.create(**fields)
        return caught.exception.code.name, f"{caught.exception}"

    def statuses(self, *of_snapshot):
        """Let the volume be read, and the snapshot then have statuses."""
        self.storage.statuses = ["available", *of_snapshot]

    def count(self, name):
        """Return how often something was requested."""
        return [request for request, _ in self.storage.requested].count(name)

    def test_snapshot_is_taken_once_and_recorded(self):
        self.statuses("creating", "creating", "available")
        first, again = self.create(), self.create()
        self.assertEqual((first.id, "available"), (again.id, again.status))
        self.assertEqual(1, self.count("create"))
        self.assertEqual("true", self.storage.snapshots[first.id].metadata["csi.created"])

    def test_call_without_time_is_aborted_and_next_one_finds_snapshot(self):
        code, text = self.failed(time_limit=0.5)
        (snapshot_id,) = self.storage.snapshots
        self.assertEqual("ABORTED", code)
        self.assertIn(f"Snapshot {snapshot_id} is being created", text)
        self.storage.snapshots.change(snapshot_id, status="available")
        self.assertEqual(snapshot_id, self.create().id)

    def test_snapshot_in_error_is_deleted_and_taken_again(self):
        self.statuses("error")
        code, text = self.failed()
        self.assertEqual("UNAVAILABLE", code)
        self.assertIn("The disk is full.", text)
        self.assertEqual({}, self.storage.snapshots)
        self.statuses("available")
        self.assertEqual("available", self.create().status)

    def test_snapshot_of_caller_in_error_is_kept(self):
        self.statuses("available")
        made = self.create()
        self.storage.snapshots.change(made.id, status="error")
        self.assertEqual(made.id, self.create().id)
        self.assertEqual(0, self.count("delete"))

    def test_snapshot_of_same_name_and_other_volume_already_exists(self):
        self.statuses("available")
        made = self.create()
        code, text = self.failed(volume_id=self.storage.add().id)
        self.assertEqual("ALREADY_EXISTS", code)
        self.assertIn(
            f"exists as {made.id}, and it is a snapshot of volume {self.volume.id}", text
        )

    def test_snapshot_of_another_driver_or_of_user_is_not_taken_over(self):
        self.statuses("available")
        other = self.create(driver="other")
        user = self.storage.snapshots.add(
            volume_id=self.volume.id, metadata={"csi.name": "snapshot-1"}
        )
        self.statuses("available")
        self.assertNotIn(self.create().id, {other.id, user.id})

    def test_missing_volume_is_not_found(self):
        self.assertEqual("NOT_FOUND", self.failed(volume_id="none")[0])
        self.assertEqual(0, self.count("create"))

    def test_refusals_have_their_codes(self):
        for refused, code in (
            (refusal(413, "quota_exceeded"), "RESOURCE_EXHAUSTED"),
            (refusal(400, "no_valid_backend"), "FAILED_PRECONDITION"),
            (refusal(404, "volume_not_found"), "NOT_FOUND"),
            (refusal(400, "invalid_volume"), "ABORTED"),
            (refusal(503, "backend_frozen"), "UNAVAILABLE"),
        ):
            self.storage.failures = [refused]
            self.assertEqual(code, self.failed()[0], refused.reason)

    def test_volume_in_error_is_a_failed_precondition(self):
        self.storage.change(self.volume.id, status="error_extending")
        self.storage.failures = [refusal(400, "invalid_volume")]
        self.assertEqual("FAILED_PRECONDITION", self.failed()[0])
