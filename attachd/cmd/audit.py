# SPDX-License-Identifier: Apache-2.0
"""attachd-manage audit: whether database and backends agree; read by manage.py.

What it does is in auditing.py.
"""

import argparse
from typing import Any

from attachd.cmd import printing

NOT_COMPARED = 2
"""The exit code where something could not be compared, whatever was found elsewhere."""


def add_command(subjects: Any) -> None:
    """Add the command to the parser of attachd-manage."""
    parser: argparse.ArgumentParser = subjects.add_parser(
        "audit", help="what database and backends do not agree about"
    )
    parser.add_argument(
        "--repair", action="store_true", help="do what is safe to do about it, data left alone"
    )
    parser.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="only this one of enabled_backends; may be repeated",
    )
    printing.add_format(parser)
    parser.set_defaults(action=_audit, failed=NOT_COMPARED)


def _audit() -> int:
    """Compare, print and return the exit code."""
    # It needs all of the manager, whose import takes longer than most other commands do.
    from attachd.cmd import auditing  # noqa: PLC0415

    return auditing.run()
