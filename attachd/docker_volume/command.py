# SPDX-License-Identifier: Apache-2.0
"""The command attachd-docker-volume: reads its options, and serves until a signal."""

import argparse
from collections.abc import Sequence
import logging
from pathlib import Path
import sys
import threading
from typing import Final

from openstack import exceptions

from attachd import exception
from attachd.cli.clouds import Cloud
from attachd.docker_volume.mounting import Mounter, Settings
from attachd.docker_volume.named_volumes import NamedVolumes
from attachd.docker_volume.plugin import Plugin
from attachd.docker_volume.reconciliation import Reconciler
from attachd.docker_volume.server import Server
from attachd.linux import unix_sockets
from attachd.node.agent_client import AgentClient
from attachd.platforms import daemon
from attachd.platforms.api import Api
from attachd.platforms.call_metrics import CallMetrics
from attachd.platforms.publication import Fence, Publisher
from attachd.platforms.storage import Storage

LOG = logging.getLogger(__name__)

NAME: Final = "attachd-docker-volume"
SOCKET: Final = Path("/run/attachd-docker-volume/docker.sock")
FOLDER: Final = Path("/var/lib/attachd/docker")
_BACKLOG: Final = 1024
"""Callers that wait until they are accepted; further ones are refused at once."""


def main(words: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT.

    :param words: the command line without the program's name
    :returns: the exit code: 0 after a signal, 1 if it cannot serve, 2 wrong command line
    """
    cloud = Cloud()
    try:
        options = _parse(words, cloud)
        daemon.log_to_stderr(options)
        cloud.options = options
        storage = Storage(Api(cloud.sdk_connection))
        named = NamedVolumes(storage, options.default_size)
        mounter = Mounter(
            named,
            Publisher(storage, Fence.NEVER),
            AgentClient(options.agent_socket),
            Settings(options.directory, options.assume_empty),
        )
        passed = unix_sockets.get_passed()
        listener = passed or unix_sockets.listen(options.socket, _BACKLOG, "--socket")
    except (exceptions.SDKException, exception.HostError) as error:
        sys.stderr.write(f"{NAME}: {error}\n")
        return 1
    ended = daemon.end_on_signal()
    reconciler = Reconciler(storage, mounter, options.idle_time)
    threading.Thread(target=reconciler.run, args=(ended,), daemon=True).start()
    measured = CallMetrics("docker")
    server = Server(listener, Plugin(named, mounter, measured), options.workers)
    server.start()
    LOG.info("Serving at %s", options.socket if passed is None else passed.getsockname())
    with daemon.serving_metrics(options, measured):
        daemon.wait_for(ended)
        server.stop()
    if passed is None:
        options.socket.unlink(missing_ok=True)
    cloud.close()
    return 0


def _parse(words: Sequence[str], cloud: Cloud) -> argparse.Namespace:
    parser = daemon.make_parser(NAME, "Serve volumes to Docker and Podman on a unix socket.")
    parser.add_argument(
        "--socket",
        type=Path,
        default=SOCKET,
        metavar="PATH",
        help="the socket, unless systemd passes one (default: %(default)s)",
    )
    parser.add_argument(
        "--directory",
        type=daemon.absolute_path,
        default=FOLDER,
        metavar="PATH",
        help="where volumes are mounted, each in a directory with its name (default: %(default)s)",
    )
    parser.add_argument(
        "--default-size",
        type=daemon.positive,
        default=10,
        metavar="GIB",
        help="size in GiB of volumes that are created without one (default: %(default)s)",
    )
    parser.add_argument(
        "--idle-time",
        type=daemon.positive,
        default=60,
        metavar="SECONDS",
        help="seconds without a use until a volume is detached whose engine was killed (default: "
        "%(default)s)",
    )
    daemon.add_node_options(parser)
    daemon.add_server_options(parser)
    cloud.add_options(parser, words)
    return parser.parse_args(list(words))
