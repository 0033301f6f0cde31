# SPDX-License-Identifier: Apache-2.0
"""What hosts are told to limit volumes to."""

import unittest

from attachd.manager import qos


class ScaledTest(unittest.TestCase):
    def test_what_is_not_per_gib_stays(self):
        specs = {"total_iops_sec": "500", "read_bytes_sec_max": "9", "own": "x", "empty": None}
        self.assertEqual(specs, qos.scaled(specs, 20))

    def test_what_is_per_gib_grows_with_the_volume(self):
        for who in ("read", "write", "total"):
            for what in ("iops", "bytes"):
                found = qos.scaled({f"{who}_{what}_sec_per_gb": "10"}, 20)
                self.assertEqual({f"{who}_{what}_sec": 200}, found)

    def test_it_counts_instead_of_a_fixed_limit(self):
        specs = {"total_iops_sec": "7", "total_iops_sec_per_gb": "10", "own": "x"}
        self.assertEqual({"total_iops_sec": 200, "own": "x"}, qos.scaled(specs, 20))

    def test_it_has_bounds(self):
        specs = {
            "total_iops_sec_per_gb": "10",
            "total_iops_sec_per_gb_min": "100",
            "total_iops_sec_max": "1000",
        }
        for size, expected in ((1, 100), (10, 100), (20, 200), (100, 1000), (500, 1000)):
            self.assertEqual({"total_iops_sec": expected}, qos.scaled(specs, size), size)

    def test_nonsense_is_passed_on_as_it_is(self):
        specs = {"total_iops_sec_per_gb": "many", "read_iops_sec_per_gb": None}
        self.assertEqual(specs, qos.scaled(specs, 20))

    def test_what_is_stored_is_not_changed(self):
        specs = {"total_iops_sec_per_gb": "10"}
        qos.scaled(specs, 20)
        self.assertEqual({"total_iops_sec_per_gb": "10"}, specs)
