#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print etc/attachd/alerts.yaml with whole addresses of the pages that say what to do.

A message of an alert reaches people who do not know where the documentation is.
"""

import argparse
from pathlib import Path
import re
import sys
from urllib import parse

RULES = Path(__file__).parents[1] / "etc" / "attachd" / "alerts.yaml"
_RUNBOOK = re.compile(r"^( *)runbook: (\S+)$", re.MULTILINE)


def base_url(text: str) -> str:
    """Parse the address of the documentation; a type for argparse."""
    parts = parse.urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no address such as https://docs.example.org"
        )
    return text.rstrip("/")


def rules(docs: str) -> str:
    """Return the rules, with ``runbook_url`` in place of the path of each page."""
    return _RUNBOOK.sub(rf"\1runbook_url: {docs}/\2", RULES.read_text(encoding="utf-8"))


def main() -> None:
    """Print the rules."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--docs",
        required=True,
        type=base_url,
        metavar="URL",
        help="where the documentation of attachd is, such as https://docs.example.org/attachd",
    )
    sys.stdout.write(rules(parser.parse_args().docs))


if __name__ == "__main__":
    main()
