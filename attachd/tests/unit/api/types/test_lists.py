# SPDX-License-Identifier: Apache-2.0
"""Which types are listed for whom."""

import unittest

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.types import lists
from attachd.db import qos_specs, type_access
from attachd.tests import asking, rows


class ListTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        asking.use(self)
        asking.add_type("gold", extra_specs={"multiattach": "<is> True", "inner": "x"})
        asking.add_type("silver")
        self.qos = qos_specs.create("fast", "both", {})
        self.hidden = asking.add_type(
            "hidden", is_public=False, description="deep", qos_specs_id=self.qos["id"]
        )
        self.ctx = asking.context()

    def index(self, version=mv.LATEST, **query):
        return lists.index(self.ctx, query, version, asking.links())

    def names(self, *arguments, **query):
        found = self.index(*arguments, **query)["volume_types"]
        return {each["name"] for each in found}

    def test_a_member_sees_public_ones_whatever_they_ask_for(self):
        for query in ({}, {"is_public": "None"}, {"is_public": "False"}):
            self.assertEqual({"gold", "silver"}, self.names(**query))

    def test_a_member_sees_private_ones_that_their_project_has_access_to(self):
        type_access.add(self.hidden["id"], rows.PROJECT)
        self.assertEqual({"gold", "silver", "hidden"}, self.names())
        self.ctx = asking.context(*asking.ADMIN)
        self.assertEqual({"gold", "silver", "hidden"}, self.names(is_public="True"))
        self.ctx = asking.context(*asking.ADMIN, project=asking.OTHER_PROJECT)
        self.assertEqual({"gold", "silver"}, self.names())

    def test_an_administrator_filters_by_more(self):
        self.ctx = asking.context(*asking.ADMIN)
        for query in (
            {"id": self.hidden["id"]},
            {"name": "hidden"},
            {"description": "deep"},
            {"qos_specs_id": self.qos["id"]},
        ):
            self.assertEqual({"hidden"}, self.names(is_public="None", **query), query)

    def test_an_administrator_chooses(self):
        self.ctx = asking.context(*asking.ADMIN)
        self.assertEqual({"gold", "silver"}, self.names())
        self.assertEqual({"hidden"}, self.names(is_public="False"))
        self.assertEqual({"gold", "silver", "hidden"}, self.names(is_public="None"))
        self.assertEqual({"hidden"}, self.names(is_public="none", name="hidden"))

    def test_extra_specs_filter_from_3_52_on(self):
        query = {"extra_specs": "{'multiattach': '<is> True'}"}
        self.assertEqual({"gold"}, self.names(**query))
        self.assertEqual({"gold", "silver"}, self.names(mv.Version(3, 51), **query))
        self.ctx = asking.context(*asking.ADMIN)
        self.assertEqual({"gold"}, self.names(mv.Version(3, 51), **query))

    def test_what_is_hidden_cannot_be_guessed(self):
        query = {"extra_specs": "{'inner': 'x'}"}
        self.assertEqual(set(), self.names(**query))
        self.ctx = asking.context(*asking.ADMIN)
        self.assertEqual({"gold"}, self.names(**query))

    def test_unknown_filters_are_refused_from_3_52_on(self):
        self.assertEqual({"gold", "silver"}, self.names(mv.Version(3, 51), colour="red"))
        with self.assertRaisesRegex(exception.BadRequest, "colour"):
            self.names(colour="red")

    def test_pages(self):
        first = self.index(limit="1", sort="name:asc")
        (link,) = first["volume_types_links"]
        self.assertIn("/types?limit=1&sort=name%3Aasc&marker=", link["href"])
        marker = first["volume_types"][0]["id"]
        self.assertEqual({"silver"}, self.names(limit="1", sort="name:asc", marker=marker))
        self.assertNotIn("volume_types_links", self.index())
