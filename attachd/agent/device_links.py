# SPDX-License-Identifier: Apache-2.0
"""Stable names of the devices of volumes, the same on each host and with each driver.

``/dev/disk/by-id/attachd-<volume id>`` leads to the device that writes, and the same name with
``-ro`` to one that only reads.  udev leaves names alone that it has not made.  They end with a
reboot, as the devices do.

A device can go without attachd, and its path can become another disk.  So each name has a file
with the sequence number of its device.  Names with another number, or without a device, are
removed by the agent with each report, and when other names are made or removed.
"""

import contextlib
from pathlib import Path
from typing import Final
import uuid

from oslo_log import log

from attachd.linux import block_device, device_nodes

LOG = log.getLogger(__name__)

DIRECTORY: Final = Path("/dev/disk/by-id")

RECORDS: Final = Path("/run/attachd/device-links")
"""The sequence numbers of the devices, in files that have the same names as the links."""

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
    remove_stale()
    link = path(volume_id, mode)
    new = link.with_name(f".{link.name}.{uuid.uuid4().hex}")
    try:
        RECORDS.mkdir(parents=True, exist_ok=True)
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        # Before the name: a name without its record is stale.
        (RECORDS / link.name).write_text(block_device.sequence_number(device))
        new.symlink_to(device)
        new.rename(link)
    except OSError as error:
        LOG.warning("Volume %s: device %s has no stable name: %s", volume_id, device, error)
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def remove(volume_id: str, device: str | None) -> None:
    """Remove the stable names of a device, and all stale names of this host.

    :param device: its path; None: it is not known
    """
    for mode in _SUFFIXES:
        link = path(volume_id, mode)
        if device is not None and _read_target(link) == device:
            _remove(link)
    remove_stale()


def remove_stale() -> None:
    """Remove the names whose device is gone, also if its path is another disk now.

    If another process makes such a name at the same moment, it may be removed as well.
    """
    for link in DIRECTORY.glob("attachd-*"):
        if not _is_current(link):
            _remove(link)


def find(volume_id: str, device: str) -> str | None:
    """Return the stable name of a device; None: it has none."""
    links = (path(volume_id, mode) for mode in _SUFFIXES)
    found = (f"{link}" for link in links if _read_target(link) == device and _is_current(link))
    return next(found, None)


def _is_current(link: Path) -> bool:
    """Return whether a name leads to the disk that it was made for."""
    if not link.is_block_device():
        return False
    record = RECORDS / link.name
    number = block_device.sequence_number(f"{link}")
    return record.exists() and device_nodes.read_line(record) == number


def _read_target(link: Path) -> str | None:
    try:
        return f"{link.readlink()}"
    except OSError:
        return None


def _remove(link: Path) -> None:
    for file in (link, RECORDS / link.name):
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
