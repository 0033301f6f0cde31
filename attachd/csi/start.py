# SPDX-License-Identifier: Apache-2.0
"""Entry point of attachd-csi; it reports if the extra ``csi`` is not installed."""

from typing import Final

from attachd.platforms import extra

NEEDED: Final = frozenset({"google", "grpc", "openstack"})
"""Libraries of the extra ``csi``."""


def main() -> int:
    """Serve until SIGTERM or SIGINT.

    :returns: the exit code: 0 after a signal, 1 if it cannot serve, 2 wrong command line
    """
    return extra.run("attachd-csi", "attachd.csi.command", "csi", NEEDED)
