# SPDX-License-Identifier: Apache-2.0
"""Tests of extensions, zones and limits."""

import unittest

from attachd import exception
from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.api.info import handlers
from attachd.db import quotas
from attachd.db.cluster import services
from attachd.db.quotas import ResourceUsage
from attachd.tests.fixtures import api_context, db_rows


class ExtensionsTest(api_context.ApiContextCase):
    def test_extensions_are_listed_and_shown(self):
        listed = handlers.extensions()["extensions"]
        aliases = [item["alias"] for item in listed]
        self.assertEqual(sorted(set(aliases)), aliases)
        for item in listed:
            self.assertEqual({"extension": item}, handlers.extension(item["alias"]))
            self.assertEqual({"name", "alias", "description", "updated", "links"}, set(item), item)

    def test_unknown_extension_returns_404(self):
        with self.assertRaises(exception.NotFound):
            handlers.extension("os-volume-replication")


class ZonesTest(api_context.ApiContextCase):
    def zones(self):
        return {
            item["zoneName"]: item["zoneState"]["available"]
            for item in handlers.availability_zones()["availabilityZoneInfo"]
        }

    def test_zone_is_available_if_any_backend_is(self):
        self.assertEqual({}, self.zones())
        api_context.report_backend("h@a", availability_zone="west")
        api_context.report_backend("h@b", availability_zone="west")
        api_context.report_backend("h@c", availability_zone="east")
        services.disable(api_context.BINARY, "h@a", None)
        services.disable(api_context.BINARY, "h@c", None)
        self.assertEqual({"east": False, "west": True}, self.zones())


class LimitsTest(api_context.ApiContextCase):
    def used(self, *roles, version=mv.LATEST, **query):
        shown = handlers.limits(api_context.make_context(*roles), query, version)["limits"]
        self.assertEqual([], shown["rate"])
        names = ("totalVolumesUsed", "totalGigabytesUsed")
        return tuple(shown["absolute"].get(name) for name in names)

    def test_limits_have_usage(self):
        db_rows.add_volume(size_gib=3)
        db_rows.add_volume(size_gib=4)
        db_rows.add_volume(size_gib=9, project_id=api_context.OTHER_PROJECT)
        self.assertEqual((2, 7), self.used())

    def test_limits_of_other_project_need_administrator_and_3_39(self):
        db_rows.add_volume(size_gib=9, project_id=api_context.OTHER_PROJECT)
        query = {"project_id": api_context.OTHER_PROJECT}
        self.assertEqual((0, 0), self.used(**query))
        self.assertEqual((1, 9), self.used(*api_context.ADMIN, **query))
        self.assertEqual((0, 0), self.used(*api_context.ADMIN, version=mv.Version(3, 38), **query))
        self.assertEqual(
            (1, 9), self.used(*api_context.ADMIN, tenant_id=api_context.OTHER_PROJECT)
        )

    def test_limits_have_quotas(self):
        quotas.set_limits(api_context.OTHER_PROJECT, {"volumes": 5, "snapshots": 6})
        query = {"project_id": api_context.OTHER_PROJECT}
        ctx = api_context.make_context(*api_context.ADMIN)
        absolute = handlers.limits(ctx, query, mv.LATEST)["limits"]["absolute"]
        self.assertEqual(10, len(absolute))
        shown = {key: value for key, value in absolute.items() if key.startswith("max")}
        self.assertEqual(
            {
                "maxTotalVolumes": 5,
                "maxTotalVolumeGigabytes": -1,
                "maxTotalSnapshots": 6,
                "maxTotalBackups": 10,
                "maxTotalBackupGigabytes": 1000,
            },
            shown,
        )

    def test_usage_needs_permission(self):
        self.assertEqual((None, None), self.used("guest"))


class TablesTest(unittest.TestCase):
    def test_each_extension_with_url_is_served(self):
        paths = {api_endpoint.path.split("/")[1] for api_endpoint in endpoint.load()}
        own = {"os-services", "os-availability-zone", "scheduler-stats", "capabilities"}
        self.assertLessEqual(own, paths & {extension.alias for extension in handlers.EXTENSIONS})

    def test_absolute_limits_have_usage(self):
        found = {
            "volumes": ResourceUsage(3),
            "gigabytes": ResourceUsage(7, 2),
            "volumes_gold": ResourceUsage(1),
        }
        shown = handlers.used_limits(found)
        self.assertEqual((3, 7), (shown["totalVolumesUsed"], shown["totalGigabytesUsed"]))
        self.assertEqual(0, shown["totalSnapshotsUsed"])
        self.assertEqual(5, len(shown))

    def test_absolute_limits_have_all_quotas(self):
        shown = handlers.absolute_limits(dict.fromkeys(handlers.LIMITED, 1))
        self.assertEqual({1}, set(shown.values()))
        self.assertEqual(5, len(shown))


class PermissionsTest(api_context.ApiContextCase):
    def rules(self, *roles):
        found = handlers.permissions(api_context.make_context(*roles))["permissions"]
        self.assertEqual(sorted(found), found)
        return set(found)

    def test_permissions_are_those_of_the_roles(self):
        reader, member, admin = self.rules("reader"), self.rules(), self.rules(*api_context.ADMIN)
        self.assertLess(reader, member)
        self.assertLess(member, admin)
        for rule, *expected in (
            ("volume:attachment_get", True, True, True),
            ("volume:attachment_delete", False, True, True),
            ("volume:host_fence", False, False, True),
        ):
            self.assertEqual(expected, [rule in rules for rules in (reader, member, admin)], rule)
