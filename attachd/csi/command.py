# SPDX-License-Identifier: Apache-2.0
"""The command attachd-csi: reads its options, and serves until a signal."""

import argparse
from collections.abc import Sequence
import enum
import logging
from pathlib import Path
import re
import signal
import sys
import threading
from types import FrameType
from typing import Final

from openstack import exceptions

from attachd import service
from attachd.cli.clouds import Cloud
from attachd.csi import server
from attachd.csi.controller import Controller
from attachd.csi.identity import DRIVER, Identity
from attachd.csi.new_volume import ZONE
from attachd.csi.node import Node
from attachd.node.agent_client import AgentClient
from attachd.platforms.api import Api
from attachd.platforms.calls import RequestIds
from attachd.platforms.publication import Fence
from attachd.platforms.storage import Storage

NAME: Final = "attachd-csi"
LOG = logging.getLogger(__name__)

_PAUSE: Final = 1.0
"""Seconds in which a signal is noticed."""
AGENT_SOCKET: Final = Path("/run/attachd/agent.sock")
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"
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
        _log(logging.DEBUG if options.debug else logging.INFO)
        cloud.options = options
        csi_server = _build(options, cloud)
        ended = _signals()
        csi_server.start()
    except (exceptions.SDKException, server.EndpointError) as error:
        sys.stderr.write(f"{NAME}: {error}\n")
        return 1
    # A signal right before an unlimited wait would not end it.
    while not ended.wait(_PAUSE):
        pass
    csi_server.stop()
    cloud.close()
    return 0


def _parse(words: Sequence[str], cloud: Cloud) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        NAME,
        description="Serve the Container Storage Interface on a unix socket.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{NAME} {service.version()}")
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
    parser.add_argument(
        "--workers",
        type=_positive,
        default=32,
        metavar="N",
        help="number of calls that are served at the same time (default: %(default)s)",
    )
    _add_controller_options(parser)
    _add_node_options(parser)
    parser.add_argument("--debug", action="store_true", help="log details")
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
    parser.add_argument(
        "--agent-socket",
        type=Path,
        default=AGENT_SOCKET,
        metavar="PATH",
        help="[agent]local_socket of the agent of this node (default: %(default)s)",
    )
    parser.add_argument(
        "--zone", metavar="NAME", help="the availability zone of this node (default: none)"
    )
    parser.add_argument(
        "--assume-empty",
        action="store_true",
        help="look only for signatures on a device before a file system is made on it, and do not "
        "read it as a whole",
    )


def _driver_name(text: str) -> str:
    if not _DRIVER_NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"not a domain name of 1 to 63 characters: {text!r}")
    return text


def _permissions(text: str) -> int:
    if not re.fullmatch("0?[0-7]{3}", text):
        raise argparse.ArgumentTypeError(f"not three octal digits: {text!r}")
    return int(text, 8)


def _positive(text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        raise argparse.ArgumentTypeError(f"not a number from 1 to 9999: {text!r}")
    return int(text)


def _log(level: int) -> None:
    """Log to standard error, with the request id of each call."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(RequestIds())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)


def _build(options: argparse.Namespace, cloud: Cloud) -> server.Server:
    """Return the server of the mode.

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
        services.append(Node(agent, topology, assume_empty=options.assume_empty))
    identity = Identity(options.driver_name, [item.check for item in services])
    settings = server.Settings(options.endpoint, options.socket_mode, options.workers)
    return server.Server(settings, [identity, *services])


def _signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    return ended
