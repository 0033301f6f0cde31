# SPDX-License-Identifier: Apache-2.0
"""Several pools of one backend: where volumes are created, and where they are found."""

import dataclasses

from attachd import exception
from attachd.tests.fixtures import fake_lvm
from attachd.tests.unit.drivers.lvm import case

GIB = 2**30
THICK, OTHER = fake_lvm.GROUP, fake_lvm.OTHER_GROUP
THIN = f"{fake_lvm.GROUP}/{fake_lvm.POOL}"


class PoolsTest(case.LvmCase):
    def setUp(self):
        super().setUp()
        self.other_lvm = self.kernel.other_lvm
        self.backend = self.driver(lvm_pools=[THICK, THIN, OTHER])

    def in_pool(self, pool, volume=case.VOLUME):
        return dataclasses.replace(volume, pool=pool)

    def test_volume_is_created_in_its_pool(self):
        for pool, group, thin_pool in (
            (THICK, self.lvm, ""),
            (THIN, self.lvm, fake_lvm.POOL),
            (OTHER, self.other_lvm, ""),
        ):
            volume = self.in_pool(pool)
            self.backend.create(volume)
            self.assertEqual([thin_pool], [row["pool"] for row in group.rows.values()])
            self.backend.delete(volume)
            self.assertEqual({}, dict(self.backend.list_volumes()))

    def test_stats_are_those_of_each_pool(self):
        self.backend.create(self.in_pool(THIN))
        self.backend.create(self.in_pool(OTHER, case.COPY))
        stats = self.backend.get_stats()
        found = {
            pool.name: (pool.total_gib, pool.free_gib, pool.allocated_gib) for pool in stats.pools
        }
        self.assertEqual({THICK: (64, 64, 0), THIN: (64, 48, 1), OTHER: (64, 62, 2)}, found)
        thin = {pool.name for pool in stats.pools if pool.capabilities["thin_provisioning"]}
        self.assertEqual({THIN}, thin)

    def test_volume_from_before_pools_is_found_in_any_group(self):
        # The name of the backend may be that of another group by chance.
        for former_name in ("backend", THICK, "", THIN):
            former = self.driver(lvm_volume_group=OTHER)
            volume, export = self.in_pool(former_name), case.export("1")
            former.create(volume)
            self.assertEqual({volume.id: GIB}, dict(self.backend.list_volumes()))
            self.backend.grant(volume, export)
            self.assert_as_expected(self.backend, export)
            self.backend.extend(volume, 2, [export])
            self.backend.clone(self.in_pool(former_name, case.COPY), volume)
            self.assertEqual(2, len(self.other_lvm.rows))
            self.backend.revoke(volume, export, [])
            self.backend.unmanage(volume)
            extended = dataclasses.replace(volume, size_gib=2)
            self.backend.manage(extended, {"source-name": f"{OTHER}/volume-{volume.id}"})
            for item in (volume, self.in_pool(former_name, case.COPY)):
                self.backend.delete(item)
            self.assertEqual(({}, {}), (self.lvm.rows, self.other_lvm.rows))

    def test_interrupted_create_is_deleted_in_its_group(self):
        self.other_lvm.add(f"attachd-{case.VOLUME.id}.part", GIB)
        self.backend.delete(self.in_pool("backend"))
        self.assertEqual({}, self.other_lvm.rows)

    def test_create_in_unknown_pool_is_refused_finally(self):
        volume = self.in_pool("backend")
        error = self.assertRaises(exception.BackendError, self.backend.create, volume)
        self.assertTrue(error.final)
        self.assertIn("lvm_pools has no 'backend'", f"{error}")

    def test_missing_pool_names_option(self):
        self.assert_setup_refused('lvm_pools.*"none" not found', lvm_pools=[THICK, "none"])
        self.assert_setup_refused("lvm_pools.*'none'", lvm_pools=[f"{OTHER}/none"])

    def test_existing_lv_has_pool_of_its_kind(self):
        self.lvm.add("thick", GIB)
        self.lvm.add("thin", GIB, fake_lvm.POOL)
        self.lvm.add("elsewhere", GIB, "other-pool")
        self.other_lvm.add("thick", GIB)
        found = {
            item.reference["source-name"]: (item.pool, bool(item.refusal))
            for item in self.backend.list_manageable()
        }
        expected = {
            f"{THICK}/thick": (THICK, False),
            f"{THICK}/thin": (THIN, False),
            f"{THICK}/elsewhere": ("", True),
            f"{OTHER}/thick": (OTHER, False),
        }
        self.assertEqual(expected, found)
        self.assertRaises(
            exception.InvalidInput, self.backend.get_manageable, {"source-name": "thick"}
        )
