# SPDX-License-Identifier: Apache-2.0
"""Tests of the representation of services and pools."""

import datetime
import unittest

from attachd.api import microversions as mv
from attachd.api.services import view
from attachd.tests.fixtures import api_context, conf_fixture

NOW = datetime.datetime.fromisoformat("2026-01-31T12:00:00")


def row(**values):
    return {
        "binary": api_context.BINARY,
        "host": "h@shelf",
        "availability_zone": "nova",
        "disabled": False,
        "disabled_reason": None,
        "frozen": False,
        "up": True,
        "alive": True,
        "seen_at": NOW,
        "report": api_context.BACKEND_REPORT,
        **values,
    }


class ServiceTest(unittest.TestCase):
    def test_fields_by_microversion(self):
        expected = {
            *("binary", "host", "zone", "status", "state", "updated_at", "disabled_reason"),
            *("replication_status", "active_backend_id", "frozen"),
        }
        for version in mv.versions():
            added = {(3, 7): {"cluster"}, (3, 49): {"backend_state"}}
            expected |= added.get(tuple(version), set())
            self.assertEqual(expected, set(view.service(row(), version)), str(version))

    def test_state_and_status(self):
        cases = {
            ("enabled", "up"): {},
            ("disabled", "up"): {"disabled": True},
            ("enabled", "down"): {"up": False},
            ("disabled", "down"): {"alive": False, "disabled": True},
        }
        for expected, values in cases.items():
            shown = view.service(row(**values), mv.LATEST)
            self.assertEqual(expected, (shown["status"], shown["state"]))
            self.assertEqual(shown["state"], shown["backend_state"])

    def test_frozen_backend_is_disabled_with_reason(self):
        for reason, expected in ((None, "frozen"), ("smoke", "smoke")):
            shown = view.service(row(frozen=True, disabled_reason=reason), mv.LATEST)
            self.assertEqual(("disabled", True), (shown["status"], shown["frozen"]))
            self.assertEqual(expected, shown["disabled_reason"])

    def test_service_without_backend(self):
        shown = view.service(row(binary="attachd-agent", report=None), mv.LATEST)
        self.assertNotIn("backend_state", shown)
        self.assertNotIn("frozen", shown)


class PoolTest(conf_fixture.DefaultConfCase):
    def test_pool_summary(self):
        self.assertEqual({"name": "h@shelf#shelf"}, view.pool(row()))

    def test_pool_detail(self):
        shown = view.pool_detail(row())
        self.assertEqual("h@shelf#shelf", shown["name"])
        result = {
            "total_capacity_gb": 100.0,
            "free_capacity_gb": 100.0,
            "allocated_capacity_gb": 0.0,
            "storage_protocol": "iSCSI",
            "volume_backend_name": "shelf",
            "multiattach": True,
            "thin_provisioning_support": False,
            "thick_provisioning_support": True,
            "backend_state": "up",
        }
        self.assertLessEqual(result.items(), shown["capabilities"].items())

    def test_unlimited_capacity_is_infinite(self):
        report = {**api_context.BACKEND_REPORT, "total_gib": None, "free_gib": None}
        shown = view.pool_detail(row(report=report))["capabilities"]
        self.assertEqual("infinite", shown["total_capacity_gb"])
        self.assertEqual("infinite", shown["free_capacity_gb"])

    def test_capabilities_use_names_of_extra_specs(self):
        shown = view.capabilities(row())
        self.assertEqual("OS::Storage::Capabilities::h@shelf", shown["namespace"])
        self.assertEqual(
            {"title": "multiattach", "description": "True", "type": "boolean"},
            shown["properties"]["multiattach"],
        )
        self.assertEqual("string", shown["properties"]["storage_protocol"]["type"])
