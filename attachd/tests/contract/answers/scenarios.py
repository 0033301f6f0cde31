# SPDX-License-Identifier: Apache-2.0
"""Read the requests in requests/*.yaml; for the player and for the tests.

A file is a noun, in it a scenario is a list of steps.  A step either has volumes and types made
(``given``), which is not recorded, or is a request, or several that differ in microversion or
caller: ``at: [3.0, 3.12]``, ``as: [admin, reader]``.  A number with a point is text there, so that
3.10 is not 3.1.
"""

from collections.abc import Iterator
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "requests"
LATEST = "3.71"
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
KEYWORDS = frozenset(
    {"id", "at", "as", "body", "raw", "headers", "keep", "wait", "only", "pause", *METHODS}
)


class _Loader(yaml.SafeLoader):
    """Reads microversions as text."""


_Loader.yaml_implicit_resolvers = {
    first: [item for item in several if item[0] != "tag:yaml.org,2002:float"]
    for first, several in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclasses.dataclass(frozen=True)
class Request:
    """One request, with ``$variables`` still in it.

    :ivar id: NOUN/SCENARIO/STEP, and what distinguishes it from others of the same step
    :ivar version: the value of the header OpenStack-API-Version; None: none is sent
    :ivar keep: names of variables, and where their values stand in the body of the answer; a GET
        is repeated until they are there
    :ivar wait: names of variables that hold ids of volumes, and the status to wait for afterwards
    :ivar only: names of lists in the answer, and which of their items matter: a field, its values
    :ivar pause: whether time has to pass before it, for times in seconds to differ
    """

    id: str
    method: str
    path: str
    caller: str
    version: str | None
    body: Any = None
    raw: str | None = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    keep: dict[str, str] = dataclasses.field(default_factory=dict)
    wait: dict[str, str] = dataclasses.field(default_factory=dict)
    only: dict[str, dict[str, list[str]]] = dataclasses.field(default_factory=dict)
    pause: bool = False


@dataclasses.dataclass(frozen=True)
class Given:
    """Resources that the next request needs, by the variables of their ids."""

    types: dict[str, dict[str, Any]]
    volumes: dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A sequence of requests, in a project of its own."""

    id: str
    steps: tuple[Request | Given, ...]

    @property
    def noun(self) -> str:
        """The file that contains it."""
        return self.id.split("/", maxsplit=1)[0]

    @property
    def requests(self) -> list[Request]:
        """Return the requests, in order."""
        return [step for step in self.steps if isinstance(step, Request)]


def load(folder: Path = FOLDER) -> list[Scenario]:
    """Read all scenarios.

    :raises ValueError: one has a wrong format
    """
    found = []
    for path in sorted(folder.glob("*.yaml")):
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
        for name, steps in content.items():
            identity = f"{path.stem}/{name}"
            read = tuple(itertools.chain.from_iterable(_read(identity, step) for step in steps))
            found.append(Scenario(identity, read))
    _refuse_duplicates(found)
    return found


def _refuse_duplicates(found: list[Scenario]) -> None:
    seen = set()
    for request in itertools.chain.from_iterable(scenario.requests for scenario in found):
        if request.id in seen:
            raise ValueError(f"{request.id} stands there twice")
        seen.add(request.id)


def _read(scenario: str, step: dict[str, Any]) -> Iterator[Request | Given]:
    if "given" in step:
        given = step["given"]
        yield Given(given.get("types", {}), given.get("volumes", {}))
        return
    if unknown := step.keys() - KEYWORDS:
        raise ValueError(f"{scenario}: what is {sorted(unknown)} in {step}?")
    (method,) = step.keys() & set(METHODS)
    versions = _several(step.get("at", LATEST))
    callers = _several(step.get("as", "member"))
    for version, caller in itertools.product(versions, callers):
        marks = [f"@{version}"] * (len(versions) > 1) + [f"+{caller}"] * (len(callers) > 1)
        yield Request(
            id=f"{scenario}/{step['id']}{''.join(marks)}",
            method=method,
            path=step[method],
            caller=caller,
            version=_header(version),
            body=step.get("body"),
            raw=step.get("raw"),
            headers=step.get("headers", {}),
            keep=step.get("keep", {}),
            wait=step.get("wait", {}),
            only=step.get("only", {}),
            pause=step.get("pause", False),
        )


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _header(version: Any) -> str | None:
    """Return the value of the header: 3.27 stands for "volume 3.27", words for themselves."""
    if version is None:
        return None
    return version if " " in str(version) else f"volume {version}"
