# SPDX-License-Identifier: Apache-2.0
"""Thin and thick logical volumes: old data, interrupted steps, errors."""

import fnmatch
import os
import re
import unittest

from attachd import exception
from attachd.drivers import base
from attachd.drivers.lvm import copies, snapshots
from attachd.tests.fixtures import fake_lvm, processes
from attachd.tests.unit.drivers.lvm import case

GIB = 2**30


class VolumesCase(case.LvmCase):
    def path(self, driver, volume=case.VOLUME):
        return driver.pools.holding(volume).activate(volume.id)

    def read(self, path, length):
        with path.open("rb") as file:
            return file.read(length)

    def assert_zeros(self, path, start=0):
        """Check all places where the fake has old data."""
        with path.open("rb") as file:
            for offset in range(start, path.stat().st_size, fake_lvm.EXTENT):
                self.assertEqual(bytes(512), os.pread(file.fileno(), 512, offset), offset)

    def names(self):
        return sorted(self.lvm.rows)

    def interrupt(self, call, *arguments, step):
        """Refuse a call at one of its changes."""
        left = iter(range(step))

        def check():
            if next(left, None) is None:
                raise exception.BackendError("Another process has taken over.")

        with base.ownership(check):
            self.assertRaises(exception.BackendError, call, *arguments)


class ThickTest(VolumesCase):
    def test_fake_has_old_data(self):
        self.driver().pools.holding(case.VOLUME)._lvs.create_thick("raw", GIB)
        with (self.lvm.folder / fake_lvm.GROUP / "raw").open("rb") as file:
            self.assertIn(b"old", file.read(16))

    def test_new_volume_reads_as_zeros(self):
        driver = self.driver()
        driver.create(case.VOLUME)
        self.assert_zeros(self.path(driver))

    def test_extended_volume_keeps_data_and_reads_as_zeros_behind(self):
        driver = self.driver()
        driver.create(case.VOLUME)
        path = self.path(driver)
        with path.open("r+b") as file:
            file.write(b"kept")
        driver.extend(case.VOLUME, 3, [case.export("1")])
        self.assertEqual(3 * GIB, path.stat().st_size)
        self.assert_zeros(path, fake_lvm.EXTENT)
        self.assertEqual(b"kept", self.read(path, 4))
        self.assertEqual([path.name], self.names())

    def test_interrupted_extension_leaves_no_extents_behind_when_repeated(self):
        driver = self.driver()
        driver.create(case.VOLUME)
        for step in range(4):
            self.interrupt(driver.extend, case.VOLUME, 2 + step, [], step=step)
            driver.extend(case.VOLUME, 2 + step, [])
            self.assertEqual([self.path(driver).name], self.names())
            self.assert_zeros(self.path(driver))

    def test_interrupted_create_is_not_listed_and_is_deleted(self):
        driver = self.driver()
        self.interrupt(driver.create, case.VOLUME, step=2)
        self.assertEqual([f"attachd-{case.VOLUME.id}.part"], self.names())
        self.assertEqual({}, dict(driver.list_volumes()))
        driver.delete(case.VOLUME)
        self.assertEqual([], self.names())

    def test_clone_copies_snapshot_and_removes_it(self):
        driver = self.driver()
        driver.create(case.VOLUME)
        with self.path(driver).open("r+b") as file:
            file.write(b"copied")
        driver.clone(case.COPY, case.VOLUME)
        path = self.path(driver, case.COPY)
        self.assertEqual(b"copied", self.read(path, 6))
        self.assertEqual(2 * GIB, path.stat().st_size)
        self.assert_zeros(path, fake_lvm.EXTENT)
        self.assertEqual(2, len(self.names()))

    def test_create_in_full_group_names_option_and_leaves_nothing(self):
        driver = self.driver()
        error = self.assertRaises(
            exception.BackendError, driver.create, base.VolumeRef(case.VOLUME.id, 100)
        )
        self.assertTrue(error.final)
        self.assertRegex(f"{error}", "insufficient free space.*Extend the volume group vg")
        self.assertEqual([], self.names())

    def test_extend_in_full_group_keeps_volume(self):
        driver = self.driver()
        driver.create(case.VOLUME)
        self.assertRaises(exception.BackendError, driver.extend, case.VOLUME, 100, [])
        self.assertEqual({case.VOLUME.id: GIB}, dict(driver.list_volumes()))

    def test_wipe_overwrites_deleted_volume(self):
        driver = self.driver(lvm_wipe="zero")
        driver.create(case.VOLUME)
        self.lvm.calls.clear()
        driver.delete(case.VOLUME)
        changes = [line[:2] for line in self.lvm.calls if "lvs" not in line]
        self.assertEqual([["blkdiscard", "--zeroout"], ["lvm", "lvremove"]], changes)


class ThinTest(VolumesCase):
    def test_pool_that_shows_old_data_is_refused(self):
        self.lvm._pool_zeroes = ""
        self.assert_setup_refused("lvm_thin_pool.*lvchange --zero y", lvm_thin_pool=fake_lvm.POOL)

    def test_wipe_that_would_fill_pool_is_refused(self):
        self.assert_setup_refused("lvm_wipe", lvm_thin_pool=fake_lvm.POOL, lvm_wipe="zero")

    def test_stats_are_those_of_pool(self):
        driver = self.driver(lvm_thin_pool=fake_lvm.POOL)
        driver.create(case.VOLUME)
        stats = driver.get_stats()
        self.assertEqual((64, 48, 1), (stats.total_gib, stats.free_gib, stats.allocated_gib))
        self.assertTrue(stats.capabilities["thin_provisioning"])

    def test_clone_is_snapshot_of_requested_size(self):
        driver = self.driver(lvm_thin_pool=fake_lvm.POOL)
        driver.create(case.VOLUME)
        self.lvm.calls.clear()
        driver.clone(case.COPY, case.VOLUME)
        changes = [line[1] for line in self.lvm.calls if "lvs" not in line]
        self.assertEqual(["lvcreate", "lvextend", "lvrename"], changes)
        self.assertEqual(2 * GIB, driver.list_volumes()[case.COPY.id])

    def test_volumes_of_others_in_group_are_not_listed(self):
        driver = self.driver(lvm_thin_pool=fake_lvm.POOL)
        self.lvm.add("volume-of-cinder", GIB)
        self.assertEqual({}, dict(driver.list_volumes()))


class UdevRulesTest(unittest.TestCase):
    """etc/udev/rules.d/12-attachd.rules, which tests/lab/test_lvm.py tries."""

    def test_rules_match_the_volumes_of_any_group_and_no_other_lv(self):
        text = (processes.ROOT / "etc/udev/rules.d/12-attachd.rules").read_text()
        (pattern,) = re.findall(r'ATTR\{dm/name\}!="([^"]*)"', text)

        def is_matched(group, lv):
            # As device-mapper names it.
            name = "-".join(part.replace("-", "--") for part in (group, lv))
            return fnmatch.fnmatchcase(name, pattern)

        for group in ("attachd", "fast-disks"):
            for step in ("", *copies.STEPS, snapshots.SUFFIX):
                self.assertTrue(is_matched(group, copies.name_of(case.VOLUME.id) + step))
            for other in ("root", "pool", "volume-1", "attachd"):
                self.assertFalse(is_matched(group, other), other)
