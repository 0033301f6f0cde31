# SPDX-License-Identifier: Apache-2.0
"""The directory of a device on a host, and its lock."""

from collections.abc import Iterator
import contextlib
import fcntl
import hashlib
import os
from pathlib import Path
import re
import time

from attachd import exception
from attachd.agent.connectors.base import ConnectionInfo
from attachd.agent.connectors.qemu import blockdev

LOCK_TIMEOUT = 90.0
"""Seconds to wait for another process that works on the same device."""

_POLL_INTERVAL = 0.02
_PLAIN_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")


def path_for(state_path: Path, info: ConnectionInfo) -> Path:
    """Return the path of a device's directory: it depends on the attachment alone.

    :param state_path: the host's
    """
    name = info.get("attachment_id")
    if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name):
        text = f"{name} {blockdev.connection_name(info)}"
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
    return state_path.resolve() / "devices" / name


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[int]:
    """Lock the directory of a device, which is made if it is missing.

    Commands that change something inherit the lock: if their process is killed, the lock is not
    free before they have ended.

    :returns: the lock, a file descriptor
    :raises HostError: another process has the lock, or the directory cannot be made
    """
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        lock = _try_lock(directory)
        if lock is not None:
            break
        if time.monotonic() > deadline:
            raise exception.LocalConflict(
                reason=f"Another process of this host works in {directory}. Repeat the command "
                "when it has ended."
            )
        time.sleep(_POLL_INTERVAL)
    try:
        yield lock
    finally:
        os.close(lock)


def remove(directory: Path) -> None:
    """Remove an empty directory that the caller has locked."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise exception.HostError(reason=f"{directory} cannot be removed: {error}.") from error


def _try_lock(directory: Path) -> int | None:
    try:
        directory.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (directory.parent, directory):
            # Not mkdir(exist_ok=True): that raises FileExistsError for a directory which
            # another process removes between its two steps.
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None  # The process that had the lock has just removed the directory.
    except OSError as error:
        raise exception.HostError(reason=f"{directory} cannot be used: {error}.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), directory.stat()):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None
