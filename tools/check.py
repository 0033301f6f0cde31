#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the project's checks and tests and counts them; called by tox and .ci/run.

Every step runs, whatever became of the ones before it; its time is printed at the end.  A
test step counts as many as it has tests, every other step as one.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import datetime
import io
import os
from pathlib import Path
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import subunit
import testtools

TOP = Path(__file__).resolve().parent.parent

SPHINX = "sphinx-build -q -W --keep-going -b html"

# Commands of a step, in order; a word that the shell would have to see is not allowed here.
COMMANDS: dict[str, tuple[str, ...]] = {
    "ruff": ("ruff check .", "ruff format --check ."),
    "bandit": ("bandit -q -r -c pyproject.toml attachd",),
    "doc8": ("doc8 README.rst CONTRIBUTING.rst HACKING.rst doc api-ref releasenotes",),
    "mypy": ("mypy",),
    "layers": ("lint-imports --no-logo --no-cache",),
    "docs": (f"{SPHINX} doc/source doc/build/html",),
    "api-ref": (f"{SPHINX} api-ref/source api-ref/build/html",),
    "releasenotes": (
        "reno -q lint",
        f"{SPHINX} releasenotes/source releasenotes/build/html",
    ),
    "samples": (
        "oslo-config-generator --config-file etc/attachd/config-generator.conf",
        "oslopolicy-sample-generator --config-file etc/attachd/policy-generator.conf",
    ),
}
# Seconds after which a test step is ended; together under 40 minutes on two cores.
TESTS: dict[str, int] = {"unit": 300, "contract": 300, "functional": 1200, "consumers": 900}
LIMIT = 180

GROUPS: dict[str, tuple[str, ...]] = {
    "pep8": ("ruff", "bandit", "doc8"),
    "fast": ("ruff", "bandit", "doc8", "mypy", "layers", "unit"),
    "all": (*COMMANDS, *TESTS),
}


@dataclasses.dataclass
class Result:
    """What became of one step."""

    name: str
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        """Return the step's line of the closing table."""
        return (
            f"{self.name:<14}{self.seconds:8.1f} s {self.passed:6} ok "
            f"{self.failed:4} wrong {self.skipped:4} left out"
        )


def main() -> int:
    """Run the steps that were asked for; 0 if all that ran was good and something ran."""
    options, rest = _parse(sys.argv[1:])
    results = [_run(step, rest) for step in _steps(options.step or ["all"])]
    print("", *results, sep="\n", flush=True)
    passed, failed, skipped = (
        sum(getattr(result, kind) for result in results)
        for kind in ("passed", "failed", "skipped")
    )
    if options.counts:
        options.counts.write_text(f"{passed} passed, {failed} failed, {skipped} skipped\n")
    return 1 if failed or not passed else 0


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Split off what follows a lone --, for the steps' own commands."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="What follows a lone -- goes to the commands, as: check.py unit -- db.test_api",
    )
    names = ", ".join((*GROUPS, *COMMANDS, *TESTS))
    parser.add_argument("step", nargs="*", help=f"one of {names} (default: all)")
    parser.add_argument("--counts", type=Path, metavar="FILE", help="write the totals here")
    options = parser.parse_args(arguments[:end])
    if unknown := set(options.step) - {*GROUPS, *COMMANDS, *TESTS}:
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    return options, arguments[end + 1 :]


def _steps(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from GROUPS.get(name, (name,))


def _run(step: str, rest: Sequence[str]) -> Result:
    began = time.monotonic()
    result = _run_tests(step, rest) if step in TESTS else _run_commands(step, rest)
    result.seconds = time.monotonic() - began
    return result


def _run_commands(step: str, rest: Sequence[str]) -> Result:
    result = Result(step)
    commands = [[*shlex.split(command), *rest] for command in COMMANDS[step]]
    # All of them, so that one round shows everything there is to mend.
    good = [_call(command, LIMIT) for command in commands]
    if all(good):
        result.passed = 1
    else:
        result.failed = 1
    return result


def _run_tests(step: str, rest: Sequence[str]) -> Result:
    began = datetime.datetime.now(datetime.UTC)
    record = Path(".cache", step)
    (TOP / record).mkdir(parents=True, exist_ok=True)
    stestr = ["stestr", "--test-path", f"attachd/tests/{step}", "--repo-url", str(record)]
    if step == "consumers":
        good = _run_others(stestr, TOP / record / "results.subunit", rest, TESTS[step])
    else:
        good = _call([*stestr, "run", *rest], TESTS[step])
    result = Result(step)
    for status in _outcomes(stestr, began):
        if status in {"success", "xfail"}:
            result.passed += 1
        elif status == "skip":
            result.skipped += 1
        else:
            result.failed += 1
    # Ended early, or nothing was found: no test says so.
    if not result.failed and not (good and result.passed + result.skipped):
        print(f"{step}: the run itself failed, or had no test", flush=True)
        result.failed = 1
    return result


def _run_others(stestr: Sequence[str], results: Path, rest: Sequence[str], limit: int) -> bool:
    """Run the tests of other projects; stestr, which cannot start them, keeps the record."""
    command = [sys.executable, "-m", "attachd.tests.consumers", "--results", str(results), *rest]
    good = _call(command, limit)
    return _call([*stestr, "load", "--force-init", str(results)], LIMIT) and good


def _outcomes(stestr: Sequence[str], began: datetime.datetime) -> list[str]:
    """Return the status of each test that has run since ``began``, from the runner's record."""
    outcomes: list[str] = []

    def note(test: dict[str, Any]) -> None:
        start = test["timestamps"][0]
        if test["status"] != "exists" and start and start >= began:
            outcomes.append(test["status"])

    record = subprocess.run(
        [*stestr, "last", "--subunit"], cwd=TOP, stdout=subprocess.PIPE, check=False
    ).stdout
    stream = testtools.StreamToDict(note)
    stream.startTestRun()
    subunit.ByteStreamToStreamResult(io.BytesIO(record), "not subunit").run(stream)
    stream.stopTestRun()
    return outcomes


def _call(command: Sequence[str], limit: int) -> bool:
    """Run a command with all its children; end them when the time is up."""
    print(f"\n$ {shlex.join(command)}", flush=True)
    if shutil.which(command[0]) is None:
        print(f"{command[0]} is not installed here", flush=True)
        return False
    process = subprocess.Popen(command, cwd=TOP, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(limit) == 0
    except subprocess.TimeoutExpired:
        print(f"not done after {limit} s: ended", flush=True)
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
