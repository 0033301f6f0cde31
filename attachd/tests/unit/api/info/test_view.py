# SPDX-License-Identifier: Apache-2.0
"""The tables of what there is, compared with what there is."""

import unittest

from attachd.api import endpoint
from attachd.api.info import view
from attachd.db.quotas import Used


class TablesTest(unittest.TestCase):
    def test_every_extension_that_is_a_url_is_served(self):
        paths = {each.path.split("/")[1] for each in endpoint.load()}
        own = {"os-services", "os-availability-zone", "scheduler-stats", "capabilities"}
        self.assertLessEqual(own, paths & {each.alias for each in view.EXTENSIONS})

    def test_limits_have_what_is_used(self):
        found = {"volumes": Used(3), "gigabytes": Used(7, 2), "volumes_gold": Used(1)}
        shown = view.used(found)
        self.assertEqual((3, 7), (shown["totalVolumesUsed"], shown["totalGigabytesUsed"]))
        self.assertEqual(0, shown["totalSnapshotsUsed"])
        self.assertEqual(5, len(shown))

    def test_limits_are_those_of_quotas(self):
        shown = view.limits(dict.fromkeys(view.LIMITED, 1))
        self.assertEqual({1}, set(shown.values()))
        self.assertEqual(5, len(shown))
