# SPDX-License-Identifier: Apache-2.0
"""Options, log and signals of the daemons that serve container platforms."""

import argparse
import logging
from pathlib import Path
import re
import signal
import threading
from types import FrameType
from typing import Final

from attachd import service
from attachd.platforms.calls import RequestIds

AGENT_SOCKET: Final = Path("/run/attachd/agent.sock")
_PAUSE: Final = 1.0
"""Seconds in which a signal is noticed."""
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"


def make_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of a daemon's command line."""
    parser = argparse.ArgumentParser(name, description=description, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"{name} {service.version()}")
    return parser


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a daemon that mounts volumes on this host."""
    parser.add_argument(
        "--agent-socket",
        type=Path,
        default=AGENT_SOCKET,
        metavar="PATH",
        help="[agent]local_socket of the agent of this host (default: %(default)s)",
    )
    parser.add_argument(
        "--assume-empty",
        action="store_true",
        help="look only for signatures on a device before a file system is made on it, and do not "
        "read it as a whole",
    )


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of each daemon."""
    parser.add_argument(
        "--workers",
        type=positive,
        default=32,
        metavar="N",
        help="number of calls that are served at the same time (default: %(default)s)",
    )
    parser.add_argument("--debug", action="store_true", help="log details")


def positive(text: str) -> int:
    """Read a number for an option; raises ArgumentTypeError."""
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        raise argparse.ArgumentTypeError(f"not a number from 1 to 9999: {text!r}")
    return int(text)


def log_to_stderr(options: argparse.Namespace) -> None:
    """Log to standard error, with the request id of each call."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(RequestIds())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if options.debug else logging.INFO)


def end_on_signal() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    return ended


def wait_for(ended: threading.Event) -> None:
    """Wait for an event that a signal sets."""
    # A signal right before an unlimited wait would not end it.
    while not ended.wait(_PAUSE):
        pass
