# SPDX-License-Identifier: Apache-2.0
"""Devices of this host that are exports of attachd, as the kernel's sysfs shows them.

The journal is not needed to find them: the names of targets contain the id of the volume.  A
device that no attachment wants is a stray; client/strays.py decides that.
"""

from collections.abc import Iterable, Iterator
import dataclasses
import enum
from pathlib import Path
import re
from typing import Any, Final

from attachd.agent.connectors.base import ConnectionInfo
from attachd.agent.connectors.qemu import state_dir, storage_daemon
from attachd.agent.journal import Entry
from attachd.linux.device_nodes import read_line

_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DEFAULTS: Final = (
    # iSCSI: ":volume-<id>" or ":<backend>:<id>", NVMe: ":<backend>:<id>:<host>".
    r"(?:iqn|nqn)\.2026-01\.internal\.attachd:(?:[a-z0-9.-]+?[:-])?",
    r"[^/]+/attachd-",
)
"""What the names of targets begin with by default; the id of the volume follows."""
_SUFFIX: Final = f"(?:-ro|-for-(?P<attachment>{_UUID})|:[0-9a-f]*)?"
_NAME_KEYS: Final = ("target_iqn", "target_nqn", "name")
_EXPORTED_FILE = re.compile(rf"/.*/exports/({_UUID})/({_UUID})(?: \(deleted\))?")
_NAMESPACE = re.compile(r"nvme\d+n\d+")
_MULTIPATH: Final = "mpath-"
# Those that tgtd and LIO make of the id of a volume: all of it but one digit, or 25 digits of it.
_WWID = re.compile("36(?:[0-9a-f]{11}4[0-9a-f]{3}[89ab][0-9a-f]{15}|001405[0-9a-f]{25})")


class Kind(enum.StrEnum):
    """How a device is connected."""

    ISCSI = "iscsi"
    NVME = "nvme"
    RBD = "rbd"
    LOOP = "loop"
    """A loop device over a file of a backend "file" or "nfs"."""
    USER_SPACE = "user-space"
    """A storage daemon of QEMU, and the loop device over its file."""
    MULTIPATH = "multipath"
    """A multipath device without paths."""


@dataclasses.dataclass(frozen=True)
class ExportedDevice:
    """A target of attachd that this host is connected to.

    :ivar target: its name, which is unique; of a file its path, of a daemon its directory, of a
        multipath device its UUID
    :ivar devices: paths of its devices, without those that are part of another one of them; may
        be empty
    :ivar volume_id: None: its name does not say
    :ivar attachment_id: None: its name does not say
    :ivar paths: of iSCSI, portal and unit of each session
    """

    kind: Kind
    target: str
    devices: tuple[str, ...]
    volume_id: str | None = None
    attachment_id: str | None = None
    paths: tuple[tuple[str, int], ...] = ()

    def is_of_volume(self, volume_id: str) -> bool:
        """Return whether it is a device of a volume, as far as its name says."""
        if self.kind is not Kind.MULTIPATH:
            return self.volume_id == volume_id
        digits = volume_id.replace("-", "")
        wwids = (f"36{digits[1:]}", f"36001405{digits[:25]}")
        return self.target.removeprefix(_MULTIPATH) in wwids

    def is_of_entry(self, entry: Entry, state_path: Path) -> bool:
        """Return whether an entry of the journal may have it.

        :param state_path: the host's
        """
        if self.attachment_id:
            return self.attachment_id == entry.attachment_id
        if self.kind is Kind.USER_SPACE:
            info = entry.connection_info
            return info is not None and f"{state_dir.path_for(state_path, info)}" == self.target
        return self.is_of_volume(entry.volume_id)


class TargetNames:
    """Recognizes the names of targets, subsystems and images that attachd exports.

    :param connections: further names of the same backends
    :param prefixes: what further names begin with
    """

    def __init__(
        self, connections: Iterable[ConnectionInfo] = (), prefixes: Iterable[str] = ()
    ) -> None:
        known = {*prefixes, *(prefix for info in connections for prefix in _prefixes(info))}
        starts = "|".join([*_DEFAULTS, *map(re.escape, sorted(known))])
        self._pattern = re.compile(f"(?:{starts})(?P<volume>{_UUID}){_SUFFIX}")

    def volume_id(self, name: str) -> str | None:
        """Return the volume of a name; None: it is no name of attachd."""
        match = self._pattern.fullmatch(name)
        return match["volume"] if match else None

    def attachment_id(self, name: str) -> str | None:
        """Return the attachment of a name; None: it has none, or is no name of attachd."""
        match = self._pattern.fullmatch(name)
        return match["attachment"] if match else None


class AnyNames(TargetNames):
    """Recognizes all names that end in the id of a volume, with any prefix.

    They may be names of another service. For devices that are only shown, not removed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pattern = re.compile(f".*?(?P<volume>{_UUID}){_SUFFIX}")


def _prefixes(info: ConnectionInfo) -> Iterator[str]:
    volume_id = info.get("volume_id")
    for key in _NAME_KEYS:
        prefix, found, _ = str(info.get(key) or "").partition(f"{volume_id}")
        if volume_id and found and prefix:
            yield prefix


def list_exported(
    names: TargetNames, state_path: Path, root: Path = Path("/")
) -> list[ExportedDevice]:
    """List the devices whose target attachd exports, whether they are wanted or not.

    :param state_path: the host's
    :param root: the directory that has ``sys``
    """
    sys = root / "sys"
    return [
        *_list_multipath(sys),
        *_list_iscsi(sys, names),
        *_list_nvme(sys, names),
        *_list_rbd(sys, names),
        *_list_loops(sys),
        *_list_user_space(sys, state_path),
    ]


def _list_iscsi(sys: Path, names: TargetNames) -> Iterator[ExportedDevice]:
    """Yield the targets with sessions, which may have no disk any more."""
    sessions: dict[str, list[Path]] = {}
    for session in sorted((sys / "class/iscsi_session").glob("session*")):
        sessions.setdefault(read_line(session / "targetname"), []).append(session)
    for target, found in sessions.items():
        if volume_id := names.volume_id(target):
            paths, devices = [], []
            for session in found:
                disks = sorted((session / "device").glob("target*/*:*:*:*/block/*"))
                unit = disks[0].parent.parent.name.rpartition(":")[2] if disks else 0
                paths.append((_portal(sys, session.name), int(unit)))
                devices += [_top(sys, disk.name) for disk in disks]
            yield ExportedDevice(
                Kind.ISCSI, target, _unique(devices), volume_id, paths=tuple(paths)
            )


def _portal(sys: Path, session: str) -> str:
    """Return the portal of a session, as iscsiadm names it."""
    connection = f"connection{session.removeprefix('session')}:0"
    directory = sys / "class/iscsi_connection" / connection
    address = read_line(directory / "persistent_address")
    address = f"[{address}]" if ":" in address else address
    return f"{address}:{read_line(directory / 'persistent_port')}"


def _top(sys: Path, disk: str) -> str:
    """Return the multipath device that a disk is a path of, or the disk."""
    for holder in sorted((sys / "block" / disk / "holders").glob("dm-*")):
        if read_line(holder / "dm/uuid").startswith(_MULTIPATH):
            return f"/dev/{holder.name}"
    return f"/dev/{disk}"


def _list_nvme(sys: Path, names: TargetNames) -> Iterator[ExportedDevice]:
    """Yield the subsystems with controllers, which may have no namespace any more."""
    devices: dict[str, list[str]] = {}
    controllers = sorted((sys / "class/nvme").glob("nvme*"))
    # With the kernel's own multipathing, a subsystem has the namespaces that can be used.
    for directory in (*controllers, *sorted((sys / "class/nvme-subsystem").glob("*"))):
        found = devices.setdefault(read_line(directory / "subsysnqn"), [])
        blocks = sorted(path.name for path in directory.glob("nvme*"))
        found += [_top(sys, name) for name in blocks if _NAMESPACE.fullmatch(name)]
    connected = {read_line(controller / "subsysnqn") for controller in controllers}
    for target, found in devices.items():
        if target in connected and (volume_id := names.volume_id(target)):
            yield ExportedDevice(Kind.NVME, target, _unique(found), volume_id)


def _list_rbd(sys: Path, names: TargetNames) -> Iterator[ExportedDevice]:
    devices: dict[str, list[str]] = {}
    for device in sorted((sys / "bus/rbd/devices").glob("[0-9]*")):
        image = f"{read_line(device / 'pool')}/{read_line(device / 'name')}"
        devices.setdefault(image, []).append(f"/dev/rbd{device.name}")
    for image, found in devices.items():
        if volume_id := names.volume_id(image):
            yield ExportedDevice(Kind.RBD, image, tuple(found), volume_id)


def _list_loops(sys: Path) -> Iterator[ExportedDevice]:
    for backing, found in _list_backings(sys).items():
        if match := _EXPORTED_FILE.fullmatch(backing):
            yield ExportedDevice(Kind.LOOP, backing, tuple(found), match[1], match[2])


def _list_user_space(sys: Path, state_path: Path) -> Iterator[ExportedDevice]:
    backings = _list_backings(sys)
    for directory in sorted((state_path.resolve() / "devices").glob("*")):
        loops = tuple(backings.get(f"{storage_daemon.image_file(directory)}", ()))
        if loops or storage_daemon.list_running(directory):
            is_id = re.fullmatch(_UUID, directory.name)
            attachment_id = directory.name if is_id else None
            yield ExportedDevice(
                Kind.USER_SPACE, f"{directory}", loops, attachment_id=attachment_id
            )


def _list_multipath(sys: Path) -> Iterator[ExportedDevice]:
    """Yield the multipath devices without paths: with paths they belong to their target."""
    for device in sorted((sys / "block").glob("dm-*")):
        uuid = read_line(device / "dm/uuid")
        is_volume = uuid.startswith(_MULTIPATH) and _WWID.fullmatch(uuid, len(_MULTIPATH))
        if is_volume and not any((device / "slaves").glob("*")):
            yield ExportedDevice(Kind.MULTIPATH, uuid, (f"/dev/{device.name}",))


def _list_backings(sys: Path) -> dict[str, list[str]]:
    """Return the loop devices in use, by the path of their file."""
    devices: dict[str, list[str]] = {}
    for directory in sorted((sys / "block").glob("loop*/loop")):
        if backing := read_line(directory / "backing_file"):
            devices.setdefault(backing, []).append(f"/dev/{directory.parent.name}")
    return devices


def _unique(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


def connection_info(device: ExportedDevice) -> dict[str, Any]:
    """Return the connection of an iSCSI target, as connectors take it to disconnect."""
    portals, units = zip(*device.paths, strict=True)
    return {
        "driver_volume_type": "iscsi",
        # As lists, also of one path: os-brick does not look for others in the discovery database.
        "target_portals": [*portals],
        "target_iqns": [device.target] * len(portals),
        "target_luns": [*units],
        "target_portal": portals[0],
        "target_iqn": device.target,
        "target_lun": units[0],
    }
