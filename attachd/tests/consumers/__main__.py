# SPDX-License-Identifier: Apache-2.0
"""Runs other projects' tests against a Keystone and an attachd of their own.

The results are written as subunit: ``stestr load FILE`` shows them.  What is left out, and why,
is printed to standard error.
"""

import argparse
import contextlib
from contextlib import AbstractContextManager
from pathlib import Path
import sys
from typing import IO
import unittest

from attachd.tests.consumers import deployment, suites


def main() -> int:
    """Run the suites that were asked for; 0 once they ran, with any results."""
    names = [suite.name for suite in suites.SUITES]
    parser = argparse.ArgumentParser(
        prog="python -m attachd.tests.consumers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suite", nargs="*", help=f"some of {', '.join(names)} (default: all)")
    parser.add_argument("--regex", default=".", help="only tests whose id it is found in")
    parser.add_argument("--list", action="store_true", help="only list the tests that would run")
    parser.add_argument(
        "--results",
        default="consumers.subunit",
        metavar="FILE",
        help="where to (%(default)s); - is standard output",
    )
    parser.add_argument(
        "--log",
        type=Path,
        default=Path("consumers.log"),
        metavar="FILE",
        help="where to write attachd's log at the end (%(default)s)",
    )
    options = parser.parse_args()
    if unknown := set(options.suite) - set(names):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    chosen = [item for item in suites.SUITES if item.name in (options.suite or names)]
    keeper = unittest.FunctionTestCase(lambda: None)
    try:
        made = deployment.CloudDeployment(keeper)
        with _results(options.results) as results:
            for suite in chosen:
                tests, reasons = suites.choose(suite, made.environment, options.regex)
                _print_reasons(suite.name, tests, reasons)
                if options.list:
                    _say(*tests)
                else:
                    suites.run(suite, tests, made.environment, results)
        options.log.write_text(made.log(), encoding="utf-8")
    finally:
        keeper.doCleanups()
    return 0


def _results(name: str) -> AbstractContextManager[IO[bytes]]:
    return contextlib.nullcontext(sys.stdout.buffer) if name == "-" else Path(name).open("wb")


def _print_reasons(name: str, tests: list[str], reasons: suites.Reasons) -> None:
    _say(
        f"{name}: {len(tests)} tests; left out:",
        *(f"    {count:4} {reason}" for reason, count in reasons.counts.items()),
    )


def _say(*lines: str) -> None:
    sys.stderr.writelines(f"{line}\n" for line in lines)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
