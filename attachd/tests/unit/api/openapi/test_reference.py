# SPDX-License-Identifier: Apache-2.0
"""Tests that the API reference matches the declared endpoints."""

from pathlib import Path
import re
from typing import Any, NamedTuple
import unittest

import yaml

from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.api.openapi import response_schemas

REFERENCE = Path(__file__).parents[5] / "api-ref" / "source" / "v3"

_SECTION = re.compile(
    r"^([^\n]+)\n=+\n\n\.\. rest_method:: +(\w+) (\S+)\n(.*?)(?=^[^\n]+\n=+\n|\Z)",
    re.MULTILINE | re.DOTALL,
)
_PARAMETER = re.compile(r"^   - (\S+): (\S+)$", re.MULTILINE)
_FILTERS = "filter"
"""Stands for all filters of a list, which its description names."""

# What is taken for the sake of clients that always send it, and means nothing or the same.
_UNTOLD = frozenset(
    {
        *("display_name", "display_description", "backup_id", "group_id", "image_id"),
        *("source_replica", "consistencygroup_id", "tenant_id", "id", "service", "cluster"),
        "os-volume-type-access:is_public",
    }
)


class Section(NamedTuple):
    """The section of the reference about one operation.

    :ivar inputs: the parameters of a request, with the place of each
    """

    results: set[int]
    faults: set[int]
    inputs: set[tuple[str, str]]

    def named(self, place: str) -> set[str]:
        return {name for name, where in self.inputs if where == place}


def sections() -> dict[str, Section]:
    places = yaml.safe_load((REFERENCE / "parameters.yaml").read_text())
    found = {}
    for page in sorted(REFERENCE.glob("*.inc")):
        for title, method, path, text in _SECTION.findall(page.read_text()):
            action = re.search(r" \(\w\S+\)$", title) if path.endswith("/action") else None
            name = f"{method} {path.removeprefix('/v3/{project_id}')}{action[0] if action else ''}"
            pairs = _PARAMETER.findall(text.partition("Response\n--------")[0])
            inputs = {(item, places[key]["in"]) for item, key in pairs}
            found[name] = Section(_codes(text, "success"), _codes(text, "error"), inputs)
    return found


def _codes(text: str, kind: str) -> set[int]:
    listed = re.search(rf"rest_status_code:: {kind} \S+\n\n((?:   - \d+\n?)+)", text)
    return set(map(int, re.findall(r"\d+", listed[1]))) if listed else set()


def _properties(schema: Any) -> set[str]:
    found = set()
    for name, inner in schema.get("properties", {}).items():
        found |= {name} | _properties(inner)
    return found


class ReferenceTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        super().setUp()
        if not REFERENCE.is_dir():
            self.skipTest(f"The API reference is not here: {REFERENCE}")
        self.sections = sections()
        declared = {api_endpoint.operation: api_endpoint for api_endpoint in endpoint.load()}
        self.pairs = [
            (declared[name], section)
            for name, section in self.sections.items()
            if name in declared
        ]

    def test_each_operation_has_one_section(self):
        declared = {api_endpoint.operation for api_endpoint in endpoint.load()}
        self.assertEqual(declared | {"GET /", "GET /v3/"}, set(self.sections))

    def test_success_codes_match_endpoints(self):
        result = {item.operation: section.results for item, section in self.pairs}
        real = {item.operation: response_schemas.results(item) for item, _ in self.pairs}
        self.assertEqual(real, result)

    def test_error_codes_match_endpoints(self):
        """What nearly any call can answer may be left out, see index.rst; nothing else."""
        wrong = {}
        for item, section in self.pairs:
            special = {*item.doc.faults} | (
                set(response_schemas.IDEMPOTENT) if item.idempotent else set()
            )
            missing, unknown = (
                special - section.faults,
                section.faults - response_schemas.faults(item),
            )
            if missing or unknown:
                wrong[item.operation] = f"missing {missing}, not in the register {unknown}"
        self.assertEqual({}, wrong)

    def test_query_parameters_match_endpoints(self):
        wrong = {}
        for item, section in self.pairs:
            result, real = section.named("query"), set(item.doc.parameters)
            if _FILTERS in result:
                real = real & result | {_FILTERS}
            if result != real:
                wrong[item.operation] = (
                    f"missing {real - result}, not in the register {result - real}"
                )
        self.assertEqual({}, wrong)

    def test_path_variables_are_documented(self):
        wrong = {
            item.operation: section.named("path")
            for item, section in self.pairs
            if section.named("path") != {"project_id", *item.variables}
        }
        self.assertEqual({}, wrong)

    def test_body_fields_are_documented(self):
        wrong = {}
        for item, section in self.pairs:
            validator = item.body and item.body.get(mv.LATEST)
            if validator:
                untold = _properties(validator.schema) - _UNTOLD - section.named("body")
                if untold:
                    wrong[item.operation] = untold
        self.assertEqual({}, wrong)
