# SPDX-License-Identifier: Apache-2.0
"""Copies of LVs: what an interrupted one leaves."""

import contextlib

from attachd import exception
from attachd.drivers.lvm import lvm2
from attachd.drivers.lvm.copies import LvCopies, name_of
from attachd.tests.fixtures import fake_lvm
from attachd.tests.unit.drivers.lvm import case
from attachd.tests.unit.drivers.lvm.test_volumes import VolumesCase


class CopiesTest(VolumesCase):
    def setUp(self):
        super().setUp()
        self.driver(lvm_thin_pool=fake_lvm.POOL).create(case.VOLUME)
        self.copies = LvCopies(lvm2.VolumeGroup(fake_lvm.GROUP, 60), "none")
        self.source = self.copies.find(name_of(case.VOLUME.id), "It")

    def test_failed_copy_leaves_nothing(self):
        with contextlib.suppress(exception.BackendError):
            self.copies.copy(self.source, "attachd-small", 0)
        self.assertEqual([self.source["lv_name"]], self.names())

    def test_smaller_copy_is_refused_finally(self):
        error = self.assertRaises(
            exception.BackendError, self.copies.copy, self.source, "attachd-small", 0
        )
        self.assertTrue(error.final)
        self.assertIn("larger", f"{error}")

    def test_delete_removes_steps(self):
        for name in ("a", "a.part", "a.source", "a.space"):
            self.copies.copy(self.source, name, 1)
        self.copies.delete("a")
        self.assertEqual([self.source["lv_name"]], self.names())
