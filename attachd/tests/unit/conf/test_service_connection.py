# SPDX-License-Identifier: Apache-2.0
"""The options of connections, as the groups of two services have them."""

import unittest

from attachd.conf import glance, nova, service_connection


class OptionsTest(unittest.TestCase):
    def test_options_name_their_service_and_its_default(self):
        found = {option.name: option for option in service_connection.options("Compute", 3.0)}
        self.assertEqual(3.0, found["connect_timeout"].default)
        for name in ("region_name", "connect_timeout", "insecure", "cafile", "certfile"):
            self.assertIn("Compute", found[name].help)

    def test_groups_of_services_have_the_options_with_defaults_of_their_own(self):
        names = {option.name for option in service_connection.options("Compute", 3.0)}
        for group, timeout in ((glance, 5.0), (nova, 3.0)):
            defaults = {option.name: option.default for option in group.OPTIONS}
            self.assertLess(names, set(defaults))
            self.assertEqual(timeout, defaults["connect_timeout"])
            self.assertEqual(len(group.OPTIONS), len(defaults))
