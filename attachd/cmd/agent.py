# SPDX-License-Identifier: Apache-2.0
"""attachd-agent: the daemon that attaches volumes to its host on request; started by systemd."""

import fcntl
import os
from pathlib import Path
import signal
import sys
import threading
from types import FrameType

from oslo_config import cfg
from oslo_log import log
from oslo_service import systemd

from attachd import exception, service
from attachd.agent import key, libvirt_secrets
from attachd.agent.connectors import brick
from attachd.agent.host import Host, Identity
from attachd.agent.journal import Owner
from attachd.agent.service import Agent
from attachd.conf import CONF
from attachd.linux import commands
from attachd.linux.child_process import Forker
from attachd.telemetry import gmr, tracing

LOG = log.getLogger(__name__)


def main() -> int:
    """Run the agent until SIGTERM or SIGINT.

    :returns: the exit code: 0 after a signal, 1 if it cannot work
    """
    try:
        service.prepare(sys.argv[1:])
        host = Host(
            Identity(CONF.agent.host, CONF.agent.initiator),
            Path(CONF.agent.state_path),
            CONF.agent.connector_type,
        )
        # First: later this process has threads.
        forker = Forker(CONF.agent.host_timeout, host.connector.load)
        host.call_in_child = forker.call
        gmr.setup("attachd-agent")
        tracing.setup("attachd-agent")
        agent = _prepare(host)
    except OSError as error:
        print(f"attachd-agent: {error.filename or ''}: {error.strerror}", file=sys.stderr)
        return 1
    except (cfg.Error, exception.AttachdError) as error:
        print(f"attachd-agent: {error}", file=sys.stderr)
        return 1
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    threading.Thread(target=_watch, args=(forker, ended), daemon=True).start()
    agent.start()
    systemd.notify_once()
    ended.wait()
    stopped = agent.stop()
    forker.close()
    if not stopped:
        LOG.warning("Operations in progress are left to the next start")
        sys.stderr.flush()
        os._exit(0)  # without waiting for its threads
    return 0


def _watch(forker: Forker, ended: threading.Event) -> None:
    """End the agent if the process ends that works on volumes: systemd starts it again."""
    forker.wait()
    if not ended.is_set():
        LOG.error("Process %d, which works on volumes, has ended: the agent ends", forker.pid)
        ended.set()


def _prepare(host: Host) -> Agent:
    """Check the preconditions of the agent; raises HostError or OSError."""
    if os.geteuid() != 0:
        raise exception.HostError(
            reason="Only root can make devices. Start it as a service, or with sudo."
        )
    folder = host.journal.state_path
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _lock_folder(folder)
    credentials = key.load_or_create(Path(CONF.agent.key_file or folder / "agent.key"))
    if isinstance(host.connector, brick.BrickConnector) and not host.connector.has_library():
        raise exception.HostError(reason=f"os-brick is missing here: {brick.INSTALL}")
    if CONF.agent.libvirt_uri and (missing := commands.list_missing(libvirt_secrets.NEEDED)):
        raise exception.HostError(reason=f"[agent]libvirt_uri needs {', '.join(missing)}.")
    _check_host_name(host)
    return Agent(host, credentials)


def _check_host_name(host: Host) -> None:
    """Check that the attachments of the agent belong to this host name.

    An agent of another name would have no desired state for them, and remove all of them.

    :raises HostError: they belong to another name
    """
    file, name = host.journal.state_path / "agent.host", host.identity.name
    before = file.read_text(encoding="utf-8").strip() if file.exists() else ""
    if before == name:
        return
    if before and any(entry.owner is Owner.AGENT for entry in host.journal.list_entries()):
        raise exception.HostError(
            reason=f"Volumes are attached here to host {before}, and this is to be host {name}. "
            f"Set [agent] host = {before}, and detach them before it gets another name."
        )
    # Renamed into place: a power failure could leave the file empty.
    new = file.with_suffix(".new")
    with new.open("w", encoding="utf-8") as output:
        output.write(f"{name}\n")
        output.flush()
        os.fsync(output.fileno())
    new.rename(file)


def _lock_folder(folder: Path) -> None:
    """Lock the directory until this process ends; raises HostError if another agent has it."""
    lock = os.open(folder / "agent.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise exception.HostError(
            reason=f"Another agent uses {folder}. One is enough for a host."
        ) from None
