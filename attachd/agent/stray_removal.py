# SPDX-License-Identifier: Apache-2.0
"""Removal of devices that no attachment wants: multipath devices before their paths.

The caller has checked that no attachment wants the device, and holds the lock of its volume.
"""

from collections.abc import Mapping
import contextlib
from pathlib import Path
from typing import Final

from attachd import exception
from attachd.agent import device_links, strays
from attachd.agent.connectors.base import Device, Options
from attachd.agent.connectors.brick import BrickConnector
from attachd.agent.connectors.qemu import loop_devices, state_dir, volume_device
from attachd.agent.journal import Journal
from attachd.agent.mount import open_handles
from attachd.agent.strays import ExportedDevice, Kind
from attachd.linux import block_device, commands, device_nodes

_NVME: Final = Path("/sys/class/nvme")

_NEEDED: Final[Mapping[Kind, Mapping[str, str]]] = {
    Kind.ISCSI: {"iscsiadm": "open-iscsi"},
    Kind.MULTIPATH: {"dmsetup": "dmsetup"},
    Kind.RBD: {"rbd": "ceph-common"},
}


def find_users(device: ExportedDevice) -> str:
    """Return what uses a device; "" if nothing does.

    A device without a node below /dev counts as used: nothing can be said about it.
    """
    users = []
    for path in device.devices:
        if not block_device.exists(path):
            users.append(f"{path}, which is missing below /dev, by what cannot be determined")
        elif found := open_handles.find_users(path):
            users.append(f"{path} by {found}")
    return "; ".join(users)


def remove(journal: Journal, device: ExportedDevice, *, force: bool = False) -> None:
    """Flush and disconnect a device.

    :param force: also if it is in use, or data that was written cannot be saved
    :raises HostError: it is in use, or still there
    """
    if not force and (users := find_users(device)):
        raise exception.HostError(reason=f"In use: {users}.")
    if missing := commands.list_missing(dict(_NEEDED.get(device.kind, {}))):
        raise exception.HostError(reason=f"{device.target} needs {', '.join(missing)}.")
    _disconnect(journal, device, force=force)
    if device.volume_id is not None:
        for path in device.devices:
            device_links.remove(device.volume_id, path)


def _disconnect(journal: Journal, device: ExportedDevice, *, force: bool) -> None:
    match device.kind:
        case Kind.ISCSI:
            _remove_iscsi(journal.state_path, device, force=force)
        case Kind.NVME:
            _remove_nvme(device, force=force)
        case Kind.RBD:
            _flush(device, force=force)
            options = ("--options", "force") if force else ()
            for path in device.devices:
                commands.run("rbd", "device", "unmap", *options, path)
        case Kind.MULTIPATH:
            # Nothing can be written without a path.
            commands.run("dmsetup", "remove", "--retry", "--uuid", device.target)
        case Kind.LOOP:
            lock = journal.held_lock()
            assert lock is not None
            _flush(device, force=force)
            loop_devices.detach(Path(device.target), lock=lock)
        case Kind.USER_SPACE:
            _remove_user_space(Path(device.target), force=force)


def _remove_nvme(device: ExportedDevice, *, force: bool) -> None:
    """Delete the controllers; nvme-cli opens namespaces, and would wait for a lost target."""
    paths = filter(block_device.exists, device.devices)
    if not any(device_nodes.stat_device(path).is_cut_off() for path in paths):
        _flush(device, force=force)
    elif not force:
        raise exception.HostError(
            reason=f"No controller of {device.target} reaches its target: what was written may be "
            "lost."
        )
    for controller in sorted(_NVME.glob("nvme*")):
        if device_nodes.read_line(controller / "subsysnqn") == device.target:
            _delete_controller(controller)


def _delete_controller(controller: Path) -> None:
    try:
        (controller / "delete_controller").write_text("1", encoding="ascii")
    except FileNotFoundError:
        return
    except OSError as error:
        raise exception.HostError(
            reason=f"{controller.name} cannot be deleted: {error.strerror}."
        ) from error


def _remove_iscsi(state_path: Path, device: ExportedDevice, *, force: bool) -> None:
    """Let os-brick remove the multipath device and its paths, and log out."""
    path = device.devices[0] if device.devices else None
    BrickConnector(state_path).disconnect(
        strays.connection_info(device),
        Options(multipath=len(device.paths) > 1),
        Device(path, {"type": "block", "path": path}) if path else None,
        force=force,
    )


def _remove_user_space(directory: Path, *, force: bool) -> None:
    with state_dir.locked(directory) as lock:
        volume_device.delete(directory, lock, force=force)
        state_dir.remove(directory)


def _flush(device: ExportedDevice, *, force: bool) -> None:
    for path in device.devices:
        with contextlib.suppress(*([exception.HostError] if force else [])):
            block_device.flush(path)
