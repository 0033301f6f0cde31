# SPDX-License-Identifier: Apache-2.0
"""Options, set-up and refusals of the lvm driver; tests/contract has the rest."""

from attachd import exception
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
