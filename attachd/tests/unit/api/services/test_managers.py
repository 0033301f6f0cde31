# SPDX-License-Identifier: Apache-2.0
"""Which managers are meant."""

import unittest

from attachd.api.services import managers
from attachd.tests import asking


class ManagersTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        asking.report("h@a")
        asking.report("h@b")
        asking.report("i@a")
        asking.report("h@agent", binary="attachd-agent", report=None)

    def test_a_host_means_its_backends_and_a_backend_itself(self):
        cases = {
            "h": ["h@a", "h@b"],
            "h@b": ["h@b"],
            "": ["h@a", "h@b", "i@a"],
            None: ["h@a", "h@b", "i@a"],
            "h@": [],
            "a": [],
            "h@a#pool": [],
            "h@agent": [],
        }
        for host, expected in cases.items():
            self.assertEqual(expected, [row["host"] for row in managers.at(host)], host)
