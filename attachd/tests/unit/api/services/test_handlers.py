# SPDX-License-Identifier: Apache-2.0
"""Tests of services, pools and capabilities."""

import unittest

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.services import handlers
from attachd.db.cluster import services
from attachd.tests.fixtures import api_context


class ServicesTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend("h@a")
        api_context.report_backend("h@b")
        api_context.report_backend("other@a", binary="attachd-agent", report=None)

    def hosts(self, **query):
        return [service["host"] for service in handlers.index(query, mv.LATEST)["services"]]

    def status(self, host):
        (found,) = handlers.index({"host": host}, mv.LATEST)["services"]
        return found["status"], found["disabled_reason"]

    def test_service_filters(self):
        self.assertEqual(["other@a", "h@a", "h@b"], self.hosts())
        self.assertEqual(["h@a", "h@b"], self.hosts(host="h"))
        self.assertEqual(["h@b"], self.hosts(host="h@b"))
        self.assertEqual(["other@a"], self.hosts(binary="attachd-agent"))
        self.assertEqual([], self.hosts(binary="attachd-agent", host="h"))
        for name in (api_context.BINARY, "cinder-volume"):
            self.assertEqual(["h@a", "h@b"], self.hosts(binary=name))

    def test_backend_is_disabled_and_enabled(self):
        body = {"host": "h@a", "binary": api_context.BINARY}
        shown = handlers.disable(body)
        self.assertEqual(("disabled", True), (shown["status"], shown["disabled"]))
        self.assertEqual(("disabled", None), self.status("h@a"))
        self.assertEqual(("enabled", None), self.status("h@b"))
        shown = handlers.enable(body)
        self.assertEqual(("enabled", False), (shown["status"], shown["disabled"]))
        self.assertEqual(("enabled", None), self.status("h@a"))

    def test_reason_is_kept_until_enabled(self):
        body = {"host": "h@a", "binary": api_context.BINARY}
        shown = handlers.disable_with_reason({**body, "disabled_reason": "smoke"})
        self.assertEqual("smoke", shown["disabled_reason"])
        self.assertEqual(("disabled", "smoke"), self.status("h@a"))
        handlers.enable(body)
        self.assertEqual(("enabled", None), self.status("h@a"))

    def test_service_is_accepted_for_binary(self):
        shown = handlers.disable({"host": "h@a", "service": "cinder-volume"})
        self.assertEqual(("cinder-volume", ""), (shown["service"], shown["binary"]))
        self.assertEqual("disabled", self.status("h@a")[0])

    def test_unknown_service_returns_404(self):
        for act in (handlers.enable, handlers.disable, handlers.disable_with_reason):
            with self.assertRaisesRegex(exception.NotFound, "nowhere"):
                act({"host": "nowhere", "binary": api_context.BINARY})


ALL = (handlers.freeze, handlers.thaw, handlers.failover)


class FreezeTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend("h@a")
        self.admin = api_context.make_context(*api_context.ADMIN)

    def refused(self, act, body, version=mv.LATEST):
        with self.assertRaises(exception.BadRequest) as caught:
            act(self.admin, body, version)
        return str(caught.exception)

    def test_backend_is_frozen_and_thawed(self):
        for act, expected in ((handlers.freeze, True), (handlers.thaw, False)):
            self.assertIsNone(act(self.admin, {"host": "h@a"}, mv.LATEST))
            self.assertEqual(expected, services.is_frozen(api_context.BINARY, "h@a"))
            self.assertIn("h@a is", self.refused(act, {"host": "h@a"}))

    def test_freeze_needs_administrator(self):
        for act in ALL:
            with self.assertRaises(exception.Forbidden):
                act(api_context.make_context(), {"host": "h@a"}, mv.LATEST)

    def test_failover_returns_400(self):
        self.assertIn("cannot fail over", self.refused(handlers.failover, {"host": "h@a"}))

    def test_unknown_backend_returns_400(self):
        for act in ALL:
            self.assertIn("host=h@z", self.refused(act, {"host": "h@z"}))
            self.assertIn("cluster=c", self.refused(act, {"cluster": "c"}))

    def test_exactly_one_of_host_and_cluster_is_needed(self):
        both = {"host": "h@a", "cluster": "c"}
        for act in ALL:
            self.assertIn("Host field", self.refused(act, {"cluster": "c"}, mv.Version(3, 25)))
            for body in ({}, both):
                self.assertIn("One and only one", self.refused(act, body))

    def test_cluster_is_ignored_before_3_26(self):
        body = {"host": "h@a", "cluster": "c"}
        handlers.freeze(self.admin, body, mv.Version(3, 25))
        self.assertTrue(services.is_frozen(api_context.BINARY, "h@a"))


class CapabilitiesTest(unittest.TestCase):
    def test_capabilities_of_backend_and_pool(self):
        api_context.use(self)
        api_context.report_backend("h@a")
        for host in ("h@a", "h@a#a"):
            self.assertEqual("a", handlers.show_capabilities(host)["volume_backend_name"])
        with self.assertRaisesRegex(exception.NotFound, "h@z"):
            handlers.show_capabilities("h@z")


class PoolsTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend("h@a")
        api_context.report_backend(
            "h@b", report={**api_context.BACKEND_REPORT, "capabilities": {}}
        )
        api_context.report_backend("h@down", up=False, report=None)
        api_context.report_backend("h@agent", binary="attachd-agent", report=None)
        self.ctx = api_context.make_context(*api_context.ADMIN)

    def names(self, version=mv.LATEST, **query):
        found = handlers.get_pools(self.ctx, query, version)["pools"]
        return [item["name"] for item in found]

    def test_pools_of_running_backends_are_listed(self):
        self.assertEqual(["h@a#a", "h@b#b"], self.names())

    def test_each_pool_of_backend_is_listed_with_its_capacity(self):
        sizes = {"total_gib": 9.0, "free_gib": 5.0, "allocated_gib": 4.0}
        pools = [
            {"name": name, **sizes, "capabilities": {"disk": name}} for name in ("ssd", "hdd")
        ]
        api_context.report_backend("h@a", report={**api_context.BACKEND_REPORT, "pools": pools})
        found = handlers.get_pools(self.ctx, {"detail": "true"}, mv.LATEST)["pools"]
        shown = {item["name"]: item["capabilities"] for item in found}
        self.assertLessEqual({"h@a#ssd", "h@a#hdd"}, shown.keys())
        self.assertNotIn("h@a#a", shown)
        details = shown["h@a#ssd"]
        expected = {"pool_name": "ssd", "disk": "ssd", "multiattach": True}
        expected |= {
            f"{name.removesuffix('_gib')}_capacity_gb": gib for name, gib in sizes.items()
        }
        self.assertEqual(expected, {key: details[key] for key in expected})

    def test_pool_details_are_optional(self):
        for asked, expected in (("True", {"name", "capabilities"}), ("0", {"name"})):
            (first, _) = handlers.get_pools(self.ctx, {"detail": asked}, mv.LATEST)["pools"]
            self.assertEqual(expected, set(first))

    def test_pool_name_filter_exists_since_3_28(self):
        self.assertEqual(["h@b#b"], self.names(name="h@b#b"))
        self.assertEqual(["h@a#a", "h@b#b"], self.names(mv.Version(3, 27), name="h@b#b"))

    def test_pool_type_filter_exists_since_3_35(self):
        kind = api_context.add_type("shared", extra_specs={"multiattach": "<is> True"})
        for wanted in ("shared", kind["id"]):
            self.assertEqual(["h@a#a"], self.names(volume_type=wanted))
        self.assertEqual(2, len(self.names(mv.Version(3, 34), volume_type="shared")))
        with self.assertRaises(exception.VolumeTypeNotFound):
            self.names(volume_type="nonsense")

    def test_unknown_pool_filter_is_refused_since_3_31(self):
        with self.assertRaisesRegex(exception.BadRequest, "colour"):
            self.names(colour="red")
        self.assertEqual(2, len(self.names(mv.Version(3, 30), colour="red")))
