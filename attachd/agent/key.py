# SPDX-License-Identifier: Apache-2.0
"""The key that proves the identity of an agent, in a file of the host."""

import contextlib
import os
from pathlib import Path
import secrets
import stat

from attachd import exception
from attachd.agent import journal

_KEY_BYTES = 32
_MIN_CHARACTERS = 32


def load_or_create(path: Path) -> str:
    """Return the key, which the first call creates.

    :param path: of the file; its directory is made, for root alone, if it is missing
    :raises HostError: other users may know the key, or the file contains none
    """
    if not path.exists():
        _create(path)
    with path.open(encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in {0, os.geteuid()} or stat.S_IMODE(status.st_mode) & 0o077:
            raise exception.HostError(
                reason=f"{path} is not for root alone, so others may know the key of this host. "
                "Have an administrator give the host a new key (attachd-manage agent remove, "
                "then agent add), write it into the file, and start the agent again."
            )
        key = file.read().strip()
    if len(key) < _MIN_CHARACTERS:
        raise exception.HostError(
            reason=f"{path} has no key of at least {_MIN_CHARACTERS} characters. Write the "
            "key of attachd-manage agent add into it."
        )
    return key


def _create(path: Path) -> None:
    """Store a new key atomically; the key of a process that was faster stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    file = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "w", encoding="utf-8") as output:
            output.write(secrets.token_urlsafe(_KEY_BYTES) + "\n")
            output.flush()
            os.fsync(output.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
        # The service accepts no other key: it has to be there also after a power failure.
        journal.sync_directory(path.parent)
    finally:
        new.unlink()
