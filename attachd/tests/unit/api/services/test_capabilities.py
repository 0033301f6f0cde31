# SPDX-License-Identifier: Apache-2.0
"""What a backend can do."""

import unittest

from attachd import exception
from attachd.api.services import capabilities
from attachd.tests import asking


class CapabilitiesTest(unittest.TestCase):
    def test_of_a_backend_and_of_its_pool(self):
        asking.use(self)
        asking.report("h@a")
        for host in ("h@a", "h@a#a"):
            self.assertEqual("a", capabilities.show(host)["volume_backend_name"])
        with self.assertRaisesRegex(exception.NotFound, "h@z"):
            capabilities.show("h@z")
