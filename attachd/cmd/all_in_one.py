# SPDX-License-Identifier: Apache-2.0
"""attachd-all-in-one: API, manager, database and storage in one process, for evaluation."""

import argparse
from collections.abc import Iterator
import contextlib
import fcntl
import ipaddress
import logging
import os
from pathlib import Path
import signal
import sys
import threading
from types import FrameType

from oslo_config import cfg
from oslo_utils import netutils

from attachd import exception, service
from attachd.api import app
from attachd.api.events import broadcaster
from attachd.cmd import host_check, http_server
from attachd.conf import CONF
from attachd.db import migration
from attachd.db.secrets import encryption, key_file
from attachd.manager.service import ManagerService

CONFIGURATION = """\
# Written anew each time attachd-all-in-one starts.  Put what you want to change into a file of
# your own and name it with --config-file: its options replace these.
[DEFAULT]
host = all-in-one
state_path = {folder}
transport_url = inprocess://
enabled_backends = file

[database]
connection = sqlite:///{folder}/attachd.sqlite

[api]
auth_strategy = noauth

[ui]
enabled = true

[secrets]
key_file = {folder}/{key_file}

[quota]
# An evaluation has one project, and the disk as its limit.
quota_volumes = -1
quota_gigabytes = -1

[file]
driver = file
file_folder = {folder}
# An evaluation may name hosts that do not exist.
file_hosts = *
"""

KEY_FILE = "secrets.key"
"""File in the directory; created by the first start."""

GREETING = """\
attachd listens on {url}/ and keeps everything in {folder}
{page}Authentication is off: any client that reaches this address may do everything.
{warning}
Paste this into another terminal:

    export OS_AUTH_TYPE=none OS_ENDPOINT={url}/v3
    cinder() {{
        OS_AUTH_TYPE=noauth OS_USER_ID=admin OS_PROJECT_ID={project} \\
        CINDER_ENDPOINT={url}/v3 command cinder "$@"
    }}

and then, for example:

    openstack volume create --size 1 disk
    openstack volume list
    cinder attachment-create disk --connect True --host "$(hostname)"
    attachment=$(openstack volume attachment list -f value -c ID)
    openstack volume attachment show "$attachment"
    openstack volume attachment complete "$attachment"
    openstack volume attachment delete "$attachment"
    openstack volume delete disk

"openstack volume attachment create" asks the Compute service for the server.  Where there is
none, use "cinder attachment-create VOLUME [SERVER_ID]" instead.

Ctrl-C ends it; the next start finds everything as it was.
"""

AUTHENTICATED_GREETING = """\
attachd listens on {url}/ and keeps everything in {folder}
{page}{callers}
Ctrl-C ends it; the next start finds everything as it was.
"""

STATUS_PAGE = "Status page: {url}/ui/\n"

CALLERS = {
    "keystone": "Callers need a token of the Keystone in [keystone_authtoken].",
    "http_basic": """\
Callers need a name and a password.  Paste this into another terminal and fill in yours:

    export OS_AUTH_TYPE=http_basic OS_ENDPOINT={url}/v3
    export OS_USERNAME=... OS_PASSWORD=...
""",
}
"""Text for each [api]auth_strategy with authentication."""

WARNING = """
WARNING: {host} is not a loopback address.  All hosts on this network can now read, change and
delete every volume.  Use --host 127.0.0.1 unless that is what you want.
"""

PROJECT = "0" * 32
"""The project of a request that names none, as of the openstack command with these settings."""
UNUSABLE = frozenset("$?\n")
"""Characters with a meaning in configuration files and database URLs, not allowed in the path."""
LAST_PORT = 65535
SHUTDOWN_TIMEOUT = 65.0
"""Seconds that the manager has to finish its operations."""
START_TIMEOUT = 10.0
"""Seconds to wait for a backend before the address is printed."""


class StartError(Exception):
    """The reason why it does not start, in one line."""


def main() -> int:
    """Serve until SIGTERM or Ctrl-C; a second Ctrl-C exits immediately.

    :returns: the exit code: 0 after a signal, 1 when it could not start
    """
    os.umask(0o077)
    arguments = _parser().parse_args()
    _stay_on_one_processor()
    folder = arguments.state_path.absolute()
    try:
        with _lock_folder(folder):
            _configure(folder, arguments.config_file)
            return _serve(folder, arguments.host, arguments.port)
    except (StartError, cfg.Error, exception.AttachdError) as error:
        print(f"attachd-all-in-one: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        os._exit(130)


def _stay_on_one_processor() -> None:
    """Keep all threads of this process on one of the processors it may use.

    Python runs one of them at a time.  On several processors, they wake each other for every
    statement that SQLite executes, and with four clients that costs half as much again as the work
    itself (doc/source/admin/performance.rst).
    """
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[os.getpid() % len(allowed)]})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attachd-all-in-one",
        description="Run the whole of attachd in one process; without authentication, unless a "
        "configuration file has another [api]auth_strategy.",
    )
    parser.add_argument("--version", action="version", version=service.version())
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on: %(default)s"
    )
    parser.add_argument(
        "--port", type=_port, default=8776, help="the port, 0 for any free one: %(default)s"
    )
    parser.add_argument(
        "--state-path",
        type=Path,
        default=_default_folder(),
        metavar="DIR",
        help="the directory for database and volumes, created if it is missing: %(default)s",
    )
    parser.add_argument(
        "--config-file",
        action="append",
        default=[],
        metavar="FILE",
        help="options that replace or add to the built-in ones; may be given several times",
    )
    return parser


def _port(text: str) -> int:
    short = len(text) <= len(f"{LAST_PORT}")
    if not (short and text.isascii() and text.isdecimal() and int(text) <= LAST_PORT):
        raise argparse.ArgumentTypeError(f"{text!r} is no port, a number from 0 to 65535")
    return int(text)


def _default_folder() -> Path:
    """Return attachd's state directory as the XDG Base Directory Specification defines it."""
    configured = Path(os.environ.get("XDG_STATE_HOME", ""))
    base = configured if configured.is_absolute() else Path.home() / ".local" / "state"
    return base / "attachd"


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Create the directory and lock it: two processes in it would corrupt their data."""
    if unusable := set(str(folder)) & UNUSABLE:
        raise StartError(
            f"cannot use {str(folder)!r}: its name has {' and '.join(map(repr, unusable))}"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / "lock").open("a+", encoding="ascii")
    except OSError as error:
        raise StartError(f"cannot use {folder}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            raise StartError(
                f"{folder} is in use by another attachd-all-in-one, process {holder}"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _configure(folder: Path, files: list[str]) -> None:
    own = folder / "all-in-one.conf"
    text = CONFIGURATION.format(folder=folder, key_file=KEY_FILE)
    own.write_text(text, encoding="utf-8")
    service.prepare([f"--config-file={path}" for path in [own, *files]])
    if CONF.secrets.key_file == str(folder / KEY_FILE):
        with contextlib.suppress(exception.Conflict):  # it is there
            key_file.create(CONF.secrets.key_file)
            key_file.refuse_plain_text(CONF.secrets.key_file)
    encryption.start()
    if not CONF.debug:
        logging.getLogger().setLevel(logging.WARNING)
        for redundant in ("waitress.queue", "stevedore"):
            logging.getLogger(redundant).setLevel(logging.ERROR)


def _serve(folder: Path, host: str, port: int) -> int:
    application = app.make_app()
    if CONF.api.auth_strategy == "noauth":
        application = host_check.HostCheck(application, host_check.own_names(host))
    try:
        server = http_server.Server(application, host, port)
    except OSError as error:
        reason = f"{error.strerror}".partition(" (while")[0]
        raise StartError(
            f"cannot listen on {host} port {port}: {reason}; choose others by --host and --port"
        ) from error

    def end(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        server.stop()
        broadcaster.get().close()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    migration.upgrade()
    manager = ManagerService()
    manager.start()
    manager.wait_until_reported(START_TIMEOUT)
    print(_greeting(folder, host, server.port), flush=True)
    server.run()
    _finish(manager)
    return 0


def _greeting(folder: Path, host: str, port: int) -> str:
    # A server that listens on all addresses is reached here as well.
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    url = f"http://{netutils.escape_ipv6(shown)}:{port}"
    page = STATUS_PAGE.format(url=url) if CONF.ui.enabled else ""
    if callers := CALLERS.get(CONF.api.auth_strategy):
        return AUTHENTICATED_GREETING.format(
            url=url, folder=folder, page=page, callers=callers.format(url=url)
        )
    return GREETING.format(
        url=url,
        folder=folder,
        page=page,
        project=PROJECT,
        warning="" if _is_loopback(host) else WARNING.format(host=host),
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _finish(manager: ManagerService) -> None:
    """Let the manager finish its operations, unless its storage hangs."""
    stopping = threading.Thread(target=manager.stop, daemon=True)
    stopping.start()
    stopping.join(SHUTDOWN_TIMEOUT)
    if stopping.is_alive():
        print("attachd-all-in-one: storage does not answer, giving up", file=sys.stderr)
        os._exit(1)
