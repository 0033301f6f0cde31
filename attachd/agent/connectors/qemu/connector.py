# SPDX-License-Identifier: Apache-2.0
"""Block devices without the kernel's initiators; host.py chooses it.

QEMU's storage daemon logs in and shows the volume as a file (FUSE), and a loop device makes the
file a block device.  All that there is of a device has its place in ``<folder>/devices/<id>/``,
so that whoever comes after a crash finds it, completes it or takes it away.
"""

from collections.abc import Sequence
import os
from pathlib import Path
import platform
import sys
from typing import Final

from attachd import exception
from attachd.agent import commands
from attachd.agent.connectors import interfaces, local
from attachd.agent.connectors.base import (
    ConnectionInfo,
    ConnectorProperties,
    Device,
    HostConnector,
    Options,
)
from attachd.agent.connectors.qemu import (
    blockdev,
    initiator,
    state_dir,
    storage_daemon,
    volume_device,
)

TOOLS: Final = {
    storage_daemon.TOOL: "qemu-system-common",
    "losetup": "mount",
    "setsid": "util-linux",
    "sync": "coreutils",
    "umount": "mount",
}
_DEVICES: Final = {"/dev/fuse": "modprobe fuse", "/dev/loop-control": "modprobe loop"}


class QemuConnector(HostConnector):
    """QEMU's storage daemon with a loop device over its file; "local" volumes as they are.

    It has one path to a volume, and knows no multipath.  A device that is open for reading and
    writing can be extended if it is iSCSI, no other one.

    :param folder: the host's
    :param name: the iSCSI name to log in with; None: see initiator.py
    """

    TYPE = "user-space"

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self._folder = folder
        self._name = name

    def missing_requirements(self, protocol: str | None = None) -> Sequence[str]:
        """Look for commands, devices and QEMU's part for the protocol; local needs nothing."""
        protocol = protocol and protocol.lower()
        if protocol in {None, local.PROTOCOL}:
            return commands.missing({"sync": "coreutils"})
        if protocol not in blockdev.PROTOCOLS:
            return [f"a connector for {protocol} volumes (choose connector type kernel)"]
        lacking = missing_tools()
        if not lacking and not _knows(blockdev.PROTOCOLS[protocol]):
            lacking.append(f"QEMU's driver for {protocol} (package qemu-block-extra)")
        return lacking

    def get_connector_properties(self, host: str, options: Options) -> ConnectorProperties:
        """Tell the name to log in with, and an address."""
        _check_paths(options)
        return {
            "host": host,
            "ip": interfaces.address(options.nic),
            "initiator": initiator.name(self._name, self._folder),
            "multipath": False,
            "platform": platform.machine(),
            "os_type": sys.platform,
        }

    def connect(self, info: ConnectionInfo, options: Options) -> Device:
        """Use what is there, or take it away and start anew."""
        if local.is_local(info):
            return local.connect(info)
        _check_paths(options)
        paths = self._paths(info)
        folder = state_dir.of(self._folder, info)
        with state_dir.held(folder) as lock:
            if found := volume_device.complete(folder, paths, lock):
                return found
            volume_device.take_away(folder, lock)
            try:
                return volume_device.make(folder, paths, lock)
            except exception.HostError:
                volume_device.discard(folder, lock)
                state_dir.remove(folder)
                raise

    def disconnect(
        self,
        info: ConnectionInfo,
        options: Options,  # noqa: ARG002
        device: Device | None,  # noqa: ARG002
        *,
        force: bool = False,
    ) -> None:
        """Flush, free the loop device, let the daemon log out; whatever there is of them."""
        if local.is_local(info):
            local.disconnect(info, force=force)
            return
        folder = state_dir.of(self._folder, info)
        if not folder.exists():
            return
        with state_dir.held(folder) as lock:
            volume_device.take_away(folder, lock, force=force)
            state_dir.remove(folder)

    def extend(
        self,
        info: ConnectionInfo,
        options: Options,  # noqa: ARG002
        device: Device,  # noqa: ARG002
    ) -> int:
        """Let the daemon, then the loop device ask for the size."""
        if local.is_local(info):
            return local.extend(info)
        folder = state_dir.of(self._folder, info)
        if not folder.exists():
            raise exception.HostError(reason="The volume is not connected: attach it again.")
        with state_dir.held(folder):
            return volume_device.extend(folder, self._paths(info))

    def is_present(self, info: ConnectionInfo, device: Device) -> bool:
        """Look for the daemon, its file and the loop device."""
        if local.is_local(info):
            return local.is_present(info, device)
        found = volume_device.find(state_dir.of(self._folder, info), self._paths(info))
        return found is not None and found.path == device.path

    def _paths(self, info: ConnectionInfo) -> list[blockdev.Image]:
        return blockdev.describe(info, initiator.name(self._name, self._folder))


def missing_tools() -> list[str]:
    """Name the commands and devices that are missing, whatever the protocol."""
    lacking = commands.missing(TOOLS)
    for path, remedy in _DEVICES.items():
        # That only root may use it says nothing of whether it is there.
        if not os.access(path, os.R_OK | os.W_OK) and os.geteuid() == 0:
            lacking.append(f"{path} ({remedy})")
    return lacking


def _knows(driver: str) -> bool:
    """Ask QEMU whether it has a driver, some of which come in packages of their own."""
    try:
        commands.run(storage_daemon.TOOL, "--blockdev", f"driver={driver},node-name=none")
    except exception.HostError as error:
        # Complaints of what else it would have to be told are a yes.
        return "driver '" not in f"{error}" and "'driver'" not in f"{error}"
    return True


def _check_paths(options: Options) -> None:
    if options.enforce_multipath:
        raise exception.HostError(
            reason="Connector type user-space has one path to a volume. Omit --enforce-multipath, "
            "or choose connector type kernel."
        )
