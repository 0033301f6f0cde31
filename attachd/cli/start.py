# SPDX-License-Identifier: Apache-2.0
"""Entry point of the command attachd; it reports if the extra ``host`` is not installed."""

import importlib
import sys
from typing import Final

from attachd import process_defaults

NEEDED: Final = frozenset({"cliff", "openstack"})
"""Libraries of the extra ``host`` that the command needs."""

_INTERRUPTED: Final = 130
"""The exit code after Ctrl-C."""


def main() -> int:
    """Execute the command line.

    :returns: the exit code: 0 done, 1 failed, or a library is missing, 2 wrong command line
    """
    process_defaults.escape_output()
    try:
        process_defaults.use_threads()  # os-brick imports oslo.service
        code: int = importlib.import_module("attachd.cli.app").main()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        sys.stderr.write(
            f"attachd: {error.name} is missing here: pip install '.[host]' in the sources of "
            "attachd\n"
        )
        return 1
    if code == _INTERRUPTED and sys.stderr.isatty():
        sys.stderr.write("\n")  # The terminal has written ^C.
    return code
