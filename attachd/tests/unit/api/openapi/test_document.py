# SPDX-License-Identifier: Apache-2.0
"""Tests of the OpenAPI document."""

import inspect
import json
from typing import NoReturn
import unittest

import openapi_spec_validator
import yaml

from attachd import exception
from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.api.openapi import document

METHODS = {"get", "post", "put", "delete"}


def operations(described):
    return [
        (method.upper(), path, item)
        for path, methods in described["paths"].items()
        for method, item in methods.items()
        if method in METHODS
    ]


def _returned(item):
    return inspect.signature(item.handler).return_annotation


class DescribeTest(unittest.TestCase):
    maxDiff = None

    def test_document_is_valid_openapi(self):
        for version in (mv.BASE, mv.NEW_ATTACH, mv.LATEST):
            with self.subTest(version):
                openapi_spec_validator.validate(document.describe(version))

    def test_document_has_all_endpoints(self):
        described = {(method, path) for method, path, _ in operations(document.describe())}
        declared = {
            (api_endpoint.method, f"/v3{api_endpoint.path}") for api_endpoint in endpoint.load()
        }
        self.assertEqual(declared | {("GET", "/"), ("GET", "/v3/")}, described)

    def test_responses_with_body_have_schema(self):
        bare = [
            api_endpoint.operation
            for api_endpoint in endpoint.load()
            if api_endpoint.doc.response is None
            and _returned(api_endpoint) not in {None, NoReturn}
        ]
        self.assertEqual([], bare)

    def test_old_urls_have_project_id(self):
        described = document.describe(mv.NEW_ATTACH)
        path = described["paths"]["/v3/{project_id}/attachments/{attachment_id}"]
        self.assertEqual("project_id", path["parameters"][0]["name"])
        self.assertNotIn("/v3/{project_id}/default-types", described["paths"])

    def test_operation_ids_are_unique_and_stable(self):
        names = [item["operationId"] for _, _, item in operations(document.describe())]
        self.assertEqual(sorted(set(names)), sorted(names))
        self.assertLess(
            {"get_volumes_volume_id", "post_volumes_volume_id_action", "get_os_services"},
            set(names),
        )

    def test_document_is_deterministic(self):
        self.assertEqual(
            document.to_json(document.describe()), document.to_json(document.describe())
        )


class WritingTest(unittest.TestCase):
    def test_json_and_yaml_are_equal(self):
        described = document.describe()
        read = json.loads(document.to_json(described))
        self.assertEqual(read, yaml.safe_load(document.to_yaml(described)))

    def test_microversion_is_parsed(self):
        self.assertEqual(mv.NEW_ATTACH, document.parse_version("3.27"))
        self.assertEqual(mv.LATEST, document.parse_version("latest"))
        for text in ("3.99", "x"):
            with self.assertRaises(exception.AttachdError):
                document.parse_version(text)


class PathsTest(unittest.TestCase):
    def test_version_documents_need_no_token(self):
        paths = document.version_paths()
        self.assertEqual(["/", "/v3/"], list(paths))
        for path in paths.values():
            self.assertEqual([], path["get"]["security"])
