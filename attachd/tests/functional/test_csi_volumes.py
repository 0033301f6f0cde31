# SPDX-License-Identifier: Apache-2.0
"""Volumes by the Container Storage Interface: attachd-csi before attachd-all-in-one.

Each call is made twice: the second one has the same result.
"""

import unittest
import uuid

from attachd.csi import csi_pb2
from attachd.tests import concurrency, wait
from attachd.tests.fixtures import csi_driver, deployments, http_client
from attachd.tests.fixtures.csi_requests import (
    GIB,
    block,
    clone,
    mount,
    new_volume,
    restore,
    sizes,
    zone,
)

NOWHERE = str(uuid.uuid4())


class VolumeCase(unittest.TestCase):
    """Each test has a new name, and the driver and the all-in-one of the process."""

    maxDiff = None

    def setUp(self):
        super().setUp()
        url = deployments.shared_all_in_one(self).url
        self.api = http_client.Client(f"{url}/v3")
        self.driver = csi_driver.shared(self, url)
        self.volume_name = f"pvc-{uuid.uuid4()}"

    def request(self, **fields):
        """Return a request to create the volume of the test."""
        return new_volume(self.volume_name, **fields)

    def create(self, **fields):
        """Create the volume of the test, by two calls."""
        first, again = (
            self.driver.call("CreateVolume", **self.request(**fields)).volume for _ in range(2)
        )
        self.assertEqual(first, again)
        return first

    def volumes(self):
        """Return the volumes of the API."""
        return self.api.request_json("GET", "/volumes/detail")["volumes"]

    def create_type(self, **specs):
        """Create a volume type; return its name."""
        name = f"type-{uuid.uuid4()}"
        body = {"volume_type": {"name": name, "extra_specs": specs}}
        self.api.request_json("POST", "/types", body)
        return name

    def fail_to_create(self, code, **fields):
        """Check that the volume of the test cannot be created; return the message."""
        return self.driver.fail(code, "CreateVolume", **self.request(**fields))


class CreateTest(VolumeCase):
    def test_create_volume_has_size_and_name(self):
        volume = self.create(capacity_range=sizes(GIB + 1))
        (stored,) = self.volumes()
        self.assertEqual((volume.volume_id, 2 * GIB), (stored["id"], volume.capacity_bytes))
        self.assertEqual((self.volume_name, 2), (stored["name"], stored["size"]))
        self.assertEqual([], list(volume.accessible_topology))
        self.assertEqual({}, dict(volume.volume_context))

    def test_create_volume_without_size_has_smallest(self):
        self.assertEqual(GIB, self.create(capacity_range=sizes()).capacity_bytes)

    def test_create_volume_with_name_in_unicode(self):
        self.volume_name = "\N{SNOWMAN}" * 42
        self.create()
        self.assertEqual(self.volume_name, self.volumes()[0]["name"])

    def test_create_volume_with_type_and_file_system(self):
        name = self.create_type()
        volume = self.create(
            parameters={
                "type": name,
                "fsType": "xfs",
                "csi.storage.k8s.io/pvc/name": "data",
            }
        )
        self.assertEqual(name, self.volumes()[0]["volume_type"])
        self.assertEqual({"attachd.fs_type": "xfs"}, dict(volume.volume_context))

    def test_create_volume_in_zone_shows_topology(self):
        place = csi_pb2.TopologyRequirement(
            requisite=[zone("mars"), zone("nova")], preferred=[zone("mars")]
        )
        volume = self.create(accessibility_requirements=place)
        self.assertEqual([zone("nova")], list(volume.accessible_topology))

    def test_create_volume_from_volume_clones_it(self):
        source = self.create()
        self.volume_name = f"{self.volume_name}-clone"
        volume = self.create(volume_content_source=clone(source.volume_id))
        self.assertEqual(clone(source.volume_id), volume.content_source)
        (stored,) = [item for item in self.volumes() if item["id"] == volume.volume_id]
        self.assertEqual(source.volume_id, stored["source_volid"])

    def test_create_volume_from_volume_in_zone_of_source(self):
        source = self.create()
        self.volume_name = f"{self.volume_name}-clone"
        fields = {"volume_content_source": clone(source.volume_id)}
        # As external-provisioner asks for a pod that may run in several zones.
        place = csi_pb2.TopologyRequirement(
            requisite=[zone("mars"), zone("nova")], preferred=[zone("mars"), zone("nova")]
        )
        elsewhere = csi_pb2.TopologyRequirement(requisite=[zone("mars")])
        text = self.fail_to_create(
            "RESOURCE_EXHAUSTED", accessibility_requirements=elsewhere, **fields
        )
        self.assertIn(f"that of volume {source.volume_id}, nova", text)
        volume = self.create(accessibility_requirements=place, **fields)
        self.assertEqual([zone("nova")], list(volume.accessible_topology))

    def test_create_volume_for_several_nodes_needs_type(self):
        several = [block("MULTI_NODE_MULTI_WRITER"), mount("MULTI_NODE_READER_ONLY")]
        text = self.fail_to_create("INVALID_ARGUMENT", volume_capabilities=several)
        self.assertIn("multiattach='<is> True'", text)
        name = self.create_type(multiattach="<is> True")
        self.create(volume_capabilities=several, parameters={"type": name})

    def test_create_volume_with_invalid_arguments_is_refused_by_field(self):
        key = csi_pb2.Topology(segments={"zone": "nova"})
        cases = (
            ({"name": ""}, "name"),
            ({"name": "n" * 129}, "name has 129 bytes"),
            ({"name": "a\0"}, "name has control characters"),
            ({"volume_capabilities": []}, "volume_capabilities"),
            ({"volume_capabilities": [csi_pb2.VolumeCapability()]}, "access_type"),
            ({"parameters": {"size": "1"}}, "parameter size"),
            ({"parameters": {"type": "none"}}, "no volume type: none"),
            ({"mutable_parameters": {"iops": "1"}}, "mutable_parameters"),
            ({"capacity_range": sizes(2 * GIB, GIB)}, "limit_bytes"),
            ({"volume_content_source": clone("")}, "volume_content_source.volume.volume_id"),
            (
                {"volume_content_source": restore("")},
                "volume_content_source.snapshot.snapshot_id",
            ),
            (
                {"accessibility_requirements": csi_pb2.TopologyRequirement(requisite=[key])},
                "topology key zone",
            ),
            ({"volume_capabilities": [mount("MULTI_NODE_MULTI_WRITER")]}, "Use block"),
        )
        for fields, text in cases:
            with self.subTest(text):
                self.assertIn(text, self.fail_to_create("INVALID_ARGUMENT", **fields))
        self.assertEqual([], self.volumes())

    def test_create_volume_out_of_range_is_refused(self):
        for requested in (sizes(1, GIB - 1), sizes(2**62), sizes(-1)):
            self.fail_to_create("OUT_OF_RANGE", capacity_range=requested)
        name = self.create_type(**{"provisioning:max_vol_size": "1"})
        text = self.fail_to_create(
            "OUT_OF_RANGE", capacity_range=sizes(2 * GIB), parameters={"type": name}
        )
        self.assertIn("at most 1", text)
        source = self.create(capacity_range=sizes(2 * GIB))
        self.volume_name += "-clone"
        self.fail_to_create(
            "OUT_OF_RANGE",
            capacity_range=sizes(GIB, GIB),
            volume_content_source=clone(source.volume_id),
        )

    def test_create_volume_from_missing_source_is_not_found(self):
        for source in (NOWHERE, "none"):
            self.fail_to_create("NOT_FOUND", volume_content_source=clone(source))
            self.fail_to_create("NOT_FOUND", volume_content_source=restore(source))

    def test_create_volume_where_no_backend_is_exhausts_resources(self):
        place = csi_pb2.TopologyRequirement(requisite=[zone("mars")])
        text = self.fail_to_create("RESOURCE_EXHAUSTED", accessibility_requirements=place)
        self.assertIn("mars", text)

    def test_create_volume_beyond_quota_succeeds_when_quota_is_raised(self):
        def limit(number):
            body = {"quota_set": {"volumes": number}}
            self.api.request_json("PUT", f"/os-quota-sets/{project}", body)

        project = self.project()
        self.addCleanup(limit, -1)
        limit(1)
        self.assertIn("exceeded", self.fail_to_create("RESOURCE_EXHAUSTED"))
        limit(-1)
        self.create()

    def project(self):
        """Return the project, which then has a volume."""
        volume = self.api.request_json("POST", "/volumes", {"volume": {"size": 1}})["volume"]
        path = f"/volumes/{volume['id']}"
        wait.wait_until(lambda: self.status(path) == "available")
        return self.api.request_json("GET", path)["volume"]["os-vol-tenant-attr:tenant_id"]

    def status(self, path):
        return self.api.request_json("GET", path)["volume"]["status"]

    def test_create_volume_with_other_arguments_already_exists(self):
        self.create(parameters={"fsType": "xfs"})
        several = block("MULTI_NODE_MULTI_WRITER")
        other = csi_pb2.TopologyRequirement(requisite=[zone("mars")])
        same = {"parameters": {"fsType": "xfs"}}
        for fields in (
            {"parameters": {"fsType": "ext4"}},
            {"parameters": {}},
            {**same, "capacity_range": sizes(2 * GIB)},
            {**same, "volume_content_source": clone(NOWHERE)},
            {**same, "volume_capabilities": [several]},
            {**same, "accessibility_requirements": other},
        ):
            with self.subTest(fields):
                self.fail_to_create("ALREADY_EXISTS", **fields)
        self.create(**same, capacity_range=sizes(0, GIB))

    def test_create_volume_by_two_controllers_at_once_creates_one(self):
        other = csi_driver.CsiDriver(self, deployments.shared_all_in_one(self).url)
        for _ in range(3):
            self.volume_name = f"pvc-{uuid.uuid4()}"
            calls = [
                lambda driver=driver: driver.call("CreateVolume", **self.request()).volume
                for driver in (self.driver, other) * 2
            ]
            answers = concurrency.run_at_once(*calls)
            self.assertEqual(1, len({volume.volume_id for volume in answers}), answers)
        self.assertEqual(3, len(self.volumes()))

    def test_create_volume_after_delete_creates_another_one(self):
        for _ in range(3):
            volume = self.create()
            self.driver.call("DeleteVolume", volume_id=volume.volume_id)
        self.assertEqual([], self.volumes())


class DeleteTest(VolumeCase):
    def test_delete_volume_again_succeeds(self):
        volume = self.create()
        for _ in range(2):
            self.driver.call("DeleteVolume", volume_id=volume.volume_id)
        self.assertEqual([], self.volumes())

    def test_delete_volume_that_never_was_succeeds(self):
        for volume_id in (NOWHERE, "none", "../types", "\N{SNOWMAN}"):
            self.driver.call("DeleteVolume", volume_id=volume_id)

    def test_delete_volume_without_id_is_refused(self):
        self.driver.fail("INVALID_ARGUMENT", "DeleteVolume")

    def test_delete_volume_in_use_is_refused(self):
        volume = self.create()
        body = {"attachment": {"volume_uuid": volume.volume_id}}
        self.api.request_json("POST", "/attachments", body)
        self.driver.fail("FAILED_PRECONDITION", "DeleteVolume", volume_id=volume.volume_id)


class ReadTest(VolumeCase):
    def test_list_volumes_in_pages_shows_each_once(self):
        created = []
        for number in range(5):
            self.volume_name = f"{self.volume_name}-{number}"
            created.append(self.create().volume_id)
        for size in (0, 1, 2, 5, 9):
            listed, token = [], ""
            while True:
                page = self.driver.call("ListVolumes", max_entries=size, starting_token=token)
                listed += [entry.volume.volume_id for entry in page.entries]
                token = page.next_token
                if not token:
                    break
            self.assertEqual(created, listed, size)

    def test_list_volumes_with_invalid_token_is_aborted(self):
        for token in ("none", NOWHERE, "1"):
            self.driver.fail("ABORTED", "ListVolumes", starting_token=token)
        self.driver.fail("INVALID_ARGUMENT", "ListVolumes", max_entries=-1)

    def test_get_volume_shows_condition(self):
        volume = self.create()
        for _ in range(2):
            found = self.driver.call("ControllerGetVolume", volume_id=volume.volume_id)
            self.assertEqual(volume.volume_id, found.volume.volume_id)
            self.assertFalse(found.status.volume_condition.abnormal)
            self.assertEqual([], list(found.status.published_node_ids))
        body = {"os-reset_status": {"status": "error"}}
        self.api.request_json("POST", f"/volumes/{volume.volume_id}/action", body)
        found = self.driver.call("ControllerGetVolume", volume_id=volume.volume_id)
        self.assertTrue(found.status.volume_condition.abnormal)
        self.assertIn("error", found.status.volume_condition.message)
        self.driver.fail("NOT_FOUND", "ControllerGetVolume", volume_id=NOWHERE)

    def test_validate_capabilities_confirms_or_gives_reason(self):
        volume = self.create(parameters={"fsType": "xfs"})

        def validate(**fields):
            request = {"volume_capabilities": [mount()], **fields}
            return self.driver.call(
                "ValidateVolumeCapabilities", volume_id=volume.volume_id, **request
            )

        for _ in range(2):
            self.assertEqual(
                [mount()],
                list(validate(parameters={"fsType": "xfs"}).confirmed.volume_capabilities),
            )
        for fields in (
            {"volume_capabilities": [mount(), block("MULTI_NODE_READER_ONLY")]},
            {"parameters": {"fsType": "ext4"}},
            {"mutable_parameters": {"iops": "1"}},
        ):
            answer = validate(**fields)
            self.assertFalse(answer.HasField("confirmed"), fields)
            self.assertTrue(answer.message, fields)
        self.driver.fail(
            "NOT_FOUND",
            "ValidateVolumeCapabilities",
            volume_id=NOWHERE,
            volume_capabilities=[mount()],
        )
        self.driver.fail(
            "INVALID_ARGUMENT", "ValidateVolumeCapabilities", volume_id=volume.volume_id
        )

    def test_capacity_depends_on_type_and_zone(self):
        free = self.driver.call("GetCapacity", accessible_topology=zone("nova"))
        self.assertGreater(free.available_capacity, GIB)
        self.assertGreater(free.maximum_volume_size.value, GIB)
        self.assertEqual(GIB, free.minimum_volume_size.value)
        name = self.create_type(storage_protocol="none")
        both = [mount("MULTI_NODE_MULTI_WRITER")]
        for fields in (
            {"accessible_topology": zone("mars")},
            {"parameters": {"type": name}},
            {"volume_capabilities": both},
        ):
            answer = self.driver.call("GetCapacity", **fields)
            self.assertEqual(0, answer.available_capacity, fields)
        self.driver.fail("INVALID_ARGUMENT", "GetCapacity", parameters={"type": "none"})


class ExpandTest(VolumeCase):
    def expand(self, volume, *requested):
        return self.driver.call(
            "ControllerExpandVolume", volume_id=volume.volume_id, capacity_range=sizes(*requested)
        )

    def test_expand_volume_again_has_same_size(self):
        volume = self.create()
        for _ in range(2):
            answer = self.expand(volume, 2 * GIB - 1)
            self.assertEqual(2 * GIB, answer.capacity_bytes)
            self.assertTrue(answer.node_expansion_required)
        self.assertEqual(2 * GIB, self.expand(volume, GIB).capacity_bytes)
        self.assertEqual(2, self.volumes()[0]["size"])

    def test_expand_volume_out_of_range_is_refused(self):
        volume = self.create(capacity_range=sizes(2 * GIB))
        for requested in (sizes(GIB, GIB), sizes(2 * GIB + 1, 3 * GIB - 1), sizes(2**62)):
            self.driver.fail(
                "OUT_OF_RANGE",
                "ControllerExpandVolume",
                volume_id=volume.volume_id,
                capacity_range=requested,
            )

    def test_expand_volume_beyond_its_type_is_out_of_range(self):
        name = self.create_type(**{"provisioning:max_vol_size": "1"})
        volume = self.create(parameters={"type": name})
        text = self.driver.fail(
            "OUT_OF_RANGE",
            "ControllerExpandVolume",
            volume_id=volume.volume_id,
            capacity_range=sizes(2 * GIB),
        )
        self.assertIn("at most 1", text)

    def test_expand_missing_volume_is_not_found(self):
        for volume_id in (NOWHERE, "none"):
            self.driver.fail(
                "NOT_FOUND",
                "ControllerExpandVolume",
                volume_id=volume_id,
                capacity_range=sizes(GIB),
            )
        self.driver.fail("INVALID_ARGUMENT", "ControllerExpandVolume", volume_id=NOWHERE)
