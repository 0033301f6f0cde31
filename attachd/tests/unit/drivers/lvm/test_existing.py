# SPDX-License-Identifier: Apache-2.0
"""LVs that cannot become volumes, and what happens to those that can."""

import os

from attachd import exception
from attachd.drivers.abilities import ManageableObject
from attachd.tests.fixtures import fake_lvm
from attachd.tests.unit.drivers.lvm import case

GIB = 2**30
REFERENCE = {"source-name": f"{fake_lvm.GROUP}/disk"}


class ManageTest(case.LvmCase):
    def path(self, name):
        return self.lvm.folder / fake_lvm.GROUP / name

    def test_lv_that_cannot_be_a_volume_is_refused_with_reason_and_stays(self):
        for columns, reason in (
            ({"lv_device_open": "open"}, "in use"),
            ({"lv_permissions": "read-only"}, "read-only"),
            ({"lv_permissions": "read-only-override"}, "read-only"),
            ({"lv_role": "public,origin,thickorigin"}, "has snapshots"),
            ({"lv_role": "public,snapshot,thicksnapshot"}, "is a snapshot"),
            ({"lv_role": "public,origin,extthinorigin"}, "depend on its data"),
            ({"lv_layout": "linear,striped"}, "kind linear,striped"),
            ({"lv_layout": "raid,raid1"}, "kind raid,raid1"),
        ):
            driver = self.driver()
            self.lvm.add("disk", GIB, **columns)
            self.assertIn(reason, driver.get_manageable(REFERENCE).refusal)
            error = self.assertRaises(
                exception.BackendError, driver.manage, case.VOLUME, REFERENCE
            )
            self.assertTrue(error.final)
            self.assertIn(reason, f"{error}")
            self.assertEqual(["disk"], list(self.lvm.rows))
            self.lvm.run(["lvm", "lvremove", REFERENCE["source-name"]])

    def test_lv_outside_of_thin_pool_is_refused_by_thin_backend(self):
        self.lvm.add("disk", GIB)
        driver = self.driver(lvm_thin_pool=fake_lvm.POOL)
        refusal = driver.get_manageable(REFERENCE).refusal
        self.assertEqual("It is thick, and the backend has no such pool in vg.", refusal)

    def test_thin_lv_is_refused_by_thick_backend(self):
        self.lvm.add("disk", GIB, fake_lvm.POOL)
        refusal = self.driver().get_manageable(REFERENCE).refusal
        self.assertIn("It is in the thin pool pool, and", refusal)

    def test_thin_pool_is_refused_and_not_listed(self):
        driver = self.driver(lvm_thin_pool=fake_lvm.POOL)
        found = driver.get_manageable({"source-name": f"{fake_lvm.GROUP}/{fake_lvm.POOL}"})
        self.assertIn("no LV for data", found.refusal)
        self.assertEqual([], list(driver.list_manageable()))

    def test_lv_that_has_grown_since_request_is_refused(self):
        driver = self.driver()
        self.lvm.add("disk", 2 * GIB)
        error = self.assertRaises(exception.BackendError, driver.manage, case.VOLUME, REFERENCE)
        self.assertIn("grown", f"{error}")

    def test_name_without_group_finds_lv(self):
        self.lvm.add("disk", GIB)
        found = self.driver().get_manageable({"source-name": "disk"})
        self.assertEqual(ManageableObject(REFERENCE, GIB), found)

    def test_incomplete_volume_is_neither_listed_nor_found(self):
        driver, name = self.driver(), f"attachd-{case.VOLUME.id}.part"
        self.lvm.add(name, GIB)
        self.assertEqual([], list(driver.list_manageable()))
        reference = {"source-name": f"{fake_lvm.GROUP}/{name}"}
        self.assertRaises(exception.InvalidInput, driver.get_manageable, reference)

    def test_thin_snapshot_that_is_skipped_is_activated_at_grant(self):
        driver = self.driver(lvm_thin_pool=fake_lvm.POOL)
        role = "public,snapshot,thinsnapshot"
        self.lvm.add(
            "disk", GIB, fake_lvm.POOL, lv_role=role, lv_skip_activation="skip activation"
        )
        driver.manage(case.VOLUME, REFERENCE)
        self.kernel.boot()
        driver.grant(case.VOLUME, case.export("1"))
        self.assertEqual(["active"], [row["active"] for row in self.lvm.rows.values()])

    def test_thick_lv_keeps_data_and_is_extended_with_zeros(self):
        driver = self.driver()
        self.lvm.add("disk", GIB + fake_lvm.EXTENT)
        with self.path("disk").open("r+b") as file:
            file.write(b"kept")
        driver.manage(case.COPY, REFERENCE)
        self.assertEqual({case.COPY.id: 2 * GIB}, dict(driver.list_volumes()))
        with self.path(f"attachd-{case.COPY.id}").open("rb") as file:
            self.assertEqual(b"kept", file.read(4))
            for offset in range(GIB + fake_lvm.EXTENT, 2 * GIB, fake_lvm.EXTENT):
                self.assertEqual(bytes(64), os.pread(file.fileno(), 64, offset))

    def test_unmanage_replaces_no_lv_of_same_name(self):
        driver = self.driver()
        driver.create(case.VOLUME)
        self.lvm.add(f"volume-{case.VOLUME.id}", GIB)
        error = self.assertRaises(exception.BackendError, driver.unmanage, case.VOLUME)
        self.assertTrue(error.final)
        self.assertIn("another LV", f"{error}")
        self.assertIn(case.VOLUME.id, driver.list_volumes())

    def test_unmanage_removes_rest_of_interrupted_extension(self):
        driver = self.driver()
        self.lvm.add("disk", GIB)
        self.lvm.add(f"attachd-{case.VOLUME.id}.space", GIB)
        driver.unmanage(case.VOLUME)
        self.assertEqual(["disk"], list(self.lvm.rows))
