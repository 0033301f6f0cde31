# SPDX-License-Identifier: Apache-2.0
"""Capabilities become stagings, or are refused with the reason."""

import unittest

from attachd.agent.staging import Staging
from attachd.csi import csi_pb2, node_staging
from attachd.csi.new_volume import FS_TYPE_CONTEXT
from attachd.platforms.calls import CallError, ErrorCode

_Capability = csi_pb2.VolumeCapability


def mounted(mode="SINGLE_NODE_MULTI_WRITER", **fields):
    """Return the capability of a file system."""
    return _Capability(
        mount=_Capability.MountVolume(**fields), access_mode=_Capability.AccessMode(mode=mode)
    )


class ReadTest(unittest.TestCase):
    def read(self, capability, **context):
        return node_staging.read(capability, context, "/staging")

    def test_type_of_file_system_has_a_default(self):
        key = FS_TYPE_CONTEXT
        for capability, context, expected in (
            (mounted(), {}, "ext4"),
            (mounted(), {key: "xfs"}, "xfs"),
            (mounted(fs_type="ext3"), {key: "xfs"}, "ext3"),
        ):
            self.assertEqual(expected, node_staging.read(capability, context, "/staging").fs_type)

    def test_options_decide_on_access(self):
        flags = ["noatime", "ro", "discard"]
        expected = Staging("/staging", "ext4", read_only=True, options="noatime,discard")
        self.assertEqual(expected, self.read(mounted(mount_flags=flags)))
        self.assertEqual(Staging("/staging", "ext4"), self.read(mounted(mount_flags=["rw"])))

    def test_access_modes_decide_on_writers_and_paths(self):
        for mode, read_only, exclusive in (
            ("SINGLE_NODE_WRITER", False, True),
            ("SINGLE_NODE_SINGLE_WRITER", False, True),
            ("SINGLE_NODE_MULTI_WRITER", False, False),
            ("SINGLE_NODE_READER_ONLY", True, True),
            ("MULTI_NODE_READER_ONLY", True, False),
            ("MULTI_NODE_SINGLE_WRITER", False, False),
        ):
            with self.subTest(mode):
                expected = Staging("/staging", "ext4", read_only, exclusive=exclusive)
                self.assertEqual(expected, self.read(mounted(mode)))

    def test_block_volume_has_no_file_system(self):
        block = _Capability(
            block=_Capability.BlockVolume(),
            access_mode=_Capability.AccessMode(mode="MULTI_NODE_MULTI_WRITER"),
        )
        self.assertEqual(Staging("/staging", None), self.read(block))

    def test_impossible_capabilities_are_refused(self):
        for capability, reason in (
            (mounted("MULTI_NODE_MULTI_WRITER"), "damaged"),
            (mounted(fs_type="btrfs"), "btrfs"),
            (mounted(fs_type="../x"), "no kind of a file system"),
            (mounted(mount_flags=["bind"]), "'bind' cannot be an option"),
            (mounted(mount_flags=['context="a,b"']), "cannot be an option"),
        ):
            with self.assertRaisesRegex(CallError, reason) as raised:
                self.read(capability)
            self.assertEqual(ErrorCode.INVALID_ARGUMENT, raised.exception.code)


class ReadGroupTest(unittest.TestCase):
    def test_group_is_a_number_or_none(self):
        for text, expected in (("", None), ("0", 0), ("1000", 1000), ("4294967294", 2**32 - 2)):
            self.assertEqual(expected, node_staging.read_group(mounted(volume_mount_group=text)))

    def test_other_groups_are_refused(self):
        for text in ("users", "-1", "01", "4294967295", "1e3", "99999999999"):
            with self.assertRaisesRegex(CallError, "no number of a group") as raised:
                node_staging.read_group(mounted(volume_mount_group=text))
            self.assertEqual(ErrorCode.INVALID_ARGUMENT, raised.exception.code)
