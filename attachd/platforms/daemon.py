# SPDX-License-Identifier: Apache-2.0
"""Options, log and signals of the daemons that serve container platforms."""

import argparse
from collections.abc import Iterator
import contextlib
import logging
from pathlib import Path
import re
import signal
import threading
from types import FrameType
from typing import Final

from attachd import service
from attachd.platforms import call_metrics
from attachd.platforms.call_metrics import CallMetrics
from attachd.platforms.calls import RequestIds
from attachd.telemetry import exporter

AGENT_SOCKET: Final = Path("/run/attachd/agent.sock")
_LAST_PORT: Final = 65535
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
    parser.add_argument(
        "--metrics",
        dest="metrics_address",  # Libraries of OpenStack read an option "metrics".
        type=_address,
        metavar="HOST:PORT",
        help="where metrics for Prometheus are served; port 0: a free one, which the log has "
        "(default: nowhere)",
    )
    parser.add_argument("--debug", action="store_true", help="log details")


def _address(text: str) -> exporter.Address:
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:]+):([0-9]{1,5})", text)
    if not found or int(found[2]) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"not HOST:PORT: {text!r}")
    return exporter.Address(found[1].strip("[]"), int(found[2]))


def absolute_path(text: str) -> Path:
    """Read a path for an option; raises ArgumentTypeError."""
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts:
        raise argparse.ArgumentTypeError(f"not an absolute path: {text}")
    return path


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


@contextlib.contextmanager
def serving_metrics(options: argparse.Namespace, measured: CallMetrics) -> Iterator[None]:
    """Serve metrics where the options say so, until the block ends."""
    if options.metrics_address is None:
        yield
        return
    metrics_exporter = call_metrics.export(options.metrics_address, measured)
    try:
        yield
    finally:
        metrics_exporter.stop()


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
