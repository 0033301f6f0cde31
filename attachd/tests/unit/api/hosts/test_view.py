# SPDX-License-Identifier: Apache-2.0
"""Hosts on the wire."""

import unittest

from attachd.api.hosts import view
from attachd.db.services import Held
from attachd.tests import asking

ROW = {
    "host": "h@a",
    "binary": asking.BINARY,
    "availability_zone": "nova",
    "alive": True,
    "disabled": False,
    "seen_at": "now",
}


class HostTest(unittest.TestCase):
    def test_available_is_who_reports_and_enabled_who_is_not_disabled(self):
        shown = view.host(ROW)
        self.assertEqual(
            ("available", "enabled"), (shown["service-status"], shown["service-state"])
        )
        shown = view.host({**ROW, "alive": False, "disabled": True})
        self.assertEqual(
            ("unavailable", "disabled"), (shown["service-status"], shown["service-state"])
        )
        self.assertEqual("cinder-volume", shown["service"])

    def test_the_total_comes_first(self):
        shown = view.usage("h@a", {"p": Held(1, 2), "q": Held(3, 4)})
        told = [each["resource"] for each in shown]
        self.assertEqual(["(total)", "p", "q"], [each["project"] for each in told])
        self.assertEqual(["4", "1", "3"], [each["volume_count"] for each in told])
        self.assertEqual(["6", "2", "4"], [each["total_volume_gb"] for each in told])

    def test_nothing_is_still_a_total(self):
        (only,) = view.usage("h@a", {})
        self.assertEqual("0", only["resource"]["volume_count"])
