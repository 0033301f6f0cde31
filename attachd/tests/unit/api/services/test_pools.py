# SPDX-License-Identifier: Apache-2.0
"""What backends offer."""

import unittest

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.services import pools
from attachd.tests import asking


class PoolsTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        asking.report("h@a")
        asking.report("h@b", report={**asking.ROOMY, "capabilities": {}})
        asking.report("h@down", up=False, report=None)
        asking.report("h@agent", binary="attachd-agent", report=None)
        self.ctx = asking.context(*asking.ADMIN)

    def names(self, version=mv.LATEST, **query):
        found = pools.get_pools(self.ctx, query, version)["pools"]
        return [each["name"] for each in found]

    def test_only_backends_that_are_up(self):
        self.assertEqual(["h@a#a", "h@b#b"], self.names())

    def test_details_when_asked_for(self):
        for asked, expected in (("True", {"name", "capabilities"}), ("0", {"name"})):
            (first, _) = pools.get_pools(self.ctx, {"detail": asked}, mv.LATEST)["pools"]
            self.assertEqual(expected, set(first))

    def test_one_by_name_from_3_28_on(self):
        self.assertEqual(["h@b#b"], self.names(name="h@b#b"))
        self.assertEqual(["h@a#a", "h@b#b"], self.names(mv.Version(3, 27), name="h@b#b"))

    def test_those_for_a_type_from_3_35_on(self):
        kind = asking.add_type("shared", extra_specs={"multiattach": "<is> True"})
        for wanted in ("shared", kind["id"]):
            self.assertEqual(["h@a#a"], self.names(volume_type=wanted))
        self.assertEqual(2, len(self.names(mv.Version(3, 34), volume_type="shared")))
        with self.assertRaises(exception.VolumeTypeNotFound):
            self.names(volume_type="nonsense")

    def test_unknown_filters_are_refused_from_3_31_on(self):
        with self.assertRaisesRegex(exception.BadRequest, "colour"):
            self.names(colour="red")
        self.assertEqual(2, len(self.names(mv.Version(3, 30), colour="red")))
