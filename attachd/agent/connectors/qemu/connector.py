# SPDX-License-Identifier: Apache-2.0
"""The connector for hosts whose kernel has no initiators.

QEMU's storage daemon logs in and exports the volume as a file (FUSE), and a loop device makes the
file a block device.  All files of a device are in ``<state_path>/devices/<id>/``, so that after a
crash any process can find, complete or remove the device.
"""

from collections.abc import Sequence
import contextlib
import os
from pathlib import Path
import platform
import re
import sys
from typing import Final
import uuid

from attachd import exception
from attachd.agent.connectors import ceph_header, interfaces, local
from attachd.agent.connectors.base import (
    ConnectionInfo,
    ConnectorProperties,
    Device,
    HostConnector,
    Options,
)
from attachd.agent.connectors.qemu import (
    blockdev,
    loop_devices,
    state_dir,
    storage_daemon,
    volume_device,
)
from attachd.linux import commands, sandbox

MACHINE_NAME_FILE = Path("/etc/iscsi/initiatorname.iscsi")
"""Where open-iscsi stores the iSCSI name of the machine."""

TOOLS: Final = {
    storage_daemon.TOOL: "qemu-system-common",
    "losetup": "mount",
    "mount": "mount",
    "setsid": "util-linux",
    "sync": "coreutils",
    "umount": "mount",
}
_DEVICES: Final = {"/dev/fuse": "modprobe fuse", "/dev/loop-control": "modprobe loop"}
_NAME_LINE = re.compile(r"^\s*InitiatorName\s*=\s*(\S+)", re.MULTILINE)
# RFC 7143, section 4.2.7: at most 223 octets.
_NAME = re.compile(r"(iqn|eui|naa)\.[\x21-\x7e]{1,219}")


class QemuConnector(HostConnector):
    """QEMU's storage daemon with a loop device over its file; "local" volumes as they are.

    It has one path to a volume, no multipath.  While it is connected, a device can be extended
    only if it is iSCSI and writable.

    :param state_path: the host's
    :param initiator: the iSCSI name to log in with; None: see :func:`initiator_name`
    """

    TYPE = "user-space"

    def __init__(self, state_path: Path, initiator: str | None = None) -> None:
        self._state_path = state_path
        self._initiator = initiator

    def missing_requirements(self, protocol: str | None = None) -> Sequence[str]:
        """Check commands, devices and QEMU's driver for the protocol; "local" needs nothing."""
        protocol = protocol and protocol.lower()
        if protocol in {None, local.PROTOCOL}:
            return commands.list_missing({"sync": "coreutils"})
        if protocol not in blockdev.PROTOCOLS:
            return [f"a connector for {protocol} volumes (choose connector type kernel)"]
        missing = missing_tools()
        if not missing and not _has_driver(blockdev.PROTOCOLS[protocol]):
            missing.append(f"QEMU's driver for {protocol} (package qemu-block-extra)")
        return missing + (
            ceph_header.missing_requirements() if protocol == ceph_header.PROTOCOL else []
        )

    def get_connector_properties(self, host: str, options: Options) -> ConnectorProperties:
        """Return the iSCSI name to log in with, and an address."""
        _check_no_multipath(options)
        return {
            "host": host,
            "ip": interfaces.get_address(options.nic),
            "initiator": initiator_name(self._initiator, self._state_path),
            "multipath": False,
            "platform": platform.machine(),
            "os_type": sys.platform,
        }

    def connect(self, info: ConnectionInfo, options: Options) -> Device:
        """Resume an existing device, or remove what is left of it and make a new one.

        A device that is in use stays, also if its daemon has ended.
        """
        if local.is_local(info):
            return local.connect(info)
        _check_no_multipath(options)
        paths = self._list_paths(info)
        directory = state_dir.path_for(self._state_path, info)
        with state_dir.locked(directory) as lock:
            if device := volume_device.resume(directory, paths):
                return device
            volume_device.check_unused(directory)
            volume_device.delete(directory, lock)
            try:
                if paths[0].blockdev["driver"] == ceph_header.PROTOCOL:
                    ceph_header.check(info)
                return volume_device.create(directory, paths, lock)
            except exception.HostError:
                volume_device.discard(directory, lock)
                state_dir.remove(directory)
                raise

    def disconnect(
        self,
        info: ConnectionInfo,
        options: Options,  # noqa: ARG002
        device: Device | None,  # noqa: ARG002
        *,
        force: bool = False,
    ) -> None:
        """Flush, free the loop device and end the daemon, which logs out."""
        if local.is_local(info):
            local.disconnect(info, force=force)
            return
        directory = state_dir.path_for(self._state_path, info)
        if not directory.exists():
            return
        with state_dir.locked(directory) as lock:
            volume_device.delete(directory, lock, force=force)
            state_dir.remove(directory)

    def cut(self, info: ConnectionInfo) -> None:
        """Kill the daemon: requests that wait for it fail."""
        if not local.is_local(info):
            storage_daemon.kill(state_dir.path_for(self._state_path, info))

    def find_device_paths(self, info: ConnectionInfo) -> Sequence[str]:
        """Return the loop devices over the daemon's file, which may have ended."""
        if local.is_local(info):
            return []
        image = storage_daemon.image_file(state_dir.path_for(self._state_path, info))
        return [loop.path for loop in loop_devices.list_over(image)]

    def extend(
        self,
        info: ConnectionInfo,
        options: Options,  # noqa: ARG002
        device: Device,  # noqa: ARG002
    ) -> int:
        """Let the daemon, then the loop device read the size again."""
        if local.is_local(info):
            return local.extend(info)
        directory = state_dir.path_for(self._state_path, info)
        if not directory.exists():
            raise exception.HostError(reason="The volume is not connected: attach it again.")
        with state_dir.locked(directory):
            return volume_device.extend(directory, self._list_paths(info))

    def is_present(self, info: ConnectionInfo, device: Device) -> bool:
        """Check the daemon, its file and the loop device."""
        if local.is_local(info):
            return local.is_present(info, device)
        directory = state_dir.path_for(self._state_path, info)
        loop = volume_device.find(directory, self._list_paths(info))
        return loop is not None and loop.path == device.path

    def _list_paths(self, info: ConnectionInfo) -> list[blockdev.VolumePath]:
        return blockdev.list_paths(info, initiator_name(self._initiator, self._state_path))


def missing_tools() -> list[str]:
    """List the missing commands and devices that every protocol needs."""
    missing = commands.list_missing(TOOLS) + sandbox.missing_requirements()
    for path, remedy in _DEVICES.items():
        # Without the rights of root the device may be there and not accessible.
        if not os.access(path, os.R_OK | os.W_OK) and os.geteuid() == 0:
            missing.append(f"{path} ({remedy})")
    return missing


def _has_driver(driver: str) -> bool:
    """Ask QEMU whether it has a driver: some come in packages of their own."""
    try:
        commands.run(storage_daemon.TOOL, "--blockdev", f"driver={driver},node-name=none")
    except exception.HostError as error:
        # A message about missing parameters shows that the driver is there.
        return "driver '" not in f"{error}" and "'driver'" not in f"{error}"
    return True


def _check_no_multipath(options: Options) -> None:
    if options.enforce_multipath:
        raise exception.HostError(
            reason="Connector type user-space has one path to a volume. Omit --enforce-multipath, "
            "or choose connector type kernel."
        )


def initiator_name(configured: str | None, state_path: Path) -> str:
    """Return the iSCSI name: the configured one, the machine's, or one made for this host.

    :param state_path: where a new name is stored, in the format of open-iscsi
    :raises HostError: a name is invalid, or cannot be stored
    """
    if configured is not None:
        return _check_name(configured, "The configured initiator name")
    own_file = state_path / MACHINE_NAME_FILE.name
    name = _read_name(MACHINE_NAME_FILE) or _read_name(own_file)
    if name is None:
        _create_name(own_file)
        name = _read_name(own_file)
    return _check_name(name or "", f"The initiator name in {MACHINE_NAME_FILE} or {own_file}")


def _read_name(path: Path) -> str | None:
    """Return the name in a file; None: there is no file, or no name in it."""
    try:
        match = _NAME_LINE.search(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise exception.HostError(reason=f"{path} cannot be read: {error}.") from error
    return match.group(1) if match else None


def _check_name(name: str, what: str) -> str:
    if not _NAME.fullmatch(name):
        raise exception.HostError(
            reason=f"{what} is '{name}', which is no iSCSI name: it has to begin with iqn., "
            "eui. or naa. and to have no spaces."
        )
    return name


def _create_name(path: Path) -> None:
    """Write a new name atomically; of several processes the first one decides."""
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
