# SPDX-License-Identifier: Apache-2.0
"""LVs that cannot become snapshots, and what happens to those that can."""

from attachd import exception
from attachd.drivers import base
from attachd.tests.fixtures import fake_lvm
from attachd.tests.unit.drivers.lvm import case

GIB = 2**30
REFERENCE = {"source-name": f"{fake_lvm.GROUP}/then"}
SOURCE = f"attachd-{case.VOLUME.id}"
SNAPSHOT = base.SnapshotRef("9a0c6d9f-3f0f-4a39-9a0c-5b0c6c1e0002", case.VOLUME, 1)
NAME = f"attachd-{SNAPSHOT.id}.snapshot"


class ManageTest(case.LvmCase):
    def setUp(self):
        super().setUp()
        self.thin = self.driver(lvm_thin_pool=fake_lvm.POOL)
        self.lvm.add(SOURCE, GIB, fake_lvm.POOL)

    def get(self, name=REFERENCE["source-name"]):
        return self.thin.get_manageable_snapshot(case.VOLUME, {"source-name": name})

    def test_lv_that_cannot_be_a_snapshot_is_refused_with_reason_and_stays(self):
        for columns, pool, reason in (
            ({"lv_device_open": "open"}, fake_lvm.POOL, "in use"),
            ({"lv_role": "public,snapshot,thicksnapshot"}, "", "depends on another LV"),
            ({"lv_layout": "raid,raid1"}, "", "kind raid,raid1"),
            ({"origin": "root"}, fake_lvm.POOL, "of the LV root, which is no volume"),
            ({"origin": "attachd-other"}, fake_lvm.POOL, "of volume other"),
            ({}, "", "in another pool than volume"),
        ):
            self.lvm.add("then", GIB, pool, **columns)
            self.assertIn(reason, self.get().refusal)
            error = self.assertRaises(
                exception.BackendError, self.thin.manage_snapshot, SNAPSHOT, REFERENCE
            )
            self.assertTrue(error.final)
            self.assertIn(reason, f"{error}")
            self.assertIn("then", self.lvm.rows)
            self.lvm.run(["lvm", "lvremove", REFERENCE["source-name"]])

    def test_lv_of_another_group_or_with_the_name_of_an_option_is_not_found(self):
        self.lvm.add("then", GIB, fake_lvm.POOL)
        for name in ("other/then", "../then", "--config", f"{fake_lvm.GROUP}/{SOURCE}", ""):
            self.assertRaises(exception.InvalidInput, self.get, name)
        self.assertEqual("", self.get("then").refusal)

    def test_managed_lv_is_activated_and_unmanaged_under_its_id(self):
        self.lvm.add(
            "then", GIB, fake_lvm.POOL, origin=SOURCE, lv_skip_activation="skip activation"
        )
        self.assertEqual(case.VOLUME.id, self.get().volume_id)
        for _ in range(2):
            self.assertEqual({}, self.thin.manage_snapshot(SNAPSHOT, REFERENCE))
        self.assertNotIn("lv_skip_activation", self.lvm.rows[NAME]["columns"])
        (listed,) = [item for item in self.thin.list_manageable_snapshots() if item.snapshot_id]
        self.assertEqual((SNAPSHOT.id, case.VOLUME.id), (listed.snapshot_id, listed.volume_id))
        for _ in range(2):
            self.thin.unmanage_snapshot(SNAPSHOT)
        self.assertEqual("", self.get(f"_snapshot-{SNAPSHOT.id}").refusal)

    def test_lv_of_the_same_name_is_not_replaced_by_unmanaged_snapshot(self):
        self.lvm.add(NAME, GIB, fake_lvm.POOL)
        self.lvm.add(f"_snapshot-{SNAPSHOT.id}", GIB, fake_lvm.POOL)
        error = self.assertRaises(exception.BackendError, self.thin.unmanage_snapshot, SNAPSHOT)
        self.assertIn("another LV", f"{error}")

    def test_lv_that_has_grown_or_whose_volume_is_missing_is_refused(self):
        self.lvm.add("then", 2 * GIB, fake_lvm.POOL)
        error = self.assertRaises(
            exception.BackendError, self.thin.manage_snapshot, SNAPSHOT, REFERENCE
        )
        self.assertIn("grown", f"{error}")
        self.lvm.run(["lvm", "lvremove", f"{fake_lvm.GROUP}/{SOURCE}"])
        self.assertIn("no LV of volume", self.get().refusal)
