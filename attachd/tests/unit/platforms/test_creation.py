# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.csi import csi_pb2
from attachd.csi.new_volume import NewVolume
from attachd.platforms import calls
from attachd.platforms.calls import Call, CallError
from attachd.platforms.creation import VolumeCreator
from attachd.tests.fixtures.csi_requests import (
    GIB,
    block,
    clone,
    new_volume,
    restore,
    sizes,
    zone,
)
from attachd.tests.unit.platforms.fake_storage import FakeStorage, refusal

_REPLAYED = {"Idempotent-Replayed": "true"}


class CreationTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.storage = FakeStorage()
        self.storage.statuses = ["creating", "available"]

    def create(self, *, time_limit=30.0, creator=None, **fields):
        request = csi_pb2.CreateVolumeRequest(**new_volume("pvc", **fields))
        new = NewVolume.from_request("csi.example.org", request)
        creator = creator or VolumeCreator(self.storage)
        with calls.serving(Call.start(time_limit)):
            return creator.create(new)

    def failed(self, **fields):
        """Return code and message of a call that fails."""
        with self.assertRaises(CallError) as caught:
            self.create(**fields)
        return caught.exception.code.name, f"{caught.exception}"

    def keys(self):
        """Return the idempotency keys of the requests."""
        return [arguments[0] for name, arguments in self.storage.requested if name == "create"]

    def test_volume_is_created_once_and_recorded(self):
        first, again = self.create(), self.create()
        self.assertEqual((first.id, "available"), (again.id, again.status))
        self.assertEqual(1, len(self.keys()))
        self.assertEqual("true", self.storage.volumes[first.id].metadata["csi.created"])

    def test_call_without_time_is_aborted_and_next_one_finds_volume(self):
        self.storage.statuses = []
        code, text = self.failed(time_limit=0.5)
        self.assertEqual("ABORTED", code)
        (volume_id,) = self.storage.volumes
        self.assertIn(f"Volume {volume_id} is being created", text)
        self.storage.change(volume_id, status="available")
        self.assertEqual(volume_id, self.create().id)

    def test_refusal_that_was_stored_is_followed_by_new_key(self):
        creator = VolumeCreator(self.storage)
        self.storage.failures = [refusal(413, "quota_exceeded")]
        self.assertEqual("RESOURCE_EXHAUSTED", self.failed(creator=creator)[0])
        self.storage.failures = [refusal(413, "quota_exceeded", **_REPLAYED)]
        self.create(creator=creator)
        first, second, third = self.keys()
        self.assertEqual(first, second)
        self.assertNotEqual(first, third)

    def test_number_of_attempt_is_remembered_and_found_again(self):
        creator = VolumeCreator(self.storage)
        self.storage.failures = [refusal(413, **_REPLAYED)] * 3
        made = self.create(creator=creator)
        number = len(self.keys())
        del self.storage.volumes[made.id]
        self.storage.statuses = ["available"]
        self.create(creator=creator)
        self.assertEqual(number + 2, len(self.keys()))  # that is gone, and the next one
        self.assertEqual(self.keys()[0], self.keys_of_new_controller()[0])

    def keys_of_new_controller(self):
        self.storage.requested.clear()
        self.storage.volumes.clear()
        self.storage.statuses = ["available"]
        self.create()
        return self.keys()

    def test_key_in_use_is_aborted(self):
        self.storage.failures = [refusal(409, "key_in_use")]
        self.assertEqual("ABORTED", self.failed()[0])

    def test_volume_of_same_name_that_is_being_deleted_is_waited_for(self):
        made = self.create()
        self.storage.change(made.id, status="deleting")
        code, text = self.failed(time_limit=0.5)
        self.assertEqual("ABORTED", code)
        self.assertIn(f"Volume {made.id} is being deleted", text)
        self.storage.statuses = ["deleting", None, "creating", "available"]
        self.assertNotEqual(made.id, self.create().id)

    def test_failed_volume_is_deleted_and_reported(self):
        self.storage.statuses = ["creating", "error"]
        code, text = self.failed()
        self.assertEqual("UNAVAILABLE", code)
        self.assertIn("The disk is full.", text)
        self.assertEqual({}, self.storage.volumes)
        self.storage.statuses = ["available"]
        self.assertEqual("available", self.create().status)

    def test_volume_of_caller_in_error_is_kept(self):
        made = self.create()
        self.storage.change(made.id, status="error")
        self.assertEqual(made.id, self.create().id)
        self.assertIn(made.id, self.storage.volumes)

    def test_volume_that_disappears_is_aborted(self):
        self.storage.statuses = ["creating", None]
        self.assertEqual("ABORTED", self.failed()[0])

    def test_other_volume_of_same_name_already_exists(self):
        self.create()
        code, text = self.failed(capacity_range=sizes(2 * GIB))
        self.assertEqual("ALREADY_EXISTS", code)
        self.assertIn(f"its size is {GIB} bytes", text)
        several = [block("MULTI_NODE_MULTI_WRITER")]
        self.assertEqual("ALREADY_EXISTS", self.failed(volume_capabilities=several)[0])

    def test_type_must_allow_several_nodes(self):
        several = [block("MULTI_NODE_MULTI_WRITER")]
        self.assertEqual("INVALID_ARGUMENT", self.failed(volume_capabilities=several)[0])
        self.assertEqual([], self.keys())

    def test_zones_are_tried_in_order(self):
        place = csi_pb2.TopologyRequirement(preferred=[zone("mars"), zone("nova")])
        self.storage.failures = [refusal(400, "no_valid_backend")]
        self.assertEqual("nova", self.create(accessibility_requirements=place).zone)

    def test_zone_without_source_is_followed_by_next_one(self):
        place = csi_pb2.TopologyRequirement(preferred=[zone("mars"), zone("nova")])
        fields = {
            "accessibility_requirements": place,
            "volume_content_source": restore(self.storage.snapshots.add().id),
        }
        text = "Invalid input for field/attribute availability_zone. Value: mars."
        refused = refusal(400, "invalid_input", text)
        self.storage.failures = [refused] * 2
        self.storage.statuses = ["available"] * 3
        self.assertEqual("RESOURCE_EXHAUSTED", self.failed(**fields)[0])
        self.storage.failures = [refused]
        self.assertEqual("nova", self.create(**fields).zone)

    def test_no_zone_with_backend_exhausts_resources(self):
        place = csi_pb2.TopologyRequirement(preferred=[zone("mars"), zone("nova")])
        self.storage.failures = [refusal(400, "no_valid_backend")] * 2
        self.assertEqual("RESOURCE_EXHAUSTED", self.failed(accessibility_requirements=place)[0])

    def test_refused_sizes_and_sources_have_their_codes(self):
        text = "Invalid input for field/attribute size. Value: 9. The type allows less."
        self.storage.failures = [refusal(400, "invalid_input", text)]
        self.assertEqual("OUT_OF_RANGE", self.failed()[0])
        for reason in ("invalid_volume", "invalid_snapshot"):
            self.storage.failures = [refusal(400, reason)]
            self.assertEqual("INVALID_ARGUMENT", self.failed()[0])

    def test_clone_has_at_least_size_of_source(self):
        source = self.storage.add(size_gib=3)
        self.storage.statuses = []
        code, _ = self.failed(volume_content_source=clone(source.id), time_limit=0.5)
        self.assertEqual("ABORTED", code)
        sizes_gib = sorted(volume.size_gib for volume in self.storage.volumes.values())
        self.assertEqual([3, 3], sizes_gib)

    def test_volume_of_snapshot_has_at_least_its_size(self):
        snapshot = self.storage.snapshots.add(size_gib=3)
        self.storage.statuses = ["available"] * 2
        self.assertEqual(3, self.create(volume_content_source=restore(snapshot.id)).size_gib)
        small = {"volume_content_source": restore(snapshot.id), "capacity_range": sizes(1, GIB)}
        self.storage.volumes.clear()
        self.assertEqual("OUT_OF_RANGE", self.failed(**small)[0])

    def test_volume_of_missing_or_foreign_snapshot_is_not_found(self):
        foreign = self.storage.snapshots.add(metadata={"csi.driver": "other"})
        self.storage.statuses = []
        for snapshot_id in ("none", foreign.id):
            code, text = self.failed(volume_content_source=restore(snapshot_id))
            self.assertEqual("NOT_FOUND", code)
            self.assertIn(f"no snapshot {snapshot_id}", text)

    def test_volume_of_busy_snapshot_is_aborted(self):
        self.storage.statuses = []
        for status in ("creating", "restoring"):
            snapshot = self.storage.snapshots.add(status=status)
            code, text = self.failed(volume_content_source=restore(snapshot.id))
            self.assertEqual("ABORTED", code)
            self.assertIn(f"Snapshot {snapshot.id}, the source, is {status}", text)

    def test_deletion_that_failed_is_repeated_before_new_volume(self):
        made = self.create()
        self.storage.change(made.id, status="error_deleting")
        self.storage.statuses = ["error_deleting", "available"]
        self.assertNotEqual(made.id, self.create().id)
        self.assertNotIn(made.id, self.storage.volumes)

    def test_clone_of_missing_or_unfinished_source_is_refused(self):
        self.assertEqual("NOT_FOUND", self.failed(volume_content_source=clone("none"))[0])
        source = self.storage.add(status="creating")
        self.storage.statuses = []
        self.assertEqual("ABORTED", self.failed(volume_content_source=clone(source.id))[0])
