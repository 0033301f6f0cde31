# SPDX-License-Identifier: Apache-2.0
"""The entry point of the command attachd, which says so where the extra ``host`` is missing."""

import importlib
import sys
from typing import Final

NEEDED: Final = frozenset({"cliff", "openstack"})
"""The libraries of the extra ``host`` without which there is no command."""


def main() -> int:
    """Do what the command line says.

    :returns: the exit code: 0 done, 1 failed, or a library is missing, 2 wrong command line
    """
    try:
        app = importlib.import_module("attachd.cli.app")
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        sys.stderr.write(f"attachd: {error.name} is missing here: pip install 'attachd[host]'\n")
        return 1
    code: int = app.main()
    return code
