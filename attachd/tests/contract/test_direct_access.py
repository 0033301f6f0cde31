# SPDX-License-Identifier: Apache-2.0
"""The part of the drivers' contract on volumes that the manager reads and writes; see
test_drivers.py.
"""

import secrets
import uuid

import testscenarios

from attachd import exception
from attachd.drivers import abilities, base
from attachd.tests.contract.driving import GIB, MIB, ZEROS, DriverCase

load_tests = testscenarios.load_tests_apply_scenarios


class DirectAccessTest(DriverCase):
    """open_data."""

    def setUp(self):
        super().setUp()
        self.require_ability(abilities.DirectAccess)

    def write(self, volume, *pieces) -> None:
        """Write some bytes as the manager does."""
        with self.driver.open_data(volume, "rw") as data:
            for offset, content in pieces:
                data.write(offset, content)

    def test_written_data_is_that_of_the_volume(self):
        host = self.host()
        first, last = secrets.token_bytes(MIB), secrets.token_bytes(64 * 1024)
        volume, end = self.volume(), GIB - 64 * 1024
        self.write(volume, (5 * MIB, first), (end, last))
        info = self.granted(volume, self.export())
        self.assertEqual(GIB, host.size(info))
        self.assertEqual(first, host.read(info, 5 * MIB, len(first)))
        self.assertEqual(last, host.read(info, end, len(last)))
        for offset in (0, 5 * MIB - len(ZEROS), 6 * MIB, 512 * MIB):
            self.assertEqual(ZEROS, host.read(info, offset, len(ZEROS)))

    def test_data_of_host_is_read(self):
        host, volume = self.host(), self.volume()
        info = self.granted(volume, self.export())
        host.write(info, MIB, b"data" * 1024)
        with self.driver.open_data(volume, "ro") as data:
            self.assertEqual(b"data" * 1024, data.read(MIB, 4096))
            self.assertEqual(ZEROS, data.read(GIB - len(ZEROS), len(ZEROS)))
        self.assertEqual(b"data" * 1024, host.read(info, MIB, 4096))

    def test_write_beyond_end_is_refused(self):
        volume = self.volume()
        for offset in (GIB, GIB - 512):
            with self.assertRaises(exception.BackendError):
                self.write(volume, (offset, b"data" * 256))
        self.assertEqual(GIB, self.driver.find_size(volume))

    def test_new_volume_after_delete_has_no_data_of_former_one(self):
        host, volume = self.host(), self.volume()
        self.write(volume, (0, b"data" * 1024))
        self.driver.delete(volume)
        answer = self.driver.create(base.VolumeRef(volume.id, 1))
        info = self.granted(base.VolumeRef(volume.id, 1, answer), self.export())
        self.assertEqual(ZEROS, host.read(info, 0, len(ZEROS)))

    def test_missing_volume_is_refused(self):
        if not self.backend.knows_missing:
            self.skipTest("this backend does not report it")
        missing = base.VolumeRef(f"{uuid.uuid4()}", 1)
        with self.assertRaises(exception.BackendError) as caught:
            self.write(missing, (0, b"data"))
        self.assertTrue(caught.exception.final)
        self.assertEqual([], self.backend.orphans())

    def test_process_that_was_taken_over_writes_nothing(self):
        host, volume = self.host(), self.volume()
        with self.driver.open_data(volume, "rw") as data, base.ownership(self.refuse):
            self.assertRaises(exception.BackendError, data.write, 0, b"data" * 1024)
        info = self.granted(volume, self.export())
        self.assertEqual(ZEROS, host.read(info, 0, len(ZEROS)))

    @staticmethod
    def refuse():
        raise exception.BackendError("Another process works on the volume.")
