# SPDX-License-Identifier: Apache-2.0
"""Tests that bad requests get a 4xx that names the problem.

Each resource has a table in bad_input/; errors that any request can have are tested at every
endpoint.
"""

import re
from typing import Any

from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional import bad_input
from attachd.tests.functional.api_case import ApiCase

MIB = 1024 * 1024

BODIES: list[tuple[str, int, str, dict[str, Any]]] = [
    ("no body", 400, "no body", {"raw": b""}),
    ("broken JSON", 400, "Malformed request body", {"raw": b'{"a": '}),
    ("no JSON at all", 400, "Malformed request body", {"raw": b"<volume/>"}),
    ("no UTF-8", 400, "Malformed request body", {"raw": b'{"a": "\xff"}'}),
    ("UTF-16", 400, "Malformed request body", {"raw": '{"a": 1}'.encode("utf-16")}),
    ("not a number", 400, "Malformed request body", {"raw": b'{"a": NaN}'}),
    ("more than there are numbers", 400, "too large", {"raw": b'{"a": 1e999}'}),
    ("deep", 400, "nested deeper", {"raw": b'{"a":' * 20_000}),
    ("a list", 400, r"^\[\] is not of type|one key", {"raw": b"[]"}),
    ("text", 400, r"^'text' is not of type|one key", {"raw": b'"text"'}),
    ("a number of 5000 digits", 400, "Malformed request body", {"raw": b"1" * 5000}),
    ("null", 400, r"^None is not of type|one key", {"raw": b"null"}),
    ("an empty object", 400, "is a required property|one key|non-empty|minimum|only one",
     {"raw": b"{}"}),
    ("an unknown key", 400, r"is a required property|'x\\n'", {"raw": b'{"x\\n": {}}'}),
    ("a NUL", 400, "NUL", {"raw": b'{"x": "\\u0000"}'}),
    ("half a character", 400, "surrogate", {"raw": b'{"x": "\\ud800"}'}),
    ("an object of RPC", 400, r"Keys must .*x\.0\.attachd_object\.name", {
        "raw": b'{"x": [{"attachd_object.name": "Volume"}]}'}),
    ("XML", 415, "Content-Type", {"raw": b"<a/>", "content_type": "application/xml"}),
    ("a form", 415, "Content-Type", {
        "raw": b"a=b", "content_type": "application/x-www-form-urlencoded"}),
    ("no type", 400, "Content-Type", {"raw": b"{}", "content_type": ""}),
    ("a byte too much", 413, "at most 114688 bytes", {"raw": b" " * (112 * 1024 + 1)}),
    ("as much as is accepted", 400, r"^\[\] is not of type|one key", {
        "raw": b" " * (112 * 1024 - 2) + b"[]"}),
    ("10 MB", 413, "at most 114688 bytes", {"raw": b" " * (10 * MIB)}),
    ("10 MB of text", 413, "114688 bytes", {"raw": b'{"x": "' + b"y" * (10 * MIB) + b'"}'}),
]  # fmt: skip
"""(claim, status, the message, options of ask) for every endpoint that reads a body."""


EMPTY_MEANS_ALL = frozenset({"PUT /os-services/get-log", "POST /workers/cleanup"})
"""Endpoints whose body may be an empty object."""


class Case(ApiCase):
    maxDiff = None

    def setUp(self):
        super().setUp()
        self.world = bad_input.world()

    def assert_fault(self, answer, status, says):
        self.assertEqual(status, answer.status, answer.raw[:300])
        ((_key, content),) = answer.body.items()
        self.assertEqual(status, content["code"])
        self.assertRegex(content["message"], says)
        self.assertLess(len(content["message"]), 1000)
        self.assertIsNone(re.search(r"[\x00-\x1f]", content["message"]))


class TablesTest(Case):
    def test_bad_request_of_each_table_row_names_the_problem(self):
        for case in bad_input.cases(self.world):
            with self.subTest(case.claim, resource=case.resource):
                answer = self.api.request(case.method, case.path, case.body, **case.options)
                self.assert_fault(answer, case.status, case.message)


class EveryEndpointTest(Case):
    def setUp(self):
        super().setUp()
        self.endpoints = {
            (api_endpoint.method, api_endpoint.path): api_endpoint
            for api_endpoint in endpoint.load()
        }

    def _url(self, path, value):
        return re.sub(r"\{\w+\}", value, path)

    def test_unreadable_body_returns_400_at_each_endpoint(self):
        for (method, path), item in self.endpoints.items():
            if item.body is None:
                continue
            url = self._url(path, bad_input.UNKNOWN)
            for claim, status, says, options in BODIES:
                if claim == "an empty object" and item.operation in EMPTY_MEANS_ALL:
                    continue
                with self.subTest(claim, endpoint=item.operation):
                    version = mv.RequestedVersions(mv.LATEST, item.attachd_since).header()
                    asked = {"token": wsgi_api.ADMIN, "version": version, **options}
                    answer = self.api.request(method, url, **asked)
                    self.assert_fault(answer, status, says)

    def test_unknown_id_returns_404_at_each_endpoint(self):
        for (method, path), item in self.endpoints.items():
            if "{" not in path or item.body is not None:
                continue
            for value in ("%00", "a%0Ab", "x" * 300, "%7F"):
                with self.subTest(value[:5], endpoint=item.operation):
                    answer = self.api.request(method, self._url(path, value), token=wsgi_api.ADMIN)
                    self.assert_fault(answer, 404, "could not be found")

    def test_malformed_id_never_returns_500_at_any_endpoint(self):
        for (method, path), item in self.endpoints.items():
            if "{" not in path:
                continue
            for value in ("%F0%9F%92%BE", "'%22;--", "%25", "..", "a%20b", "%C3%BC", "-1", "None"):
                with self.subTest(value, endpoint=item.operation):
                    answer = self.api.request(
                        method, self._url(path, value), {}, token=wsgi_api.ADMIN
                    )
                    self.assertLess(answer.status, 500, answer.raw)

    def test_malformed_parameters_never_return_500_at_any_endpoint(self):
        for (method, path), item in self.endpoints.items():
            if method != "GET":
                continue
            url = self._url(path, bad_input.UNKNOWN)
            for query in ("limit=0", "limit=x", "offset=-1", "marker=%F0%9F%92%BE", "sort=,", "=",
                          "a=%FF", "a=%00", "&&&", "sort=created_at:desc:asc", "all_tenants=%20",
                          "metadata=%7B", "name~=%25", "with_count=maybe", "created_at=gt:x",
                          "a[]=b", "bootable=x", "size=x", "extra_specs={", "is_public=%C3%BC",
                          "offset=99999999999999999999", "host=@%23", "detail=maybe"):  # fmt: skip
                for version in ("volume 3.0", "volume 3.27", wsgi_api.LATEST):
                    with self.subTest(query, endpoint=item.operation, version=version):
                        answer = self.api.request(
                            method, f"{url}?{query}", version=version, token=wsgi_api.ADMIN
                        )
                        self.assertLess(answer.status, 500, answer.raw)

    def test_unknown_parameter_returns_400_at_each_writing_endpoint(self):
        for item in endpoint.load():
            if item.method == "GET":
                continue
            with self.subTest(endpoint=item.operation):
                url = f"{self._url(item.path, bad_input.UNKNOWN)}?dryrun%1B=true"
                version = mv.RequestedVersions(mv.LATEST, item.attachd_since).header()
                body = {} if item.action is None else {item.action: None}
                options = {"token": wsgi_api.ADMIN, "version": version}
                clean = url.replace("%1B", "")
                answer = self.api.request(item.method, clean, body, **options)
                self.assert_fault(answer, 400, r"Unknown query parameters: 'dryrun'\. .* has ")
                answer = self.api.request(item.method, url, body, **options)
                self.assert_fault(answer, 400, "control characters")

    def test_unknown_microversion_returns_406_before_the_body_is_validated(self):
        for (method, path), item in self.endpoints.items():
            if item.since == mv.MINIMUM or item.body is None or item.action:
                continue
            with self.subTest(endpoint=item.operation):
                url = self._url(path, bad_input.UNKNOWN)
                answer = self.api.request(method, url, {}, version="volume 3.0")
                self.assert_fault(answer, 404, "3.0 is not supported")
