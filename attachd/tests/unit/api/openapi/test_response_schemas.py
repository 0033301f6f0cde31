# SPDX-License-Identifier: Apache-2.0
"""Tests of responses in OpenAPI."""

from typing import NoReturn
import unittest

from attachd.api import endpoint, errors, idempotency
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc
from attachd.api.openapi import response_schemas
from attachd.api.openapi.type_schemas import TypeSchemas
from attachd.tests.unit.api import register


class ResponsesTest(register.Case):
    def responses(self):
        return response_schemas.responses(endpoint.REGISTER, TypeSchemas(mv.LATEST))

    def test_responses_have_result_and_common_faults(self):
        endpoint.endpoint("GET", "/snacks", doc=EndpointDoc({"snack": str}))(lambda: None)
        result = self.responses()
        self.assertEqual(["200", *map(str, response_schemas.ALWAYS)], list(result))
        schema = result["200"]["content"]["application/json"]["schema"]
        self.assertEqual(["snack"], schema["required"])

    def test_body_key_and_preference_add_responses(self):
        recipe = idempotency.IdempotencySpec(keep=repr, remake=repr)
        endpoint.endpoint(
            "POST", "/snacks", body={}, idempotent=recipe, doc=EndpointDoc(faults=(504,))
        )(lambda async_response: None)
        result = self.responses()
        self.assertLess({"202", "409", "413", "415", "422", "504"}, set(result))
        self.assertIn("Location", result["202"]["headers"])
        self.assertNotIn("Location", result["200"]["headers"])

    def test_refusing_endpoint_has_no_result(self):
        @endpoint.endpoint("GET", "/snacks")
        def refuse() -> NoReturn:
            raise NotImplementedError

        self.assertEqual(set(), response_schemas.results(endpoint.REGISTER[0]))
        self.assertEqual(list(map(str, response_schemas.ALWAYS)), list(self.responses()))

    def test_body_is_optional_if_some_actions_have_none(self):
        endpoint.action("/snacks/action", "eat", doc=EndpointDoc({"crumbs": int}))(lambda: None)
        self.assertIn("content", self.responses()["202"])
        endpoint.action("/snacks/action", "keep")(lambda: None)
        self.assertNotIn("content", self.responses()["202"])


class FaultsTest(unittest.TestCase):
    def test_each_fault_has_schema(self):
        named = response_schemas.components()
        for api_endpoint in endpoint.load():
            for status in response_schemas.faults(api_endpoint):
                content = named[response_schemas.name(status)]["content"]["application/json"][
                    "schema"
                ]
                (key,) = content["properties"]
                self.assertEqual("error" if status == 401 else errors.key(status), key)

    def test_temporary_faults_have_retry_after(self):
        self.assertIn("headers", response_schemas.components()["Fault503"])
        self.assertNotIn("headers", response_schemas.components()["Fault404"])

    def test_each_response_header_is_described(self):
        self.assertIn("X-OpenStack-Request-ID", response_schemas.headers())
