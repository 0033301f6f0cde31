# SPDX-License-Identifier: Apache-2.0
"""The iSCSI name of a host that logs in without the kernel; for qemu/connector.py."""

import contextlib
import os
from pathlib import Path
import re
import uuid

from attachd import exception

MACHINE = Path("/etc/iscsi/initiatorname.iscsi")
"""Where open-iscsi has the name of the machine."""

_LINE = re.compile(r"^\s*InitiatorName\s*=\s*(\S+)", re.MULTILINE)
# RFC 7143, section 4.2.7: at most 223 octets.
_NAME = re.compile(r"(iqn|eui|naa)\.[\x21-\x7e]{1,219}")


def name(given: str | None, folder: Path) -> str:
    """Return the name that was given, that of the machine, or one made once for this folder.

    :param folder: the host's, where a new name is kept as open-iscsi would keep it
    :raises HostError: a name is none, or cannot be kept
    """
    if given is not None:
        return _checked(given, "The initiator name that was given")
    own = folder / MACHINE.name
    found = read(MACHINE) or read(own)
    if found is None:
        _make(own)
        found = read(own)
    return _checked(found or "", f"The initiator name in {MACHINE} or {own}")


def read(path: Path) -> str | None:
    """Return the name in a file; None if it is not there, or has none."""
    try:
        found = _LINE.search(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise exception.HostError(reason=f"{path} cannot be read: {error}.") from error
    return found.group(1) if found else None


def _checked(found: str, what: str) -> str:
    if not _NAME.fullmatch(found):
        raise exception.HostError(
            reason=f"{what} is '{found}', which is no iSCSI name: it has to begin with iqn., "
            "eui. or naa. and to have no spaces."
        )
    return found


def _make(path: Path) -> None:
    """Write a new name; whoever is first decides, and nobody finds half a name."""
    new = path.with_name(f".{path.name}.{uuid.uuid4()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as output:
            output.write(f"InitiatorName=iqn.2026-01.internal.attachd:{uuid.uuid4().hex}\n")
            output.flush()
            os.fsync(output.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
    except OSError as error:
        raise exception.HostError(
            reason=f"No initiator name could be written to {path}: {error}."
        ) from error
    finally:
        new.unlink(missing_ok=True)
