# SPDX-License-Identifier: Apache-2.0
"""Devices and files, told from each other; see functional/test_users.py for real ones on top."""

from pathlib import Path
import unittest

from attachd import exception
from attachd.agent.mounting import nodes, statx


class NodesTest(unittest.TestCase):
    """What a path leads to."""

    def test_a_file_is_itself_by_whatever_path(self):
        node = nodes.look(__file__)
        self.assertIsNone(node.number)
        with Path(__file__).open() as file:
            self.assertTrue(node.is_it(statx.stat_of(f"/proc/self/fd/{file.fileno()}")))
        self.assertFalse(node.is_it(statx.stat_of("/")))
        self.assertEqual([node], node.with_partitions())

    def test_what_is_nothing_of_both_is_refused(self):
        self.assertRaises(exception.HostError, nodes.look, "/dev/null")
        self.assertRaises(OSError, nodes.look, "/dev/no-such-device")

    def test_devices_are_found_by_their_numbers(self):
        for path in Path("/dev").glob("loop[0-9]*"):
            if path.is_block_device():
                node = nodes.look(f"{path}")
                self.assertEqual(path.name, node.folder.resolve().name)
                self.assertEqual([node.number], node.numbers())
                self.assertTrue(node.is_it(statx.stat_of(path)))

    def test_a_line_that_is_not_there_is_empty(self):
        self.assertEqual("", nodes.line_of(Path("/no/such/file")))
