# SPDX-License-Identifier: Apache-2.0
"""Entry point of attachd-csi; it reports if the extra ``csi`` is not installed."""

import importlib
import sys
from typing import Final

from attachd import process_defaults

NEEDED: Final = frozenset({"google", "grpc", "openstack"})
"""Libraries of the extra ``csi``."""


def main() -> int:
    """Serve until SIGTERM or SIGINT.

    :returns: the exit code: 0 after a signal, 1 if it cannot serve, 2 wrong command line
    """
    process_defaults.end_quietly_on_interrupt()
    try:
        process_defaults.use_threads()
        code: int = importlib.import_module("attachd.csi.command").main(sys.argv[1:])
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        sys.stderr.write(
            f"attachd-csi: {error.name} is missing here: pip install '.[csi]' in the sources of "
            "attachd\n"
        )
        return 1
    return code
