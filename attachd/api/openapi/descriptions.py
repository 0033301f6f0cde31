# SPDX-License-Identifier: Apache-2.0
"""Descriptions of endpoints, from their docstrings and the policy rules that they check."""

from collections.abc import Mapping
import functools
import inspect
import re
from typing import NamedTuple

from attachd.api import microversions as mv
from attachd.api import policy_rules
from attachd.api.endpoint import Endpoint

_FIELD = re.compile(r"^:\w+[^:]*: ", re.MULTILINE)


class Description(NamedTuple):
    """The description of an endpoint.

    :ivar summary: one sentence
    :ivar text: further paragraphs, with versions and rules, in CommonMark
    """

    summary: str
    text: str


def describe(route: Endpoint) -> Description:
    """Describe an endpoint; fields of the docstring, such as :param:, are left out."""
    text = _FIELD.split(inspect.getdoc(route.handler) or "", maxsplit=1)[0]
    summary, *more = (" ".join(part.split()) for part in text.split("\n\n"))
    paragraphs = [*filter(None, more), _versions(route), *_rules_of(route)]
    return Description(summary, "\n\n".join(filter(None, paragraphs)).replace("``", "`"))


def _versions(route: Endpoint) -> str:
    parts = []
    if route.since > mv.MINIMUM:
        parts.append(f"Since {route.since}.")
    if route.until < mv.LATEST:
        parts.append(f"Until {route.until}.")
    if route.attachd_since is not None:
        parts.append(f"Under `attachd {route.attachd_since}`; without it, this URL is a 404.")
    return " ".join(parts)


def _rules_of(route: Endpoint) -> list[str]:
    described = _rules().get(route.operation, {})
    return [f"By the rule `{name}`: {text}" for name, text in described.items()]


@functools.cache
def _rules() -> Mapping[str, Mapping[str, str]]:
    """Return the rules and their descriptions by operation."""
    rules: dict[str, dict[str, str]] = {}
    for rule in policy_rules.list_rules():
        for operation in getattr(rule, "operations", ()):
            path = operation["path"].removeprefix("/v3/{project_id}")
            described = rules.setdefault(f"{operation['method']} {path}", {})
            described[rule.name] = rule.description or ""
    return rules


def of_variable(name: str) -> str:
    """Describe a variable part of a path."""
    if name.endswith("_id"):
        return f"The id of the {name.removesuffix('_id').replace('_', ' ')}."
    return f"The {name.replace('_', ' ')}."
