# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests, as they are described."""

import types
import unittest

from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.api.openapi import bodies
from attachd.tests.unit.api import register


class PlainTest(unittest.TestCase):
    def test_patterns_are_those_of_json_schema(self):
        self.assertEqual("^[a-z]$", bodies.pattern(r"\A[a-z]\Z"))
        self.assertEqual(
            "^(?:[Uu][Pp]|[Nn]o)$".replace("o", "[Oo]"), bodies.pattern(r"\A(?i:up|no)\Z")
        )

    def test_a_schema_becomes_plain(self):
        schema = types.MappingProxyType(
            {"patternProperties": types.MappingProxyType({r"\Ax\Z": {"pattern": r"\Ay"}})}
        )
        self.assertEqual({"patternProperties": {"^x$": {"pattern": "^y"}}}, bodies.plain(schema))

    def test_a_property_may_be_called_pattern(self):
        schema = {"properties": {"pattern": {"type": "string"}}}
        self.assertEqual(schema, bodies.plain(schema))


class BodyTest(register.Case):
    def test_what_reads_none_has_none(self):
        endpoint.endpoint("GET", "/snacks")(lambda: None)
        self.assertIsNone(bodies.body(endpoint.REGISTER, mv.LATEST))

    def test_it_is_that_of_the_microversion(self):
        steps = [(mv.BASE, {"const": 1}), (mv.ETAGS, {"const": 2})]
        endpoint.endpoint("POST", "/snacks", body=steps)(lambda: None)
        for version, number in ((mv.BASE, 1), (mv.LATEST, 2)):
            told = bodies.body(endpoint.REGISTER, version)
            self.assertEqual({"const": number}, told["content"]["application/json"]["schema"])

    def test_actions_are_alternatives(self):
        def eat():
            """Eat it."""

        for name in ("eat", "keep"):
            endpoint.action("/snacks/action", name)(eat)
        told = bodies.body(endpoint.REGISTER, mv.LATEST)
        first, second = told["content"]["application/json"]["schema"]["oneOf"]
        self.assertEqual(["eat"], first["required"])
        self.assertEqual("Eat it.", first["description"])
        self.assertEqual({"keep": {}}, second["properties"])
