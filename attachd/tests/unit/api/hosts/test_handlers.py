# SPDX-License-Identifier: Apache-2.0
"""Tests of hosts and their usage."""

import unittest

from attachd import exception
from attachd.api.hosts import handlers
from attachd.db.cluster import services
from attachd.db.cluster.services import ProjectUsage
from attachd.tests.fixtures import api_context, db_rows


class HostsTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend("h@a")
        api_context.report_backend("h@b", availability_zone="other")
        api_context.report_backend("h@off")
        services.disable(api_context.BINARY, "h@off", None)

    def names(self, **query):
        return [host["host_name"] for host in handlers.index(query)["hosts"]]

    def test_enabled_hosts_are_listed_by_zone(self):
        self.assertEqual(["h@a", "h@b"], self.names())
        self.assertEqual(["h@b"], self.names(zone="other"))

    def test_host_shows_usage_by_project(self):
        db_rows.add_volume(host="h@a#p", size_gib=3)
        db_rows.add_volume(host="h@a#q", size_gib=4, project_id=api_context.OTHER_PROJECT)
        db_rows.add_volume(host="h@ab#p", size_gib=100)
        result = [item["resource"] for item in handlers.show("h@a")["host"]]
        self.assertEqual(
            [("(total)", "7"), (db_rows.PROJECT, "3"), (api_context.OTHER_PROJECT, "4")],
            [(item["project"], item["total_volume_gb"]) for item in result],
        )

    def test_host_shows_snapshots_by_project(self):
        volume = db_rows.add_volume(host="h@a#p")["id"]
        db_rows.add_snapshot(volume, size_gib=5)
        db_rows.add_snapshot(volume, project_id=api_context.OTHER_PROJECT, size_gib=6)
        db_rows.add_snapshot(db_rows.add_volume(host="h@ab#p")["id"], size_gib=100)
        result = [item["resource"] for item in handlers.show("h@a")["host"]]
        self.assertEqual(
            [("(total)", "1", "2", "11"), (db_rows.PROJECT, "1", "1", "5"),
             (api_context.OTHER_PROJECT, "0", "1", "6")],
            [(item["project"], item["volume_count"], item["snapshot_count"],
              item["total_snapshot_gb"]) for item in result],
        )  # fmt: skip

    def test_disabled_host_shows_usage(self):
        self.assertEqual(1, len(handlers.show("h@off")["host"]))

    def test_update_host_returns_400(self):
        with self.assertRaisesRegex(exception.BadRequest, "os-services/disable"):
            handlers.update("h@a")

    def test_unknown_host_returns_404(self):
        for act in (handlers.show, handlers.update):
            with self.assertRaisesRegex(exception.NotFound, "h@z"):
                act("h@z")


ROW = {
    "host": "h@a",
    "binary": api_context.BINARY,
    "availability_zone": "nova",
    "alive": True,
    "disabled": False,
    "seen_at": "now",
}


class HostTest(unittest.TestCase):
    def test_host_state_and_status(self):
        shown = handlers.host_view(ROW)
        self.assertEqual(
            ("available", "enabled"), (shown["service-status"], shown["service-state"])
        )
        shown = handlers.host_view({**ROW, "alive": False, "disabled": True})
        self.assertEqual(
            ("unavailable", "disabled"), (shown["service-status"], shown["service-state"])
        )
        self.assertEqual("cinder-volume", shown["service"])

    def test_usage_begins_with_total(self):
        shown = handlers.usage_view("h@a", {"p": ProjectUsage(1, 2), "q": ProjectUsage(3, 4)})
        result = [item["resource"] for item in shown]
        self.assertEqual(["(total)", "p", "q"], [item["project"] for item in result])
        self.assertEqual(["4", "1", "3"], [item["volume_count"] for item in result])
        self.assertEqual(["6", "2", "4"], [item["total_volume_gb"] for item in result])

    def test_empty_host_has_total(self):
        (only,) = handlers.usage_view("h@a", {})
        self.assertEqual("0", only["resource"]["volume_count"])
