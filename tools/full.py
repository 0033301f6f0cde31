#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run everything, part after part, and print how long each part took.

``tox -e full`` runs all parts, ``tox -e full -- crash guides`` only those that are named.  The
parts of ``.ci/run`` come first.
"""

import argparse
from collections.abc import Iterable
import dataclasses
import os
from pathlib import Path
import shlex
import shutil
import subprocess
import sys
import time

import results

TOP = Path(__file__).resolve().parent.parent
RECORDS = TOP / ".cache" / "full"
# As in run_tests.sh.
WORKERS = int(os.environ.get("ATTACHD_TEST_WORKERS") or min((os.cpu_count() or 1) + 2, 12))


@dataclasses.dataclass
class Part:
    """One part of all checks and tests.

    :ivar command: what to run
    :ivar results: the folder or the file where the command records the results of tests; None:
        the command counts as one check
    """

    name: str
    command: list[str]
    results: Path | None = None


def _check(name: str) -> Part:
    """Return what the tox environment of a check does."""
    return Part(name, [sys.executable, "-m", "tox", "run", "-q", "-e", name])


def _tests(name: str, folder: str, *options: str, workers: int = WORKERS) -> Part:
    """Return a run of tests in a folder of attachd/tests."""
    command = ["stestr", "--test-path", f"attachd/tests/{folder}", "--repo-url"]
    command += [str(RECORDS / name), "run", "--abbreviate", "--concurrency", f"{workers}"]
    return Part(name, [*command, *options], RECORDS / name)


def _long_tests(name: str, workers: int = WORKERS) -> Part:
    """Return a run of the tests that are marked with ``@full_only(name)``."""
    return _tests(name, "", rf"\[full,{name}\]", workers=workers)


def _consumers() -> Part:
    """Return a run of the tests of Tempest and of the stock clients."""
    folder = RECORDS / "consumers"
    stream = folder / "results"
    command = [sys.executable, "-m", "attachd.tests.consumers", "--results", str(stream)]
    return Part("consumers", [*command, "--log", str(folder / "attachd.log")], stream)


def _lab() -> list[Part]:
    """Return the tests with virtual machines, if there are scripts to make these."""
    if "LAB_HOME" not in os.environ:
        return []
    return [_tests("lab", "lab", workers=1)]


PARTS = (
    _check("pep8"),
    _check("mypy"),
    _tests("unit", "unit", "--exclude-regex", r"\[full,"),
    _tests("contract", "contract", "--exclude-regex", r"\[full,"),
    _tests("functional", "functional", "--exclude-regex", r"\[full,"),
    _check("docs"),
    _check("genconfig"),
    _check("genpolicy"),
    _long_tests("databases"),
    # Each process starts a cluster.
    _long_tests("storage", workers=2),
    _long_tests("crash"),
    _long_tests("outages"),
    _long_tests("deployments"),
    _long_tests("clients"),
    _long_tests("agents"),
    _long_tests("leases", workers=1),
    _long_tests("hosts"),
    _long_tests("containers"),
    _long_tests("browser", workers=1),
    _long_tests("keystone"),
    _long_tests("properties"),
    # PostgreSQL allows 100 connections, of which each test wants many.
    _long_tests("races", workers=2),
    _long_tests("scale"),
    _long_tests("guides"),
    _long_tests("devstack"),
    _long_tests("upgrade"),
    _long_tests("soak"),
    _consumers(),
    # One cloud for all tests.
    _tests("nova", "nova", workers=1),
    *_lab(),
)


def run(part: Part) -> results.Results:
    """Run one part to its end and return what became of it."""
    print(f"== {part.name}: {shlex.join(part.command)}", flush=True)
    (RECORDS / part.name).mkdir(parents=True)
    process = subprocess.run(part.command, cwd=TOP, stdin=subprocess.DEVNULL, check=False)
    failed = results.Results(failed=[f"{part.name}: returned {process.returncode}"])
    if part.results is None:
        return failed if process.returncode else results.Results(passed=1)
    if part.results.is_file():
        with part.results.open("rb") as stream:
            outcome = results.read_stream(stream, part.name)
    else:
        outcome = results.read_run(part.results)
    if process.returncode and not outcome.failed:
        outcome.add(failed)
    return outcome


def run_all(parts: Iterable[Part]) -> results.Results:
    """Run parts, and print a line for each when all have ended."""
    total, lines = results.Results(), []
    for part in parts:
        began = time.monotonic()
        outcome = run(part)
        lines.append(f"{part.name:<14} {time.monotonic() - began:7.0f} s   {outcome}")
        print(lines[-1], flush=True)
        total.add(outcome)
    print("", *lines, "", sep="\n", flush=True)
    return total


def unasked() -> list[str]:
    """Return the names of the parts that run if none is named."""
    missing = set() if "LAB_NOVA_HOME" in os.environ else {"nova"}
    return [part.name for part in PARTS if part.name not in missing]


def main() -> int:
    """Run the parts that were asked for; 0 if all that ran was good."""
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", help=f"one of {', '.join(names)} (default: all)")
    chosen = parser.parse_args().part or unasked()
    if unknown := set(chosen) - set(names):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    shutil.rmtree(RECORDS, ignore_errors=True)
    total = run_all(part for part in PARTS if part.name in chosen)
    if "LAB_HOME" not in os.environ:
        print("The part lab, with virtual machines, was not run: LAB_HOME names no folder.")
    if "LAB_NOVA_HOME" not in os.environ:
        print("The part nova, with a real Nova, was not run: LAB_NOVA_HOME names no folder.")
    results.print_results(total)
    return 0 if total.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
