# SPDX-License-Identifier: Apache-2.0
"""Extensions and zones."""

import unittest

from attachd import exception
from attachd.api.info import handlers
from attachd.db import services
from attachd.tests import asking


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)


class ExtensionsTest(Case):
    def test_each_is_listed_and_shown(self):
        listed = handlers.extensions()["extensions"]
        aliases = [each["alias"] for each in listed]
        self.assertEqual(sorted(set(aliases)), aliases)
        for each in listed:
            self.assertEqual({"extension": each}, handlers.extension(each["alias"]))
            self.assertEqual({"name", "alias", "description", "updated", "links"}, set(each), each)

    def test_others_are_not_found(self):
        with self.assertRaises(exception.NotFound):
            handlers.extension("os-snapshot-actions")


class ZonesTest(Case):
    def zones(self):
        return {
            each["zoneName"]: each["zoneState"]["available"]
            for each in handlers.availability_zones()["availabilityZoneInfo"]
        }

    def test_a_zone_is_available_if_any_of_its_backends_is(self):
        self.assertEqual({}, self.zones())
        asking.report("h@a", availability_zone="west")
        asking.report("h@b", availability_zone="west")
        asking.report("h@c", availability_zone="east")
        services.disable(asking.BINARY, "h@a", None)
        services.disable(asking.BINARY, "h@c", None)
        self.assertEqual({"east": False, "west": True}, self.zones())
