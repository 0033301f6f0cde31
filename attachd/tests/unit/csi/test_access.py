# SPDX-License-Identifier: Apache-2.0
import unittest

from attachd.csi import access
from attachd.platforms.calls import CallError, ErrorCode
from attachd.tests.fixtures.csi_requests import block, mount


class AccessTest(unittest.TestCase):
    def test_readers_and_readonly_attach_for_reading(self):
        for mode, readonly, expected in (
            ("SINGLE_NODE_WRITER", False, "rw"),
            ("SINGLE_NODE_WRITER", True, "ro"),
            ("SINGLE_NODE_SINGLE_WRITER", False, "rw"),
            ("SINGLE_NODE_MULTI_WRITER", False, "rw"),
            ("SINGLE_NODE_READER_ONLY", False, "ro"),
            ("MULTI_NODE_READER_ONLY", False, "ro"),
            ("MULTI_NODE_SINGLE_WRITER", False, "rw"),
            ("MULTI_NODE_MULTI_WRITER", False, "rw"),
        ):
            found = access.attach_mode(block(mode), readonly=readonly)
            self.assertEqual(expected, found, (mode, readonly))

    def test_modes_of_several_nodes_need_shared_volume(self):
        for mode in ("READER_ONLY", "SINGLE_WRITER", "MULTI_WRITER"):
            capability = block(f"MULTI_NODE_{mode}")
            self.assertTrue(access.is_multi_node(capability))
            self.assertIn("multiattach", access.find_reason([capability], is_shared=False))
            self.assertEqual("", access.find_reason([capability], is_shared=True))
        self.assertFalse(access.is_multi_node(mount()))
        self.assertEqual("", access.find_reason([mount(), block()], is_shared=False))

    def test_mounts_with_several_writers_are_refused_with_reason(self):
        both = [block(), mount("MULTI_NODE_MULTI_WRITER")]
        self.assertIn(
            "MULTI_NODE_MULTI_WRITER with mount", access.find_reason(both, is_shared=True)
        )
        with self.assertRaises(CallError) as caught:
            access.check(both, is_shared=True)
        self.assertIs(ErrorCode.INVALID_ARGUMENT, caught.exception.code)
