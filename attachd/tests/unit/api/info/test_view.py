# SPDX-License-Identifier: Apache-2.0
"""The tables of what there is, compared with what there is."""

import unittest

from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.api.info import view
from attachd.api.volumes import filters
from attachd.tests import asking


class TablesTest(unittest.TestCase):
    def test_every_extension_that_is_a_url_is_served(self):
        paths = {each.path.split("/")[1] for each in endpoint.load()}
        own = {"os-services", "os-availability-zone", "scheduler-stats", "capabilities"}
        self.assertLessEqual(own, paths & {each.alias for each in view.EXTENSIONS})

    def test_every_filter_of_volumes_that_is_told_is_taken(self):
        asking.use(self)
        sample = {"metadata": "{}", "created_at": "gt:2026-01-01", "updated_at": "gt:2026-01-01"}
        for name in view.RESOURCE_FILTERS["volume"]:
            filters.parse(asking.context(), {name: sample.get(name, "1")}, mv.LATEST)

    def test_limits_have_what_is_used(self):
        shown = view.limits(3, 7)
        self.assertEqual((3, 7), (shown["totalVolumesUsed"], shown["totalGigabytesUsed"]))
        self.assertEqual(0, shown["totalSnapshotsUsed"])
