#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print what failed, what was not run and why, and the totals, as tox and stestr recorded them.

Each test counts as one, and so does each command of the tox environments that run no tests.
"""

import argparse
from collections import Counter
import dataclasses
import json
from pathlib import Path
import re
import shlex
import sys
import textwrap
from typing import IO, Any

from stestr.repository import util
from stestr.repository.abstract import RepositoryNotFound
import subunit
import testtools

SHOWN_FAILURES = 50
SHOWN_LINES = 30


@dataclasses.dataclass
class Results:
    """Results of tests and checks.

    :ivar failed: the name of each failure; of a test, the end of its traceback in further lines
    :ivar reasons: how many tests were skipped for which reason
    """

    passed: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    reasons: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, other: "Results") -> None:
        """Count the results of another run as well."""
        self.passed += other.passed
        self.failed += other.failed
        self.reasons += other.reasons

    @property
    def is_good(self) -> bool:
        """Whether something ran, and nothing failed."""
        return self.passed > 0 and not self.failed

    def __str__(self) -> str:
        """Return the totals in the form that CI reads."""
        skipped = self.reasons.total()
        return f"{self.passed} passed, {len(self.failed)} failed, {skipped} skipped"


def read_run(folder: Path) -> Results:
    """Read the results of the last run that stestr recorded in a folder."""
    nothing = Results(failed=[f"{folder}: no test was run"])
    try:
        repository = util.get_repo_open(repo_url=str(folder))
    except RepositoryNotFound:
        return nothing
    runs = repository.get_run_ids()
    if not runs:
        return nothing
    return read_stream(repository.get_test_run(runs[-1]).get_subunit_stream(), str(folder))


def read_stream(source: IO[bytes], name: str) -> Results:
    """Read the results of one run of tests from a subunit stream.

    :param name: of the run, for a failure without the name of a test
    """
    results = Results()

    def note(test: Any) -> None:
        if test["status"] in {"success", "xfail"}:
            results.passed += 1
        elif test["status"] == "skip":
            details = test["details"]
            reason = details["reason"].as_text() if "reason" in details else "no reason given"
            results.reasons[" ".join(reason.split())] += 1
        elif test["status"] != "exists":
            failure = f"{test['id']} ({test['status']})"
            if "traceback" in test["details"]:
                lines = test["details"]["traceback"].as_text().splitlines()
                failure = "\n    ".join([failure, *lines[-SHOWN_LINES:]])
            results.failed.append(failure)

    stream = testtools.StreamToDict(note)
    stream.startTestRun()
    subunit.ByteStreamToStreamResult(source, "printed").run(stream)
    stream.stopTestRun()
    if not (results.passed or results.failed or results.reasons):
        results.failed.append(f"{name}: no test was run")
    return results


def read_tox(path: Path, tests: Results) -> Results:
    """Read the results of the checks from what ``tox --result-json`` has written.

    :param tests: results of the tests, by which alone commands of stestr count, unless stestr
        failed without a failed test
    """
    results = Results()
    for name, environment in json.loads(path.read_text())["testenvs"].items():
        if "result" not in environment:
            continue  # one that was not asked for, or that makes the package
        commands = environment.get("test", [])
        if not commands:
            results.failed.append(f"{name}: the environment could not be made")
        for step in commands:
            command = shlex.join([Path(step["command"][0]).name, *step["command"][1:]])
            if command.startswith("stestr ") and (tests.failed or not step["retcode"]):
                continue
            if step["retcode"]:
                results.failed.append(f"{name}: {command} returned {step['retcode']}")
            else:
                results.passed += 1
    return results


def print_results(results: Results) -> None:
    """Print failures, reasons for skips and totals, the totals last."""
    if results.reasons:
        print(f"Not run: {results.reasons.total()}")
        for reason, count in _merged(results.reasons).most_common():
            print(f"{count:6}  {reason}")
    if results.failed:
        print(f"Failed: {len(results.failed)}")
        for failure in results.failed[:SHOWN_FAILURES]:
            print(textwrap.indent(failure, " " * 8))
    print(results, flush=True)


def _merged(reasons: Counter[str]) -> Counter[str]:
    """Count reasons that differ only in what is quoted or in numbers as one."""
    first: dict[str, str] = {}
    merged: Counter[str] = Counter()
    for reason, count in reasons.items():
        merged[first.setdefault(re.sub(r"\d+|'[^']*'", "*", reason), reason)] += count
    return merged


def main() -> int:
    """Print the results; 0 if they are good."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tox", type=Path, metavar="FILE", help="result of tox in JSON")
    parser.add_argument("--totals", type=Path, metavar="FILE", help="write the totals here, too")
    parser.add_argument("folder", nargs="+", type=Path, help="where stestr recorded a run")
    options = parser.parse_args()
    results = Results()
    for folder in options.folder:
        results.add(read_run(folder))
    if options.tox:
        results.add(read_tox(options.tox, results))
    print_results(results)
    if options.totals:
        options.totals.write_text(f"{results}\n")
    return 0 if results.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
