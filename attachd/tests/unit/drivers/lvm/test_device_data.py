# SPDX-License-Identifier: Apache-2.0
"""The data of an LV, whose device is a file."""

from pathlib import Path
from unittest import mock

from attachd import exception
from attachd.tests.fixtures import lifetime
from attachd.tests.unit.drivers.lvm import case


class DeviceAccessTest(case.LvmCase):
    def setUp(self):
        super().setUp()
        self.lvm_driver, device = self.driver(), Path(lifetime.temp_dir(self)) / "device"
        device.write_bytes(bytes(4096))
        self.lvm_driver.create(case.VOLUME)
        pool = type(self.lvm_driver.pools.holding(case.VOLUME))
        patched = mock.patch.object(pool, "activate", return_value=device)
        patched.start()
        self.addCleanup(patched.stop)

    def write(self, mode, offset, content):
        with self.lvm_driver.open_data(case.VOLUME, mode) as data:
            data.write(offset, content)

    def test_data_is_that_of_the_device(self):
        self.write("rw", 512, b"data")
        with self.lvm_driver.open_data(case.VOLUME, "ro") as data:
            self.assertEqual(b"\0data\0", data.read(511, 6))

    def test_write_beyond_end_or_for_reading_is_refused(self):
        self.assertRaises(exception.BackendError, self.write, "rw", 4095, b"data")
        self.assertRaises(exception.BackendError, self.write, "ro", 0, b"data")
