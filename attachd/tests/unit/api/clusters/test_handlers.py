# SPDX-License-Identifier: Apache-2.0
"""Tests of clusters and of the cleanup of unfinished work."""

import unittest

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.clusters import handlers
from attachd.db.cluster import services
from attachd.tests.fixtures import api_context, db_rows


class ClustersTest(unittest.TestCase):
    def test_cluster_lists_are_empty(self):
        for act in (handlers.index, handlers.detail):
            for query in ({}, {"name": "c", "is_up": "true"}, {"frozen": "0"}):
                self.assertEqual({"clusters": []}, act(query, mv.LATEST))

    def test_unknown_filters_return_400(self):
        cases = {"colour": mv.LATEST, "frozen": mv.Version(3, 25)}
        for name, version in cases.items():
            for act in (handlers.index, handlers.detail):
                with self.assertRaisesRegex(exception.BadRequest, f"filter keys: {name}"):
                    act({name: "x"}, version)
        with self.assertRaisesRegex(exception.BadRequest, "is_up"):
            handlers.index({"is_up": "perhaps"}, mv.LATEST)

    def test_cluster_returns_404(self):
        for act, given in (
            (handlers.show, "c"),
            (handlers.enable, {"name": "c"}),
            (handlers.disable, {"name": "c"}),
        ):
            with self.assertRaisesRegex(exception.NotFound, "Cluster c could not be found"):
                act(given)


class CleanupTest(api_context.ApiContextCase):
    def setUp(self):
        super().setUp()
        api_context.report_backend("h@a")
        api_context.report_backend("h@down", up=False, report=None)
        api_context.report_backend("other@a", binary="attachd-agent", report=None)

    def hosts(self, **body):
        answer = handlers.cleanup(body)
        return {name: [item["host"] for item in found] for name, found in answer.items()}

    def test_cleanup_lists_services_that_are_down(self):
        self.assertEqual({"cleaning": [], "unavailable": ["h@down"]}, self.hosts())

    def test_cleanup_lists_services_that_are_up(self):
        self.assertEqual({"cleaning": ["h@a"], "unavailable": []}, self.hosts(is_up=True))

    def test_cleanup_filters(self):
        services.disable(api_context.BINARY, "h@down", None)
        cases = [
            ({"host": "h"}, ["h@down"]),
            ({"host": "h@down"}, ["h@down"]),
            ({"host": "h@a"}, []),
            ({"binary": "cinder-volume"}, ["h@down"]),
            ({"binary": "attachd-manager"}, ["h@down"]),
            ({"binary": "cinder-scheduler"}, []),
            ({"disabled": True}, ["h@down"]),
            ({"disabled": "false"}, []),
            ({"cluster_name": "c"}, []),
            ({"service_id": 1}, []),
        ]
        for body, expected in cases:
            self.assertEqual(expected, self.hosts(**body)["unavailable"], body)

    def test_cleanup_of_volume_selects_its_backend(self):
        volume = db_rows.add_volume(host="h@down#p")["id"]
        elsewhere = db_rows.add_volume(host="h@a#p")["id"]
        self.assertEqual(["h@down"], self.hosts(resource_id=volume)["unavailable"])
        self.assertEqual([], self.hosts(resource_id=elsewhere)["unavailable"])
        with self.assertRaisesRegex(exception.BadRequest, "no resource with UUID"):
            handlers.cleanup({"resource_id": api_context.new_id()})

    def test_cleanup_describes_service(self):
        (shown,) = handlers.cleanup({})["unavailable"]
        self.assertEqual({"id", "host", "binary", "cluster_name"}, set(shown))
        self.assertEqual("cinder-volume", shown["binary"])
