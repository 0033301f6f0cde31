# SPDX-License-Identifier: Apache-2.0
"""Tests of quotas as answers show them."""

import unittest

from attachd.api.quotas import view
from attachd.conf import CONF
from attachd.db.quotas import ResourceUsage
from attachd.tests.fixtures import api_context


class ViewTest(unittest.TestCase):
    def test_resource_names_include_those_of_types(self):
        ctx = api_context.make_context()
        self.assertEqual(7, len(view.resource_names(ctx, [])))
        self.assertEqual(
            ["volumes_a b", "gigabytes_a b", "snapshots_a b"],
            view.resource_names(ctx, ["a b"])[7:],
        )

    def test_effective_prefers_last_limits(self):
        shown = view.effective(
            ["volumes", "gigabytes", "volumes_x"],
            {"volumes": 1, "volumes_x": 2},
            {"volumes": 3, "other": 4},
        )
        gigabytes = CONF.quota.quota_gigabytes
        self.assertEqual({"volumes": 3, "gigabytes": gigabytes, "volumes_x": 2}, shown)
        self.assertEqual({"volumes_x": -1}, view.effective(["volumes_x"]))

    def test_with_usage_shows_limit_and_usage(self):
        shown = view.with_usage({"gigabytes": 9, "groups": 10}, {"gigabytes": ResourceUsage(3, 2)})
        self.assertEqual(
            {
                "gigabytes": {"limit": 9, "in_use": 3, "reserved": 2},
                "groups": {"limit": 10, "in_use": 0, "reserved": 0},
            },
            shown,
        )
