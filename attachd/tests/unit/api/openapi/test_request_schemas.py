# SPDX-License-Identifier: Apache-2.0
"""Tests of requests in OpenAPI."""

import types
import unittest

from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc
from attachd.api.openapi import request_schemas
from attachd.tests.unit.api import register

VERSION = "OpenStack-API-Version"


def list_parameters():
    found = request_schemas.parameters(endpoint.REGISTER, mv.LATEST)
    named = {item["name"]: item for item in found if "name" in item}
    return named, [item["$ref"].rpartition("/")[2] for item in found if "$ref" in item]


class ParametersTest(register.Case):
    def test_path_and_query_parameters_are_described(self):
        parameters = {"force": {"type": "string", "description": "Anyhow."}}
        endpoint.endpoint("GET", "/snacks/{snack_id}", doc=EndpointDoc(parameters=parameters))(
            lambda snack_id: None
        )
        named, shared = list_parameters()
        self.assertEqual(["snack_id", "force", VERSION], list(named))
        self.assertIs(True, named["snack_id"]["required"])
        self.assertEqual("Anyhow.", named["force"]["description"])
        self.assertEqual({"type": "string"}, named["force"]["schema"])
        self.assertEqual(["RequestId"], shared)

    def test_version_header_has_possible_values(self):
        endpoint.endpoint("GET", "/snacks")(lambda: None)
        plain, *own = (f"volume 3.71{own}" for own in ("", ", attachd 1.0", ", attachd 1.1"))
        self.assertEqual([plain, *own], list_parameters()[0][VERSION]["schema"]["enum"])
        endpoint.REGISTER.clear()
        endpoint.endpoint("GET", "/snacks", attachd_since=mv.ATTACHD_1_0)(lambda: None)
        self.assertEqual(own, list_parameters()[0][VERSION]["schema"]["enum"])

    def test_headers_are_described_where_they_are_read(self):
        endpoint.endpoint("PUT", "/snacks", doc=EndpointDoc(faults=(412,)))(
            lambda async_response: None
        )
        self.assertEqual(["RequestId", "Prefer", "IfMatch"], list_parameters()[1])
        self.assertLess(set(list_parameters()[1]), set(request_schemas.components()))

    def test_project_id_of_old_urls_is_described(self):
        self.assertEqual(
            ("project_id", "path"),
            (request_schemas.project()["name"], request_schemas.project()["in"]),
        )


class PlainTest(unittest.TestCase):
    def test_patterns_become_json_schema(self):
        self.assertEqual("^[a-z]$", request_schemas.pattern(r"\A[a-z]\Z"))
        self.assertEqual(
            "^(?:[Uu][Pp]|[Nn]o)$".replace("o", "[Oo]"), request_schemas.pattern(r"\A(?i:up|no)\Z")
        )

    def test_schema_becomes_plain(self):
        schema = types.MappingProxyType(
            {"patternProperties": types.MappingProxyType({r"\Ax\Z": {"pattern": r"\Ay"}})}
        )
        self.assertEqual(
            {"patternProperties": {"^x$": {"pattern": "^y"}}}, request_schemas.plain(schema)
        )

    def test_property_may_be_named_pattern(self):
        schema = {"properties": {"pattern": {"type": "string"}}}
        self.assertEqual(schema, request_schemas.plain(schema))


class BodyTest(register.Case):
    def test_endpoint_without_body_has_none(self):
        endpoint.endpoint("GET", "/snacks")(lambda: None)
        self.assertIsNone(request_schemas.body(endpoint.REGISTER, mv.LATEST))

    def test_body_schema_is_that_of_microversion(self):
        steps = [(mv.BASE, {"const": 1}), (mv.ETAGS, {"const": 2})]
        endpoint.endpoint("POST", "/snacks", body=steps)(lambda: None)
        for version, number in ((mv.BASE, 1), (mv.LATEST, 2)):
            result = request_schemas.body(endpoint.REGISTER, version)
            self.assertEqual({"const": number}, result["content"]["application/json"]["schema"])

    def test_actions_are_alternatives(self):
        def eat():
            """Eat it."""

        for name in ("eat", "keep"):
            endpoint.action("/snacks/action", name)(eat)
        result = request_schemas.body(endpoint.REGISTER, mv.LATEST)
        first, second = result["content"]["application/json"]["schema"]["oneOf"]
        self.assertEqual(["eat"], first["required"])
        self.assertEqual("Eat it.", first["description"])
        self.assertEqual({"keep": {}}, second["properties"])
