# SPDX-License-Identifier: Apache-2.0
"""What a project may have and has."""

import unittest

from attachd.api import microversions as mv
from attachd.api.info import limits
from attachd.db import quotas
from attachd.tests import asking, rows


class LimitsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)

    def used(self, *roles, version=mv.LATEST, **query):
        shown = limits.limits(asking.context(*roles), query, version)["limits"]
        self.assertEqual([], shown["rate"])
        names = ("totalVolumesUsed", "totalGigabytesUsed")
        return tuple(shown["absolute"].get(name) for name in names)

    def test_what_the_project_has(self):
        rows.add_volume(size_gib=3)
        rows.add_volume(size_gib=4)
        rows.add_volume(size_gib=9, project_id=asking.OTHER_PROJECT)
        self.assertEqual((2, 7), self.used())

    def test_another_project_is_for_administrators_from_3_39_on(self):
        rows.add_volume(size_gib=9, project_id=asking.OTHER_PROJECT)
        query = {"project_id": asking.OTHER_PROJECT}
        self.assertEqual((0, 0), self.used(**query))
        self.assertEqual((1, 9), self.used(*asking.ADMIN, **query))
        self.assertEqual((0, 0), self.used(*asking.ADMIN, version=mv.Version(3, 38), **query))
        self.assertEqual((1, 9), self.used(*asking.ADMIN, tenant_id=asking.OTHER_PROJECT))

    def test_what_it_may_have(self):
        quotas.store(asking.OTHER_PROJECT, {"volumes": 5, "snapshots": 6})
        query = {"project_id": asking.OTHER_PROJECT}
        ctx = asking.context(*asking.ADMIN)
        absolute = limits.limits(ctx, query, mv.LATEST)["limits"]["absolute"]
        self.assertEqual(10, len(absolute))
        shown = {key: value for key, value in absolute.items() if key.startswith("max")}
        self.assertEqual(
            {
                "maxTotalVolumes": 5,
                "maxTotalVolumeGigabytes": -1,
                "maxTotalSnapshots": 6,
                "maxTotalBackups": 10,
                "maxTotalBackupGigabytes": 1000,
            },
            shown,
        )

    def test_who_may_not_see_what_is_used(self):
        self.assertEqual((None, None), self.used("guest"))
