# SPDX-License-Identifier: Apache-2.0
"""The folder of a device on a host, and who may work on it; for qemu/connector.py."""

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

PATIENCE = 90.0
"""Seconds to wait for somebody else who works on a device."""

_NAP = 0.02
_PLAIN = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")


def of(folder: Path, info: ConnectionInfo) -> Path:
    """Return the path of a device's folder: each attachment has one, and always the same.

    :param folder: the host's
    """
    name = info.get("attachment_id")
    if not isinstance(name, str) or not _PLAIN.fullmatch(name):
        name = hashlib.sha256(f"{name} {blockdev.name(info)}".encode()).hexdigest()[:32]
    return folder.resolve() / "devices" / name


@contextlib.contextmanager
def held(folder: Path) -> Iterator[int]:
    """Have the folder of a device to oneself; made if it is missing.

    Commands that change something are given the lock, so that it is not free before they have
    ended, even if their process was killed.

    :returns: the lock, a file descriptor
    :raises HostError: somebody else has it, or it cannot be made
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        lock = _locked(folder)
        if lock is not None:
            break
        if time.monotonic() > deadline:
            raise exception.LocalConflict(
                reason=f"Another process of this host works in {folder}. Repeat the command "
                "when it has ended."
            )
        time.sleep(_NAP)
    try:
        yield lock
    finally:
        os.close(lock)


def remove(folder: Path) -> None:
    """Remove an empty folder that one has to oneself."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise exception.HostError(reason=f"{folder} cannot be removed: {error}.") from error


def _locked(folder: Path) -> int | None:
    try:
        folder.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (folder.parent, folder):
            # Not mkdir(exist_ok=True): that raises FileExistsError for a folder which
            # another process removes between its two steps.
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None  # The process that had the lock has just removed the folder.
    except OSError as error:
        raise exception.HostError(reason=f"{folder} cannot be used: {error}.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), folder.stat()):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None
