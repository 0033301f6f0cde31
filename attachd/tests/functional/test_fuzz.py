# SPDX-License-Identifier: Apache-2.0
"""Tests that random bodies and parameters never return a 5xx.

Hypothesis generates bodies for every endpoint: some are any JSON, most are close to the
endpoint's schema.
"""

import re
from typing import Any
import unittest
import urllib.parse

import hypothesis
from hypothesis import strategies as st

from attachd.api import endpoint
from attachd.tests.fixtures import wsgi_api
from attachd.tests.functional import bad_input
from attachd.tests.selection import full_only

SETTINGS = hypothesis.settings(
    max_examples=100,
    database=None,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)

KNOWN_IDS = ("volume", "broken_volume", "reserved", "attached", "failed", "unknown")

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**31 - 2, max_value=2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=20)
    | st.text(max_size=3).map(lambda text: text * 100)
    | st.sampled_from(["", "0", "True", "rw", "available", "error", "\x00", "a\nb", "../..", "%s"])
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3)
    ),
    max_leaves=8,
)


def nearly(schema: Any, identities: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Make values which fit a schema more or less."""
    if not isinstance(schema, dict):
        return anything
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | scalars
    if schema.get("format") == "uuid":
        return identities | scalars
    kinds = schema.get("type", ())
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    if "properties" in schema or "object" in kinds:
        return _nearly_object(schema, identities)
    return _of_kinds(kinds) | scalars


def _nearly_object(schema: Any, identities: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    known = {key: nearly(inner, identities) for key, inner in schema.get("properties", {}).items()}
    required = {key: known.pop(key, scalars) for key in schema.get("required", ())}
    fitting = st.fixed_dictionaries(required, optional=known)
    more = st.dictionaries(st.sampled_from(["host", "mode", "key", "x y"]) | st.text(), anything,
                           max_size=2)  # fmt: skip
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        return fitting | anything
    return st.builds(lambda one, two: {**one, **two}, fitting, more)


def _of_kinds(kinds: set[str]) -> st.SearchStrategy[Any]:
    by_kind: dict[str, st.SearchStrategy[Any]] = {
        "string": st.text(max_size=300),
        "integer": st.integers(min_value=-1, max_value=3),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return st.one_of([by_kind[kind] for kind in kinds if kind in by_kind] or [anything])


@full_only("properties")
class FuzzTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.api = wsgi_api.use(self)
        self.world = bad_input.world()
        self.identities = st.sampled_from([self.world[name] for name in KNOWN_IDS])

    def check(self, item, value, identity):
        url = re.sub(r"\{\w+\}", identity, item.path)
        body = {item.action: value} if item.action else value
        answer = self.api.request(item.method, url, body, token=wsgi_api.ADMIN)
        self.assertLess(answer.status, 500, f"{item.operation} {body!r} {answer.raw!r}")
        if answer.status >= 400:
            self.assertEqual(1, len(answer.body))

    def test_random_bodies_never_return_500(self):
        for api_endpoint in endpoint.load():
            if api_endpoint.body is None:
                continue
            for schema in api_endpoint.body.schemas:
                bodies = st.one_of(nearly(schema, self.identities), anything)
                with self.subTest(endpoint=api_endpoint.operation):
                    given = hypothesis.given(st.just(api_endpoint), bodies, self.identities)
                    SETTINGS(given(self.check))()

    def test_random_parameters_never_return_500(self):
        names = st.sampled_from(
            ["limit", "offset", "marker", "sort", "sort_key", "sort_dir", "all_tenants", "status",
             "volume_id", "instance_id", "name", "metadata", "size", "bootable", "created_at",
             "updated_at", "is_public", "extra_specs", "with_count", "binary", "host", "detail"]
        )  # fmt: skip
        values = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
            ["0", "1", "True", "{}", "{'a': 'b'}", "created_at:asc", "gt:2026-01-01", "x~y"]
        )

        @SETTINGS
        @hypothesis.given(
            st.sampled_from(
                [api_endpoint for api_endpoint in endpoint.load() if api_endpoint.method == "GET"]
            ),
            st.dictionaries(
                names | st.text(max_size=5).filter(str.isprintable), values, max_size=3
            ),
            self.identities,
            st.sampled_from(["volume 3.27", "volume 3.31", wsgi_api.LATEST]),
        )
        def check(item, parameters, identity, version):
            url = re.sub(r"\{\w+\}", identity, item.path)
            query = urllib.parse.urlencode(parameters, errors="surrogatepass")
            answer = self.api.request(
                "GET", f"{url}?{query}", token=wsgi_api.ADMIN, version=version
            )
            self.assertLess(answer.status, 500, f"{item.operation} {parameters!r} {answer.raw!r}")

        check()
