# SPDX-License-Identifier: Apache-2.0
"""The command of the soak test; see doc/source/contributor/soak-tests.rst."""

import argparse
import os
from pathlib import Path
import signal
import sys
import unittest

from attachd.tests.soak import deployment, run

_CHOICES = {"yes": True, "no": False}


def main(argv: list[str] | None = None) -> int:
    """Run the soak test.

    :returns: the exit code: 0 if nothing happened that must not happen, 1 otherwise
    """
    arguments = _parser().parse_args(argv)
    # A test that skips would hide that nothing was shown.
    os.environ["CI"] = "true"
    # Python's own way to end, which runs what has to be run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    owner = unittest.TestCase()
    settings = run.Settings(
        seconds=arguments.minutes * 60,
        seed=arguments.seed,
        clients=arguments.clients,
        attach_timeout=arguments.attach_timeout,
        kinds=arguments.kill or deployment.KINDS,
        keys=_CHOICES.get(arguments.idempotency_keys, run.knows_keys()),
    )
    try:
        deployment.require(owner)
        report = run.soak(owner, settings, _say, arguments.logs)
    finally:
        owner.doCleanups()
    _say(f"{report}")
    if arguments.report:
        arguments.report.write_text(f"{report}", encoding="utf-8")
    return 1 if report.violations else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m attachd.tests.soak",
        description="Let clients attach and detach while everything is killed again and again, "
        "and look whether anything is lost, doubled or left. Starts a MariaDB, a RabbitMQ, a "
        "tgtd, two managers and an API of its own; nothing else on the machine is touched.",
    )
    parser.add_argument(
        "--minutes", type=float, default=20.0, help="how long; fractions are allowed (20)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of what clients intend and what is killed when (1)"
    )
    parser.add_argument("--clients", type=int, default=16, help="how many (16)")
    parser.add_argument(
        "--attach-timeout",
        type=int,
        default=10,
        help="seconds that the API waits for a manager (10)",
    )
    parser.add_argument(
        "--idempotency-keys",
        choices=["auto", *_CHOICES],
        default="auto",
        help="whether POST is repeated with an Idempotency-Key; auto: if this attachd reads it",
    )
    parser.add_argument(
        "--kill",
        action="append",
        choices=deployment.KINDS,
        help="only this, or these, if it is repeated; else everything",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report there too")
    parser.add_argument(
        "--logs", type=Path, metavar="FOLDER", help="keep what all the processes have written"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
