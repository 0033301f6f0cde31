# SPDX-License-Identifier: Apache-2.0
"""attachd-manage api describe: prints the API's OpenAPI description; read by manage.py."""

import importlib
import sys
from typing import Any, Final

from attachd.conf import CONF

_LATEST: Final = "latest"


def add_command(subjects: Any) -> None:
    """Add the command to the parser of attachd-manage."""
    parser = subjects.add_parser("api", help="what the API is")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    describe = actions.add_parser(
        "describe", help="print the OpenAPI description; neither database nor server is asked"
    )
    describe.add_argument(
        "--format", choices=("json", "yaml"), default="json", help="default: json"
    )
    describe.add_argument(
        "--microversion",
        metavar="VERSION",
        default=_LATEST,
        help="the one that is described, as 3.71; default: the latest",
    )
    describe.set_defaults(action=_describe, failed=1)


def _describe() -> None:
    # The API takes its time to be imported, and no other command needs it.
    document = importlib.import_module("attachd.api.openapi.document")
    described = document.describe(document.picked(CONF.subject.microversion))
    write = document.in_yaml if CONF.subject.format == "yaml" else document.in_json
    sys.stdout.write(write(described))
