# SPDX-License-Identifier: Apache-2.0
"""Certificates of drivers: what the contract suite has found of what a driver declares."""

from collections.abc import Iterable, Iterator, Mapping
import dataclasses
from importlib import metadata
from typing import Any
import unittest

from attachd.drivers import abilities, base
from attachd.tests.contract import (
    driving,
    test_access,
    test_clones,
    test_direct_access,
    test_drivers,
    test_listings,
    test_manage,
    test_manage_snapshots,
    test_parallel_grants,
    test_persistent_reservations,
    test_promises,
    test_remembered_clients,
    test_secrets,
    test_snapshots,
    test_switch_mode,
    test_taken_over,
)

SUITE = (
    test_access,
    test_clones,
    test_direct_access,
    test_drivers,
    test_taken_over,
    test_listings,
    test_manage,
    test_manage_snapshots,
    test_parallel_grants,
    test_promises,
    test_remembered_clients,
    test_persistent_reservations,
    test_secrets,
    test_snapshots,
    test_switch_mode,
)
"""The modules that test drivers."""

METHODS = "required methods"
"""The name of what every driver does; its tests require nothing."""

NAMES = (
    METHODS,
    *abilities.ABILITIES,
    *(promise.name for promise in dataclasses.fields(base.Promises)),
    *("online_clone", "parallel_grants", "pools", "provider_secrets"),
)
"""What a certificate has, in this order."""

PASSED, FAILED, NOT_TESTED, NOT_DECLARED = "passed", "failed", "not tested", "not declared"

Certificate = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By test backend and name: ``result``, one of the above, and the names of the tests: ``passed``,
``failed`` and ``skipped``, by name with the reason."""


class _Recorder(unittest.TestResult):
    """Outcomes of tests, by their backend and by what they test."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, dict[str, dict[str, dict[str, str]]]] = {}
        self.declared: dict[str, set[str]] = {}

    def addSuccess(self, test: Any) -> None:  # noqa: N802  unittest's
        """Record a test that has passed."""
        self._record(test, PASSED)

    def addFailure(self, test: Any, err: Any, details: Any = None) -> None:  # noqa: N802
        """Record a test that has failed, with the end of the traceback."""
        text = details["traceback"].as_text() if details else self._exc_info_to_string(err, test)  # type: ignore[attr-defined]
        self._record(test, FAILED, text.strip().splitlines()[-1])

    addError = addFailure  # noqa: N815

    def addSkip(self, test: Any, reason: str = "", details: Any = None) -> None:  # noqa: N802
        """Record a test that was skipped."""
        self._record(test, "skipped", details["reason"].as_text() if details else reason)

    def _record(self, test: Any, outcome: str, text: str = "") -> None:
        backend = getattr(test.make_backend, "__name__", "none")
        outcomes = self.outcomes.setdefault(backend, {})
        driver = getattr(test, "driver", None)
        if driver is not None:
            known = {**abilities.get_abilities(driver), **vars(driver.promises)}
            self.declared[backend] = {name for name, has_it in known.items() if has_it}
        name = ".".join(test.id().partition("(")[0].split(".")[-2:])
        for subject in getattr(test, "tested", None) or {METHODS}:
            outcomes.setdefault(subject, {}).setdefault(outcome, {})[name] = text


def certify(tests: Iterable[unittest.TestCase]) -> Certificate:
    """Run tests of the suite, and return what they have found, by test backend."""
    recorder = _Recorder()
    for test in tests:
        test.run(recorder)
    return {
        backend: {
            name: _summarize(outcomes.get(name, {}), name in recorder.declared.get(backend, ()))
            for name in NAMES
        }
        for backend, outcomes in sorted(recorder.outcomes.items())
    }


def _summarize(outcomes: Mapping[str, Mapping[str, str]], declared: bool) -> dict[str, Any]:
    skipped = outcomes.get("skipped", {})
    undeclared = all("does not declare" in reason for reason in skipped.values())
    if outcomes.get(FAILED):
        result = FAILED
    elif outcomes.get(PASSED):
        result = PASSED
    else:
        result = NOT_DECLARED if undeclared and not declared else NOT_TESTED
    return {
        "result": result,
        "passed": sorted(outcomes.get(PASSED, ())),
        "failed": dict(outcomes.get(FAILED, {})),
        "skipped": dict(skipped),
    }


def find_tests(driver: str) -> Iterator[unittest.TestCase]:
    """Find the tests of a driver on each of its test backends.

    :param driver: the name of its entry point
    :raises LookupError: no such driver is installed
    """
    if not metadata.entry_points(group="attachd.drivers", name=driver):
        raise LookupError(f"No driver {driver!r} is installed: attachd.drivers has no such entry.")
    for module in SUITE:
        yield from _of_driver(unittest.defaultTestLoader.loadTestsFromModule(module), driver)


def _of_driver(suite: unittest.TestSuite, driver: str) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _of_driver(item, driver)
        elif isinstance(item, driving.DriverCase) and item.entry.name == driver:
            yield item


def has_passed(certificate: Certificate) -> bool:
    """Return whether the required methods have passed on each test backend, and nothing failed."""
    results = [
        (name, entry["result"]) for found in certificate.values() for name, entry in found.items()
    ]
    return (METHODS, PASSED) in results and not any(
        result == FAILED or (name == METHODS and result != PASSED) for name, result in results
    )


def to_rst(certificate: Certificate) -> str:
    """Format a certificate as a table."""
    lines = [".. list-table::", "   :header-rows: 1", "", "   * - declaration"]
    lines += [f"     - {backend}" for backend in certificate]
    for name in NAMES:
        lines.append(f"   * - {name if name == METHODS else f'``{name}``'}")
        lines += [f"     - {_to_cell(found[name])}" for found in certificate.values()]
    return "\n".join([*lines, ""])


def to_table(certificate: Certificate, seconds: float) -> str:
    """Format a certificate for a terminal, with the numbers of tests.

    :param seconds: how long the tests took
    """
    backends = [*certificate]
    rows = [["declaration", *backends]]
    rows += [[name, *(_in_words(certificate[item][name]) for item in backends)] for name in NAMES]
    rows.append(["tests", *(_count_tests(certificate[item]) for item in backends)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, f"{seconds:.0f} s", ""])


def _in_words(entry: Mapping[str, Any]) -> str:
    counts = [f"{len(entry[kind])} {kind}" for kind in (PASSED, FAILED, "skipped") if entry[kind]]
    shown = {NOT_DECLARED: "-"}.get(entry["result"], entry["result"])
    return f"{shown} ({', '.join(counts)})" if counts and shown != "-" else shown


def _count_tests(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how many different tests there were, by their outcome; one may test several names."""
    tests = {
        kind: {name for entry in found.values() for name in entry[kind]}
        for kind in (PASSED, FAILED, "skipped")
    }
    return ", ".join(f"{len(names)} {kind}" for kind, names in tests.items())


def _to_cell(entry: Mapping[str, Any]) -> str:
    result: str = entry["result"]
    if result == FAILED:
        return f"**failed**: {', '.join(sorted(entry['failed']))}"
    return "--" if result == NOT_DECLARED else result
