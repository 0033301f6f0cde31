# SPDX-License-Identifier: Apache-2.0
"""Devices and files; functional/test_open_handles.py has real ones with devices on top."""

from pathlib import Path
import unittest

from attachd import exception
from attachd.agent.mount import device_nodes, statx


class NodesTest(unittest.TestCase):
    """What a path leads to."""

    def test_a_file_is_itself_by_whatever_path(self):
        node = device_nodes.look(__file__)
        self.assertIsNone(node.number)
        with Path(__file__).open() as file:
            self.assertTrue(node.is_it(statx.stat_of(f"/proc/self/fd/{file.fileno()}")))
        self.assertFalse(node.is_it(statx.stat_of("/")))
        self.assertEqual([node], node.with_partitions())

    def test_what_is_nothing_of_both_is_refused(self):
        self.assertRaises(exception.HostError, device_nodes.look, "/dev/null")
        self.assertRaises(OSError, device_nodes.look, "/dev/no-such-device")

    def test_devices_are_found_by_their_numbers(self):
        for path in Path("/dev").glob("loop[0-9]*"):
            if path.is_block_device():
                node = device_nodes.look(f"{path}")
                self.assertEqual(path.name, node.folder.resolve().name)
                self.assertEqual([node.number], node.numbers())
                self.assertTrue(node.is_it(statx.stat_of(path)))

    def test_a_line_that_is_not_there_is_empty(self):
        self.assertEqual("", device_nodes.line_of(Path("/no/such/file")))
