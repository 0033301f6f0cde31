# SPDX-License-Identifier: Apache-2.0
"""Stable names of the devices of volumes, the same on each host and with each driver.

``/dev/disk/by-id/attachd-<volume id>`` leads to the device that writes, and the same name with
``-ro`` to one that only reads.  udev leaves names alone that it has not made.  They end with a
reboot, as the devices do.
"""

from collections.abc import Iterator
import contextlib
from pathlib import Path
from typing import Final
import uuid

from oslo_log import log

LOG = log.getLogger(__name__)

DIRECTORY: Final = Path("/dev/disk/by-id")

_SUFFIXES: Final = {"rw": "", "ro": "-ro"}


def path(volume_id: str, mode: str) -> Path:
    """Return the stable name of a device.

    :param mode: "rw" or "ro"
    """
    return DIRECTORY / f"attachd-{volume_id}{_SUFFIXES[mode]}"


def make(volume_id: str, mode: str, device: str) -> None:
    """Let the stable name lead to a device; a plain file has none.

    The device can be used without it, so a failure is only logged.
    """
    if not Path(device).is_block_device():
        return
    link = path(volume_id, mode)
    new = link.with_name(f".{link.name}.{uuid.uuid4().hex}")
    try:
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        new.symlink_to(device)
        new.rename(link)
    except OSError as error:
        LOG.warning("Volume %s: device %s has no stable name: %s", volume_id, device, error)
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def remove(volume_id: str, device: str | None) -> None:
    """Remove the stable names of a device that is gone, and those that lead nowhere.

    :param device: its path; None: it is not known
    """
    for link, target in _existing(volume_id):
        if target == device or not link.exists():
            with contextlib.suppress(OSError):
                link.unlink(missing_ok=True)


def find(volume_id: str, device: str) -> str | None:
    """Return the stable name of a device; None: it has none."""
    found = (f"{link}" for link, target in _existing(volume_id) if target == device)
    return next(found, None)


def _existing(volume_id: str) -> Iterator[tuple[Path, str]]:
    """Yield the names of a volume, and where they lead."""
    for mode in _SUFFIXES:
        link = path(volume_id, mode)
        with contextlib.suppress(OSError):
            yield link, f"{link.readlink()}"
