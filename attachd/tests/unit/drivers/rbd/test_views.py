# SPDX-License-Identifier: Apache-2.0
"""Views of copies and snapshots, on a fake pool; test_rbd_snapshots.py has real ones."""

import json

from attachd.tests.unit.drivers.rbd.pool_case import NAME, VOLUME, PoolCase


def record(**values):
    filled = {"source": NAME, "source_id": "10ab", "snapshot": 7, "cloned": True, **values}
    return json.dumps(filled).encode()


class ViewsTest(PoolCase):
    def setUp(self):
        super().setUp()
        self.views = self.images.views
        names = ("attachd-snap.s.source", "attachd-snap.t.source", "attachd-copy.c.source")
        self.rbd.list2.return_value += [{"name": name, "id": name} for name in names]
        self.pool.objects |= {
            "attachd-snap.s": record(),
            "attachd-snap.t": record(snapshot=5, cloned=False),
            "attachd-copy.c": record(snapshot=6),
        }

    def test_complete_snapshots_are_listed_with_their_volumes(self):
        self.assertEqual({"s": VOLUME.id}, self.views.list_snapshots(self.pool))

    def test_snapshots_of_an_image_include_those_of_copies_by_age(self):
        found = [item.snapshot for _name, item in self.views.snapshots_of(self.pool, "10ab")]
        self.assertEqual([5, 6, 7], found)
        self.assertEqual([], self.views.snapshots_of(self.pool, "10ac"))

    def test_image_with_snapshots_or_copies_has_to_stay(self):
        self.assertIn("has snapshots", self.views.describe_need(self.pool, NAME))
        del self.pool.objects["attachd-snap.s"], self.pool.objects["attachd-snap.t"]
        self.assertIn("being copied", self.views.describe_need(self.pool, NAME))
        del self.pool.objects["attachd-copy.c"]
        self.assertEqual("", self.views.describe_need(self.pool, NAME))

    def test_lost_snapshots_are_noted_once(self):
        self.views.note_lost(self.pool, "10ab", {5, 6})
        found = {
            item.snapshot: item.lost for _, item in self.views.snapshots_of(self.pool, "10ab")
        }
        self.assertEqual({5: False, 6: False, 7: True}, found)
