# SPDX-License-Identifier: Apache-2.0
"""Snapshots that are LVs: thin and thick ones, and interrupted reverts."""

from attachd import exception
from attachd.drivers import base
from attachd.tests.fixtures import fake_lvm
from attachd.tests.unit.drivers.lvm import case
from attachd.tests.unit.drivers.lvm.test_volumes import VolumesCase

SNAPSHOT = base.SnapshotRef("5b0f3a52-5ed0-4a4b-9f0d-6f6a0f1d7a10", case.VOLUME, 1)
NAME = f"attachd-{SNAPSHOT.id}.snapshot"


class SnapshotsTest(VolumesCase):
    def taken(self, **options):
        driver = self.driver(**options)
        driver.create(case.VOLUME)
        with self.path(driver).open("r+b") as file:
            file.write(b"then")
        self.lvm.calls.clear()
        driver.create_snapshot(SNAPSHOT)
        return driver

    def changes(self):
        return [line[1] for line in self.lvm.calls if "lvs" not in line]

    def test_thin_snapshot_copies_nothing(self):
        driver = self.taken(lvm_thin_pool=fake_lvm.POOL)
        self.assertEqual(["lvcreate", "lvrename"], self.changes())
        self.assertFalse(driver.copies_snapshots)
        self.assertEqual({SNAPSHOT.id: ""}, dict(driver.list_snapshots()))

    def test_thick_snapshot_is_a_copy_that_depends_on_nothing(self):
        driver = self.taken()
        self.assertTrue(driver.copies_snapshots)
        self.assertEqual(sorted([self.path(driver).name, NAME]), self.names())

    def test_interrupted_revert_has_data_of_snapshot_when_repeated(self):
        for pool in ("", fake_lvm.POOL):
            driver = self.taken(lvm_thin_pool=pool)
            with self.path(driver).open("r+b") as file:
                file.write(b"now!")
            for step in range(3):
                self.interrupt(driver.revert, SNAPSHOT, step=step)
                driver.revert(SNAPSHOT)
                self.assertEqual(b"then", self.read(self.path(driver), 4), (pool, step))
                self.assertEqual(sorted([self.path(driver).name, NAME]), self.names())
            driver.delete_snapshot(SNAPSHOT)
            driver.delete(case.VOLUME)
            self.assertEqual([], self.names())

    def test_missing_snapshot_names_lv(self):
        driver = self.driver()
        driver.create(case.VOLUME)
        error = self.assertRaises(exception.BackendError, driver.revert, SNAPSHOT)
        self.assertIn(NAME, f"{error}")
        self.assertTrue(error.final)
