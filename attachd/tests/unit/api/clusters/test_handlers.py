# SPDX-License-Identifier: Apache-2.0
"""Clusters: there are none, said in every way."""

import unittest

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.clusters import handlers


class ClustersTest(unittest.TestCase):
    def test_lists_are_empty_whatever_is_asked_for(self):
        for act in (handlers.index, handlers.detail):
            for query in ({}, {"name": "c", "is_up": "true"}, {"frozen": "0"}):
                self.assertEqual({"clusters": []}, act(query, mv.LATEST))

    def test_unknown_filters_are_refused(self):
        cases = {"colour": mv.LATEST, "frozen": mv.Version(3, 25)}
        for name, version in cases.items():
            for act in (handlers.index, handlers.detail):
                with self.assertRaisesRegex(exception.BadRequest, f"filter keys: {name}"):
                    act({name: "x"}, version)
        with self.assertRaisesRegex(exception.BadRequest, "is_up"):
            handlers.index({"is_up": "perhaps"}, mv.LATEST)

    def test_no_cluster_is_found(self):
        for act, given in (
            (handlers.show, "c"),
            (handlers.enable, {"name": "c"}),
            (handlers.disable, {"name": "c"}),
        ):
            with self.assertRaisesRegex(exception.NotFound, "Cluster c could not be found"):
                act(given)
