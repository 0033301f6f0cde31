# SPDX-License-Identifier: Apache-2.0
"""Entry point of attachd-docker-volume; it reports if the extra ``host`` is not installed."""

from typing import Final

from attachd.platforms import extra

NEEDED: Final = frozenset({"openstack"})
"""Libraries of the extra ``host`` that the plugin needs."""


def main() -> int:
    """Serve until SIGTERM or SIGINT.

    :returns: the exit code: 0 after a signal, 1 if it cannot serve, 2 wrong command line
    """
    return extra.run("attachd-docker-volume", "attachd.docker_volume.command", "host", NEEDED)
