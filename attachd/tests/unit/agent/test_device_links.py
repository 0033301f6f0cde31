# SPDX-License-Identifier: Apache-2.0
"""Stable names in a folder; functional/test_device_links.py has real devices."""

from pathlib import Path
import unittest
from unittest import mock

from attachd.agent import device_links
from attachd.tests.fixtures.lifetime import temp_dir

VOLUME, OTHER = (f"5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a000{number}" for number in range(1, 3))


class DeviceLinksTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = temp_dir(self)
        self.links = self.folder / "disk" / "by-id"
        self.enterContext(mock.patch.object(device_links, "DIRECTORY", self.links))
        self.enterContext(mock.patch.object(Path, "is_block_device", return_value=True))
        self.devices = [self.folder / name for name in ("sda", "sdb")]
        for device in self.devices:
            device.touch()
        self.first, self.second = map(str, self.devices)

    def names(self):
        return {link.name: str(link.readlink()) for link in self.links.iterdir()}

    def test_names_have_volume_and_mode(self):
        device_links.make(VOLUME, "rw", self.first)
        device_links.make(VOLUME, "ro", self.second)
        expected = {f"attachd-{VOLUME}": self.first, f"attachd-{VOLUME}-ro": self.second}
        self.assertEqual(expected, self.names())
        self.assertEqual(f"{self.links}/attachd-{VOLUME}-ro",
                         device_links.find(VOLUME, self.second))  # fmt: skip
        self.assertIsNone(device_links.find(OTHER, self.second))

    def test_name_leads_to_the_last_device(self):
        for device in (self.first, self.second):
            device_links.make(VOLUME, "rw", device)
        self.assertEqual({f"attachd-{VOLUME}": self.second}, self.names())
        device_links.remove(VOLUME, self.first)
        self.assertEqual({f"attachd-{VOLUME}": self.second}, self.names())

    def test_remove_takes_names_of_the_device_and_those_that_lead_nowhere(self):
        device_links.make(VOLUME, "rw", self.first)
        device_links.make(VOLUME, "ro", self.second)
        device_links.make(OTHER, "rw", self.second)
        device_links.remove(VOLUME, self.first)
        self.devices[1].unlink()
        device_links.remove(VOLUME, None)
        device_links.remove(VOLUME, None)
        self.assertEqual({f"attachd-{OTHER}"}, self.names().keys())

    def test_plain_file_has_no_name(self):
        with mock.patch.object(Path, "is_block_device", return_value=False):
            device_links.make(VOLUME, "rw", self.first)
        self.assertFalse(self.links.exists())

    def test_folder_that_cannot_be_written_is_logged(self):
        self.links.parent.write_text("a file")
        with self.assertLogs("attachd.agent.device_links", "WARNING") as logs:
            device_links.make(VOLUME, "rw", self.first)
        self.assertIn(f"device {self.first} has no stable name", logs.output[0])
