# SPDX-License-Identifier: Apache-2.0
import itertools
import unittest

from attachd.csi import csi_pb2, new_volume
from attachd.csi.new_volume import NewVolume, SizeRange
from attachd.platforms.calls import CallError, ErrorCode
from attachd.tests.fixtures.csi_requests import GIB, clone, restore, sizes, zone
from attachd.tests.fixtures.csi_requests import new_volume as fields_of
from attachd.tests.unit.platforms.fake_storage import make_snapshot, make_volume


def _new(name="pvc", driver="csi.example.org", **fields):
    request = csi_pb2.CreateVolumeRequest(**fields_of(name, **fields))
    return NewVolume.from_request(driver, request)


class SizeTest(unittest.TestCase):
    def _failed(self, *requested):
        with self.assertRaises(CallError) as caught:
            SizeRange.from_message(sizes(*requested)).choose_gib()
        return caught.exception.code.name

    def test_size_is_smallest_number_of_gib_in_range(self):
        for requested, least, expected in (
            ((), 1, 1),
            ((1,), 1, 1),
            ((GIB,), 1, 1),
            ((GIB + 1,), 1, 2),
            ((GIB, 3 * GIB), 2, 2),
            ((0, GIB), 1, 1),
        ):
            found = SizeRange.from_message(sizes(*requested)).choose_gib(least)
            self.assertEqual(expected, found, requested)

    def test_impossible_sizes_are_out_of_range(self):
        for requested in ((1, GIB - 1), (-1,), (0, -1), (2**62,)):
            self.assertEqual("OUT_OF_RANGE", self._failed(*requested), requested)
        self.assertEqual("INVALID_ARGUMENT", self._failed(2 * GIB, GIB))

    def test_range_has_sizes_between_its_limits(self):
        wanted = SizeRange(GIB + 1, 3 * GIB)
        self.assertEqual([False, True, True, False], [wanted.has(size) for size in (1, 2, 3, 4)])
        self.assertTrue(SizeRange().has(9))


class NewVolumeTest(unittest.TestCase):
    def _refused(self, **fields):
        with self.assertRaises(CallError) as caught:
            _new(**fields)
        self.assertIs(ErrorCode.INVALID_ARGUMENT, caught.exception.code)
        return f"{caught.exception}"

    def _stored(self, new, **values):
        return make_volume(metadata={**new.metadata, "owner": "me"}, **values)

    def test_identity_depends_on_driver_and_name(self):
        ids = {_new().id, _new("other").id, _new(driver="other").id, _new("PVC").id}
        self.assertEqual(4, len(ids))
        self.assertEqual(_new().id, _new(parameters={"fsType": "xfs"}).id)

    def test_values_have_name_without_control_characters(self):
        new = _new("a\tb", parameters={"type": "fast"}, volume_content_source=clone("v"))
        values = new.values(2, "nova")
        self.assertEqual("a b", values["name"])
        self.assertEqual("a\tb", values["metadata"]["csi.name"])
        self.assertEqual(
            (2, "fast", "nova", "v"),
            tuple(
                values[name]
                for name in ("size", "volume_type", "availability_zone", "source_volid")
            ),
        )
        self.assertNotIn("source_volid", _new().values(1, None))

    def test_values_have_snapshot_as_source(self):
        values = _new(volume_content_source=restore("s")).values(2, None)
        self.assertEqual("s", values["snapshot_id"])
        self.assertNotIn("source_volid", values)

    def test_snapshot_of_another_driver_is_no_source(self):
        new = _new(driver="csi.example.org", volume_content_source=restore("s"))
        for driver, expected in (("csi.example.org", True), ("other", False)):
            snapshot = make_snapshot(metadata={"csi.driver": driver})
            self.assertIs(expected, new.is_source(snapshot))
        self.assertTrue(new.is_source(make_snapshot()))

    def test_same_volume_has_no_difference(self):
        for source in (clone("v"), restore("v")):
            new = _new(parameters={"fsType": "xfs"}, volume_content_source=source)
            self.assertEqual("", new.find_difference(self._stored(new)))

    def test_volume_of_another_source_has_difference(self):
        sources = (None, clone("v"), clone("w"), restore("v"), restore("w"))
        for known, requested in itertools.permutations(sources, 2):
            stored = self._stored(_new(volume_content_source=known))
            text = _new(volume_content_source=requested).find_difference(stored)
            self.assertIn("it was created with", text, (known, requested))

    def test_other_volume_has_difference(self):
        stored = self._stored(_new(parameters={"fsType": "xfs"}))
        place = csi_pb2.TopologyRequirement(requisite=[zone("mars")])
        same = {"parameters": {"fsType": "xfs"}}
        for fields, text in (
            ({}, '{"csi.parameter.fsType": "xfs"}'),
            ({"parameters": {"fsType": "ext4"}}, "xfs"),
            ({**same, "volume_content_source": clone("v")}, "created with"),
            ({**same, "capacity_range": sizes(2 * GIB)}, f"size is {GIB} bytes"),
            ({**same, "accessibility_requirements": place}, "zone is nova"),
        ):
            self.assertIn(text, _new(**fields).find_difference(stored))

    def test_keys_differ_by_values_and_number(self):
        new = _new()
        keys = {new.key({"size": size}, number) for size in (1, 2) for number in (0, 1)}
        self.assertEqual(4, len(keys))
        self.assertEqual(new.key({"size": 1}, 0), _new().key({"size": 1}, 0))
        self.assertLess(max(map(len, keys)), 255)

    def test_zones_are_preferred_first_and_each_once(self):
        place = csi_pb2.TopologyRequirement(
            requisite=[zone("a"), zone("b")], preferred=[zone("b"), csi_pb2.Topology()]
        )
        new = _new(accessibility_requirements=place)
        self.assertEqual((("b", "a"), True), (new.zones, new.wants_topology))
        self.assertEqual(((), False), (_new().zones, _new().wants_topology))

    def test_unknown_fields_are_refused_by_name(self):
        key = csi_pb2.TopologyRequirement(requisite=[csi_pb2.Topology(segments={"rack": "1"})])
        for fields, text in (
            ({"parameters": {"size": "1"}}, "no parameter size"),
            ({"mutable_parameters": {"iops": "1"}}, "mutable_parameters"),
            ({"accessibility_requirements": key}, "topology key rack"),
            ({"volume_content_source": clone("")}, "volume_id is required"),
            ({"volume_content_source": restore("")}, "snapshot_id is required"),
        ):
            self.assertIn(text, self._refused(**fields))

    def test_parameters_of_kubernetes_are_ignored(self):
        given = {"csi.storage.k8s.io/pvc/name": "data", "type": "fast"}
        self.assertEqual({"type": "fast"}, new_volume.read_parameters(given))

    def test_stored_volume_has_context_source_and_parameters(self):
        stored = self._stored(_new(parameters={"fsType": "xfs"}, volume_content_source=clone("v")))
        context = {"attachd.fs_type": "xfs", "attachd.copy": "true"}
        self.assertEqual(context, new_volume.context_of(stored))
        self.assertEqual(clone("v"), new_volume.source_of(stored))
        self.assertEqual({"fsType": "xfs"}, new_volume.parameters_of(stored))
        self.assertEqual({}, new_volume.context_of(make_volume()))
        self.assertIsNone(new_volume.source_of(make_volume()))
        stored = self._stored(_new(volume_content_source=restore("s")))
        self.assertEqual(restore("s"), new_volume.source_of(stored))
        self.assertEqual({"attachd.copy": "true"}, new_volume.context_of(stored))

    def test_class_without_parameters_has_those_of_kubernetes_only(self):
        given = {"csi.storage.k8s.io/volumesnapshot/name": "monday"}
        self.assertEqual({}, new_volume.read_parameters(given, ()))
        with self.assertRaisesRegex(CallError, "no parameter type. Parameters are: none."):
            new_volume.read_parameters({"type": "fast"}, ())
