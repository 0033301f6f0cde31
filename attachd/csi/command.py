# SPDX-License-Identifier: Apache-2.0
"""The command attachd-csi: reads its options, and serves until a signal."""

import argparse
from collections.abc import Sequence
import enum
from pathlib import Path
import re
import sys
from typing import Final

from openstack import exceptions

from attachd.cli.clouds import Cloud
from attachd.csi import server
from attachd.csi.controller import Controller
from attachd.csi.identity import DRIVER, Identity
from attachd.csi.new_volume import ZONE
from attachd.csi.node import Node
from attachd.csi.node_paths import PathRules
from attachd.node.agent_client import AgentClient
from attachd.platforms import daemon
from attachd.platforms.api import Api
from attachd.platforms.call_metrics import CallMetrics
from attachd.platforms.publication import Fence
from attachd.platforms.storage import Storage

NAME: Final = "attachd-csi"

_DRIVER_NAME: Final = re.compile(r"(?=.{1,63}$)[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?")


class Mode(enum.StrEnum):
    """The services of a process, beside Identity."""

    CONTROLLER = "controller"
    NODE = "node"
    ALL = "all"


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
        measured = CallMetrics("csi")
        csi_server = _build(options, cloud, measured)
        ended = daemon.end_on_signal()
        csi_server.start()
    except (exceptions.SDKException, server.EndpointError) as error:
        sys.stderr.write(f"{NAME}: {error}\n")
        return 1
    with daemon.serving_metrics(options, measured):
        daemon.wait_for(ended)
        csi_server.stop()
    cloud.close()
    return 0


def _parse(words: Sequence[str], cloud: Cloud) -> argparse.Namespace:
    parser = daemon.make_parser(NAME, "Serve the Container Storage Interface on a unix socket.")
    parser.add_argument(
        "--endpoint",
        type=_endpoint,
        required=True,
        metavar="URL",
        help="the socket, such as unix:///run/attachd/csi.sock",
    )
    parser.add_argument(
        "--mode",
        choices=tuple(mode.value for mode in Mode),
        required=True,
        help="the services of this process: node needs the rights of root",
    )
    parser.add_argument(
        "--driver-name",
        type=_driver_name,
        default=DRIVER,
        metavar="NAME",
        help="name of the driver in storage classes (default: %(default)s)",
    )
    parser.add_argument(
        "--socket-mode",
        type=_permissions,
        default="600",
        metavar="OCTAL",
        help="permissions of the socket (default: %(default)s)",
    )
    _add_controller_options(parser)
    _add_node_options(parser)
    daemon.add_server_options(parser)
    cloud.add_options(parser, words)
    return parser.parse_args(list(words))


def _endpoint(text: str) -> Path:
    try:
        return server.parse_endpoint(text)
    except server.EndpointError as error:
        raise argparse.ArgumentTypeError(f"{error}") from error


def _add_controller_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fence",
        type=Fence,
        choices=list(Fence),
        default=Fence.PROVED,
        help="when a node whose agent is silent is fenced, so that its volumes can be published "
        "elsewhere: if the backend proves that its access has ended, also if the backend only "
        "asserts it, or never (default: %(default)s)",
    )


def _add_node_options(parser: argparse.ArgumentParser) -> None:
    daemon.add_node_options(parser)
    parser.add_argument(
        "--zone", metavar="NAME", help="the availability zone of this node (default: none)"
    )
    parser.add_argument(
        "--directory",
        type=daemon.absolute_path,
        metavar="PATH",
        help="where staging and target paths have to be, such as /var/lib/kubelet (default: "
        "anywhere)",
    )


def _driver_name(text: str) -> str:
    if not _DRIVER_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"not a domain name of 1 to 63 characters: {text!r}")
    return text


def _permissions(text: str) -> int:
    if not re.fullmatch("0?[0-7]{3}", text):
        raise argparse.ArgumentTypeError(f"not three octal digits: {text!r}")
    return int(text, 8)


def _build(options: argparse.Namespace, cloud: Cloud, measured: CallMetrics) -> server.Server:
    """Return the server of the mode.

    :param measured: counts its calls
    :raises openstack.exceptions.SDKException: the options do not name a cloud
    """
    mode = Mode(options.mode)
    services: list[Controller | Node] = []
    if mode is not Mode.NODE:
        storage = Storage(Api(cloud.sdk_connection))
        services.append(Controller(storage, options.driver_name, options.fence))
    if mode is not Mode.CONTROLLER:
        topology = {ZONE: options.zone} if options.zone else {}
        agent = AgentClient(options.agent_socket)
        paths = PathRules(options.directory)
        services.append(Node(agent, topology, paths, assume_empty=options.assume_empty))
    identity = Identity(options.driver_name, [item.check for item in services])
    settings = server.Settings(options.endpoint, options.socket_mode, options.workers)
    return server.Server(settings, [identity, *services], measured)
