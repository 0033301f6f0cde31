# SPDX-License-Identifier: Apache-2.0
"""Limits, extensions, zones and filters."""

import unittest

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.info import handlers
from attachd.db import services
from attachd.tests import asking, rows


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)


class LimitsTest(Case):
    def used(self, *roles, version=mv.LATEST, **query):
        shown = handlers.limits(asking.context(*roles), query, version)["limits"]
        self.assertEqual([], shown["rate"])
        self.assertEqual(-1, shown["absolute"]["maxTotalVolumes"])
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

    def test_who_may_not_see_what_is_used(self):
        self.assertEqual((None, None), self.used("guest"))


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
            handlers.extension("os-hosts")


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


class FiltersTest(Case):
    def test_of_all_lists_or_of_one(self):
        found = handlers.resource_filters({})["resource_filters"]
        self.assertEqual(
            ["volume", "attachment", "pool", "volume_type"], [each["resource"] for each in found]
        )
        (one,) = handlers.resource_filters({"resource": "pool"})["resource_filters"]
        self.assertEqual({"resource": "pool", "filters": ["name", "volume_type"]}, one)
        self.assertEqual([], handlers.resource_filters({"resource": "x"})["resource_filters"])
