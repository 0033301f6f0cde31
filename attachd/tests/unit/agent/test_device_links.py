# SPDX-License-Identifier: Apache-2.0
"""Stable names in a folder; functional/test_device_links.py has real devices."""

from pathlib import Path
import unittest
from unittest import mock

from attachd.agent import device_links
from attachd.linux import block_device
from attachd.tests.fixtures.lifetime import temp_dir

VOLUME, OTHER = (f"5b0c6c1e-3f0f-4a39-9a0c-6d9f6f3a000{number}" for number in range(1, 3))


class DeviceLinksTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = temp_dir(self)
        self.links = self.folder / "disk" / "by-id"
        self.records = self.folder / "records"
        self.enterContext(mock.patch.object(device_links, "DIRECTORY", self.links))
        self.enterContext(mock.patch.object(device_links, "RECORDS", self.records))
        self.enterContext(mock.patch.object(Path, "is_block_device", Path.exists))
        self.numbers = {}
        self.enterContext(
            mock.patch.object(block_device, "sequence_number", side_effect=self.sequence_number)
        )
        self.devices = [self.folder / name for name in ("sda", "sdb")]
        for device in self.devices:
            device.touch()
        self.first, self.second = map(str, self.devices)

    def sequence_number(self, path):
        return self.numbers.get(f"{Path(path).resolve()}", "7")

    def names(self):
        """Return the names and their devices; each has a record, and no other has one."""
        names = {link.name: str(link.readlink()) for link in self.links.iterdir()}
        self.assertEqual(names.keys(), {record.name for record in self.records.iterdir()})
        return names

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

    def test_remove_takes_the_names_of_the_device_alone(self):
        device_links.make(VOLUME, "rw", self.first)
        device_links.make(VOLUME, "ro", self.second)
        device_links.make(OTHER, "rw", self.first)
        device_links.remove(VOLUME, self.first)
        self.assertEqual({f"attachd-{VOLUME}-ro", f"attachd-{OTHER}"}, self.names().keys())

    def test_remove_without_a_known_device_takes_stale_names_alone(self):
        device_links.make(VOLUME, "rw", self.first)
        device_links.make(VOLUME, "ro", self.second)
        self.devices[1].unlink()
        device_links.remove(VOLUME, None)
        self.assertEqual({f"attachd-{VOLUME}": self.first}, self.names())

    def test_name_whose_device_is_gone_is_removed(self):
        device_links.make(VOLUME, "rw", self.first)
        device_links.make(OTHER, "rw", self.second)
        self.devices[0].unlink()
        device_links.remove_stale()
        device_links.remove_stale()
        self.assertEqual({f"attachd-{OTHER}": self.second}, self.names())

    def test_name_whose_path_is_another_disk_is_removed(self):
        device_links.make(VOLUME, "rw", self.first)
        device_links.make(OTHER, "rw", self.second)
        self.numbers[self.first] = "8"
        self.assertIsNone(device_links.find(VOLUME, self.first))
        device_links.remove_stale()
        self.assertEqual({f"attachd-{OTHER}": self.second}, self.names())

    def test_name_without_a_record_is_not_trusted(self):
        device_links.make(VOLUME, "rw", self.first)
        (self.records / f"attachd-{VOLUME}").unlink()
        self.assertIsNone(device_links.find(VOLUME, self.first))
        device_links.remove_stale()
        self.assertEqual({}, self.names())

    def test_names_of_others_stay(self):
        self.links.mkdir(parents=True)
        self.records.mkdir()
        other = self.links / "scsi-1234"
        other.symlink_to(self.folder / "missing")
        device_links.remove_stale()
        self.assertTrue(other.is_symlink())

    def test_plain_file_has_no_name(self):
        with mock.patch.object(Path, "is_block_device", return_value=False):
            device_links.make(VOLUME, "rw", self.first)
        self.assertFalse(self.links.exists())

    def test_folder_that_cannot_be_written_is_logged(self):
        self.links.parent.write_text("a file")
        with self.assertLogs("attachd.agent.device_links", "WARNING") as logs:
            device_links.make(VOLUME, "rw", self.first)
        self.assertIn(f"device {self.first} has no stable name", logs.output[0])
