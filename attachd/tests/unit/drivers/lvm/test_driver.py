# SPDX-License-Identifier: Apache-2.0
"""Options, set-up and refusals of the lvm driver; tests/contract has the rest."""

from pathlib import Path
from unittest import mock

from attachd import exception
from attachd.tests.fixtures import lifetime
from attachd.tests.unit.drivers.lvm import case


class SetupTest(case.LvmCase):
    def test_setup_with_missing_volume_group_names_option(self):
        self.assert_setup_refused('lvm_volume_group.*"other" not found', lvm_volume_group="other")

    def test_setup_without_portals_names_option(self):
        self.assert_setup_refused("lvm_portals is empty", lvm_portals=[])

    def test_setup_with_missing_thin_pool_names_option(self):
        self.assert_setup_refused("lvm_thin_pool.*'other'", lvm_thin_pool="other")

    def test_setup_repeated_changes_nothing(self):
        driver = self.driver()
        before = self.tree.state()
        driver.setup()
        self.assertEqual(before, self.tree.state())


class VolumesTest(case.LvmCase):
    def test_delete_of_volume_with_orphaned_backstore_is_refused(self):
        driver = self.driver()
        driver.create(case.VOLUME)
        driver.grant(case.VOLUME, case.export("1"))
        error = self.assertRaises(exception.BackendError, driver.delete, case.VOLUME)
        self.assertTrue(error.final)
        self.assertIn("still exported", f"{error}")

    def test_grant_after_boot_activates_volume(self):
        driver, export = self.driver(), case.export("1")
        driver.create(case.VOLUME)
        before = driver.boot_id()
        self.kernel.boot()
        self.assertNotEqual(before, driver.boot_id())
        driver.grant(case.VOLUME, export)
        self.assertEqual(["active"], [row["active"] for row in self.lvm.rows.values()])
        self.assert_as_expected(driver, export)

    def test_exports_of_other_backend_are_not_listed(self):
        driver, other = self.driver(), self.new_driver()
        other.target.backend = "other"
        other.setup()
        driver.create(case.VOLUME)
        driver.grant(case.VOLUME, case.export("1"))
        self.assertEqual([], list(other.list_exports()))
        self.assertNotEqual([], list(driver.list_exports()))

    def test_data_is_that_of_the_device(self):
        driver, device = self.driver(), Path(lifetime.temp_dir(self)) / "device"
        device.write_bytes(bytes(4096))
        driver.create(case.VOLUME)
        with mock.patch.object(type(driver.pools.holding(case.VOLUME)), "activate") as activate:
            activate.return_value = device
            with driver.open_data(case.VOLUME, "rw") as data:
                data.write(512, b"data")
                self.assertRaises(OSError, data.write, 4095, b"data")
            with driver.open_data(case.VOLUME, "ro") as data:
                self.assertEqual(b"\0data\0", data.read(511, 6))
                self.assertRaises(OSError, data.write, 0, b"data")
        activate.assert_called_with(case.VOLUME.id)
