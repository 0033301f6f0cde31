# SPDX-License-Identifier: Apache-2.0
"""Which ways of attaching there are, and which one fits this host; for host.py."""

from collections.abc import Callable, Mapping
from pathlib import Path

from attachd import exception
from attachd.agent import commands
from attachd.agent.connectors.base import Way
from attachd.agent.connectors.brick import KernelWay
from attachd.agent.connectors.qemu.connector import UserSpaceWay, lacks_tools

AUTO = "auto"
"""Kernel, unless it has no SCSI and QEMU's tools are there."""

WAYS: Mapping[str, Callable[[Path, str | None], Way]] = {
    each.NAME: each for each in (KernelWay, UserSpaceWay)
}
"""How each is made: of the folder of the host and its iSCSI name, None: as the way finds it."""

_SCSI = Path("/sys/class/scsi_host")


def choose(name: str, folder: Path, initiator: str | None = None) -> Way:
    """Make the way of a name.

    :param name: one of :data:`WAYS`, or :data:`AUTO`
    :param folder: where the host keeps what it has to know
    :param initiator: the iSCSI name of the host; None: the way knows
    :raises HostError: there is none of this name
    """
    if name == AUTO:
        name = _fitting()
    if name not in WAYS:
        choices = ", ".join([AUTO, *WAYS])
        raise exception.HostError(reason=f"There is no way '{name}'. Choose one of: {choices}.")
    return WAYS[name](folder, initiator)


def _fitting() -> str:
    kernel = _SCSI.is_dir() and not commands.missing({"iscsiadm": "open-iscsi"})
    return KernelWay.NAME if kernel or lacks_tools() else UserSpaceWay.NAME
