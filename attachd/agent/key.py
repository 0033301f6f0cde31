# SPDX-License-Identifier: Apache-2.0
"""The key that an agent proves itself with, in a file of the host; read when the agent starts."""

import contextlib
import os
from pathlib import Path
import secrets
import stat

from attachd import exception

_BYTES = 32
_SHORTEST = 32


def read_or_make(path: Path) -> str:
    """Return the key, which is drawn and stored by the first call.

    :param path: of the file; its folder is made, for root alone, if it is missing
    :raises HostError: others may know the key, or it is none
    """
    if not path.exists():
        _make(path)
    with path.open(encoding="utf-8") as file:
        found = os.fstat(file.fileno())
        if found.st_uid not in {0, os.geteuid()} or stat.S_IMODE(found.st_mode) & 0o077:
            raise exception.HostError(
                reason=f"{path} is not for root alone, so others may know the key of this host. "
                "Remove the file, have an administrator forget the host (attachd-manage agent "
                "remove), and start the agent again."
            )
        key = file.read().strip()
    if len(key) < _SHORTEST:
        raise exception.HostError(
            reason=f"{path} has no key of at least {_SHORTEST} characters. Remove it, and the "
            "agent makes one."
        )
    return key


def _make(path: Path) -> None:
    """Store a new key, whole or not at all; somebody else's that was faster stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    file = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "w", encoding="utf-8") as output:
            output.write(secrets.token_urlsafe(_BYTES) + "\n")
            output.flush()
            os.fsync(output.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
        # The service will know no other one: it has to be here also after a power cut.
        _sync(path.parent)
    finally:
        new.unlink()


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
