# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.csi import csi_pb2, validation
from attachd.platforms.calls import CallError, ErrorCode

_MODE = csi_pb2.VolumeCapability.AccessMode
MOUNT = csi_pb2.VolumeCapability(
    mount=csi_pb2.VolumeCapability.MountVolume(fs_type="ext4"),
    access_mode=_MODE(mode=_MODE.SINGLE_NODE_WRITER),
)


def _create(**fields):
    settings = {"name": "pvc-1", "volume_capabilities": [MOUNT], **fields}
    return csi_pb2.CreateVolumeRequest(**settings)


class ValidationTest(unittest.TestCase):
    def refused(self, request) -> str:
        """Return the message of the refusal of a request."""
        with self.assertRaises(CallError) as caught:
            validation.check(request)
        self.assertEqual(ErrorCode.INVALID_ARGUMENT, caught.exception.code)
        return f"{caught.exception}"

    def test_complete_requests_are_valid(self):
        validation.check(_create())
        validation.check(_create(name="\N{SNOWMAN}" * 42))
        validation.check(csi_pb2.ListVolumesRequest())
        validation.check(
            csi_pb2.NodeStageVolumeRequest(
                volume_id="v", staging_target_path="/" + "p" * 4000, volume_capability=MOUNT
            )
        )

    def test_table_names_fields_that_exist(self):
        for message, fields in validation.REQUIRED.items():
            known = csi_pb2.DESCRIPTOR.message_types_by_name[message].fields_by_name
            self.assertLessEqual(set(fields), set(known), message)

    def test_each_missing_field_is_refused_by_name(self):
        for message, fields in validation.REQUIRED.items():
            text = self.refused(getattr(csi_pb2, message)())
            self.assertIn(fields[0], text)
            self.assertIn("is required", text)

    def test_missing_message_is_refused(self):
        request = csi_pb2.ControllerPublishVolumeRequest(volume_id="v", node_id="n")
        self.assertIn("volume_capability", self.refused(request))

    def test_long_strings_are_refused_with_size(self):
        self.assertIn("name has 129 bytes, and 128", self.refused(_create(name="n" * 129)))
        self.assertIn("name has 129", self.refused(_create(name="\N{SNOWMAN}" * 43)))
        node = csi_pb2.ControllerUnpublishVolumeRequest(volume_id="v", node_id="n" * 257)
        self.assertIn("node_id has 257", self.refused(node))
        path = csi_pb2.NodeUnpublishVolumeRequest(volume_id="v", target_path="p" * 4097)
        self.assertIn("target_path has 4097", self.refused(path))

    def test_large_maps_and_lists_are_refused(self):
        self.assertIn("parameters has 4097", self.refused(_create(parameters={"k": "v" * 4096})))
        capability = csi_pb2.VolumeCapability()
        capability.CopyFrom(MOUNT)
        capability.mount.mount_flags.extend(["f" * 1000] * 5)
        text = self.refused(_create(volume_capabilities=[capability]))
        self.assertIn("volume_capabilities.mount.mount_flags has 5000", text)

    def test_control_characters_are_refused(self):
        for character in ("\0", "\x1f", "\x7f", "\x85"):
            self.assertIn("control", self.refused(_create(name=f"a{character}")))

    def test_incomplete_capabilities_are_refused(self):
        kinds = csi_pb2.VolumeCapability
        unknown = (
            kinds(access_mode=MOUNT.access_mode),
            kinds(block=kinds.BlockVolume()),
            kinds(block=kinds.BlockVolume(), access_mode=_MODE(mode=99)),
        )
        for capability in unknown:
            text = self.refused(_create(volume_capabilities=[capability]))
            self.assertIn("volume_capabilities.access_", text)
