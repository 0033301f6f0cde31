# SPDX-License-Identifier: Apache-2.0
"""Runs the contract suite on an installed driver, and writes its certificate.

The certificate says of each thing that the driver declares - abilities, promises and others -
whether it has passed its tests, on each test backend.  The exit code is 0 if the required methods
and everything that is declared have passed, as far as it could be tested.
"""

import argparse
import json
from pathlib import Path
import sys
import time

try:
    from attachd.tests.contract import certificate
except ModuleNotFoundError as missing:
    if (missing.name or "attachd").partition(".")[0] == "attachd":
        raise
    sys.exit(
        f"The contract suite needs the package {missing.name}, which attachd installs with the "
        "extra 'test': pip install 'attachd[test]'"
    )


def main() -> int:
    """Certify the driver that is named."""
    parser = argparse.ArgumentParser(
        prog="python -m attachd.tests.contract",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("driver", help="the name of its entry point in the group attachd.drivers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all details there, too")
    parser.add_argument(
        "--rst",
        type=Path,
        metavar="FILE",
        help="write the table for a page of the documentation there, as reStructuredText",
    )
    arguments = parser.parse_args()
    began = time.monotonic()
    try:
        found = certificate.certify(certificate.find_tests(arguments.driver))
    except LookupError as error:
        parser.error(f"{error}")
    sys.stdout.write(certificate.to_table(found, time.monotonic() - began))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.rst:
        arguments.rst.write_text(certificate.to_rst(found))
    for backend, entries in found.items():
        for entry in entries.values():
            for name, text in entry["failed"].items():
                sys.stderr.write(f"{backend}: {name}: {text}\n")
    return 0 if certificate.has_passed(found) else 1


if __name__ == "__main__":
    sys.exit(main())
