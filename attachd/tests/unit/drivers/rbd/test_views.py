# SPDX-License-Identifier: Apache-2.0
"""Views of copies and snapshots, on a fake pool; test_rbd_snapshots.py has real ones."""

from attachd.drivers.rbd import copies
from attachd.tests.unit.drivers.rbd.pool_case import NAME, VOLUME, PoolCase


class ViewsTest(PoolCase):
    def setUp(self):
        super().setUp()
        self.views = self.images.views
        self.pool.add_record("attachd-snap.s", source=NAME)
        self.pool.add_record("attachd-snap.t", source=NAME, snapshot=5, cloned=False)
        self.pool.add_record("attachd-copy.c", source=NAME, snapshot=6)
        self.pool.add_record("other-snap.s", source=NAME, snapshot=8)

    def test_complete_snapshots_are_listed_with_their_volumes(self):
        self.assertEqual({"s": VOLUME.id}, self.views.list_snapshots(self.pool))

    def test_snapshots_of_an_image_include_those_of_copies_by_age(self):
        found = [item.snapshot for _name, item in self.views.snapshots_of(self.pool, "10ab")]
        self.assertEqual([5, 6, 7], found)
        self.assertEqual([], self.views.snapshots_of(self.pool, "10ac"))

    def test_image_with_snapshots_or_copies_has_to_stay(self):
        self.assertIn("has snapshots", self.views.describe_need(self.pool, NAME))
        records = self.pool.objects[copies.RECORDS]
        del records["attachd-snap.s"], records["attachd-snap.t"]
        self.assertIn("being copied", self.views.describe_need(self.pool, NAME))
        del records["attachd-copy.c"]
        self.assertEqual("", self.views.describe_need(self.pool, NAME))

    def test_complete_snapshots_that_are_lost_are_noted(self):
        self.views.note_lost(self.pool, "10ab", {6})
        found = {
            item.snapshot: item.lost for _, item in self.views.snapshots_of(self.pool, "10ab")
        }
        self.assertEqual({5: False, 6: False, 7: True}, found)
