# SPDX-License-Identifier: Apache-2.0
"""Volumes as files of this machine, attached to this machine.

``<file_folder>/volumes/<volume id>`` is a volume, ``<file_folder>/volumes/manageable`` has the
files that may become volumes, ``<file_folder>/volumes/snapshots`` the snapshots, and each export
is a hard link to a volume,
``<file_folder>/exports/<volume id>/<attachment id>``.  Where loop devices can be used, each
export is a loop device over its link, whose path identifies the attachment, also after a rename
(see attachd/linux/loops.py); otherwise the host gets the link itself.

The number of a loop device changes over a reboot, so a host gets
``<file_devices_dir>/<attachment id>``, a symbolic link to the device.
"""

from collections.abc import Iterable, Iterator, Sequence
import fcntl
import os
from pathlib import Path
import socket
from typing import Any, NamedTuple

from oslo_config import cfg
from oslo_log import log

from attachd import exception
from attachd.drivers import (
    abilities,
    base,
    existing,
    existing_files,
    folder_identity,
    linked_files,
    loop,
    snapshot_files,
    sparse,
)
from attachd.linux import boot

LOG = log.getLogger(__name__)


_PARTS = ("the link", "the name of the device")
"""Parts of a loop device's export, for each attachment."""


class _Granted(NamedTuple):
    """Parts of one attachment that exist.

    :ivar modes: of the devices; of a plain file, the mode that it allows
    :ivar parts: of :data:`_PARTS`
    """

    volume_id: str
    attachment_id: str
    modes: tuple[base.AccessMode, ...]
    parts: tuple[str, ...] = ()


class FileDriver(
    sparse.FilesDriver,
    snapshot_files.FileSnapshots,
    abilities.Clone,
    abilities.OnlineExtend,
    abilities.Evict,
    existing.ManageByName,
):
    """Sparse files, as loop devices or as plain files, for hosts that are this machine.

    A link cannot be read-only for one host and writable for another: without loop devices the mode
    "ro" is refused, and ``read_only_enforced`` is False.
    """

    _volumes: linked_files.LinkedFiles
    existing: existing_files.ExistingFiles
    SHARED_TARGETS = False
    OPTIONS = (
        cfg.StrOpt(
            "file_folder",
            default="$state_path/files",
            help="The directory for the volumes; each backend needs one of its own.",
        ),
        cfg.StrOpt(
            "file_loop_devices",
            default="auto",
            choices=[
                ("auto", "Loop devices if this process may use them, else plain files."),
                ("always", "Loop devices; the backend does not start where they are missing."),
                ("never", "Plain files. Needs no privilege, and cannot enforce read-only."),
            ],
            help="How a host is given a volume: as a block device or as a file.",
        ),
        cfg.StrOpt(
            "file_devices_dir",
            default="/run/attachd/devices",
            help="The directory for the names of block devices. It should be empty after a boot, "
            "when the names would lead to other devices: the manager removes those of an earlier "
            "boot when it starts.",
        ),
        cfg.ListOpt(
            "file_hosts",
            default=[],
            help="Hosts that may attach besides this machine, by the names in their connectors; * "
            "for all. They have to reach the files under the same paths, as with a shared "
            "directory and file_loop_devices = never, or be further names of this machine.",
        ),
    )

    def __init__(self, name: str, conf: cfg.ConfigOpts) -> None:
        super().__init__(name, conf)
        self._folder = Path(self.options.file_folder).absolute()
        self._volumes = linked_files.LinkedFiles(self._folder)
        self.snapshots = snapshot_files.SnapshotFiles(self._volumes)
        self.existing_snapshots = snapshot_files.existing_snapshots(self.snapshots)
        self.existing = existing_files.ExistingFiles(
            self._volumes, lambda volume: self._volumes.remove_links(volume.id)
        )
        self._devices = Path(self.options.file_devices_dir).absolute()
        self._loops = self._discards = False

    def setup(self) -> None:
        """Create the directories and check whether loop devices can be used."""
        self._volumes.prepare()
        self.existing.prepare()
        self.snapshots.prepare()
        self.existing_snapshots.prepare()
        self._discards = self._volumes.can_discard()
        self.storage_ids = {self.name: folder_identity.read_identity(self._folder)}
        setting = self.options.file_loop_devices
        lacking = "" if setting == "never" else loop.unavailable()
        if lacking and setting == "always":
            raise exception.BackendError(
                f"file_loop_devices is 'always', but loop devices cannot be used: {lacking}.",
                final=True,
            )
        self._loops = setting != "never" and not lacking
        # The kernel refuses to free a device in use.  Any program may open a plain file.
        self.promises = base.Promises(read_only_enforced=self._loops, detach_proof=self._loops)
        if self._loops:
            # Every user may follow a name; the permissions of the device decide on its use.
            sparse.make_folder(self._devices, 0o711)
            with sparse.map_os_errors(f"The directory {self._devices} cannot be used"):
                _remove_former_names(self._devices)
        if lacking:
            LOG.warning("%s hands out plain files: no loop devices (%s)", self.name, lacking)

    def get_stats(self) -> base.BackendStats:
        """Return the size of the directory's file system."""
        return self._volumes.stats("file")

    def create(self, volume: base.VolumeRef) -> dict[str, Any]:
        """Create the volume's file."""
        self._volumes.create(volume)
        return {}

    def clone(self, volume: base.VolumeRef, source: base.VolumeRef) -> dict[str, Any]:
        """Copy the source's file, as it is at one moment."""
        self._volumes.clone(volume, source.id)
        return {}

    def delete(self, volume: base.VolumeRef) -> None:
        """Delete the volume's file; refused while it is exported."""
        self._volumes.delete(volume.id)

    def extend(
        self, volume: base.VolumeRef, size_gib: int, exports: Sequence[base.Export]
    ) -> None:
        """Extend the file, then refresh the loop devices over it."""
        self._volumes.extend(volume.id, size_gib)
        with sparse.map_os_errors(f"A device of volume {volume.id} could not be extended"):
            for export in exports:
                for device in loop.find(self._link(volume, export)):
                    loop.refresh(device)

    def check_connector(self, connector: base.Connector) -> None:
        """Refuse hosts that do not reach the files of this machine."""
        host, machine, known = connector.get("host"), socket.gethostname(), self.options.file_hosts
        if host and (_is_same_host(f"{host}", machine) or host in known or "*" in known):
            return
        # Tenants do not need the name of the machine.
        LOG.info(
            "%s: refuses host %r of a connector; this machine is %s", self.name, host, machine
        )
        raise exception.InvalidInput(
            field="connector.host",
            value=host,
            reason=f"Volumes of backend {self.name} are files of another host: attach them there. "
            "An operator finds its name in the log of the manager, and can name other hosts that "
            "reach the files in file_hosts.",
        )

    def check_access_mode(self, mode: base.AccessMode) -> None:
        """Refuse "ro" without loop devices."""
        if mode == "ro" and not self._loops:
            raise exception.InvalidInput(
                field="mode",
                value=mode,
                reason=f"Backend {self.name} hands out plain files, which accept writes of each "
                "host. Attach with mode rw, or use a backend with read_only_enforced.",
            )

    def grant(self, volume: base.VolumeRef, export: base.Export) -> base.ConnectionInfo:
        """Link the file for one attachment, and create a named loop device over the link.

        :returns: "local", whose ``device_path`` os-brick's LocalConnector takes as it is
        """
        link = self._link(volume, export)
        try:
            self.check_access_mode(export.mode)
        except exception.InvalidInput as error:
            granted = self._volumes.may_exist(link)
            raise exception.BackendError(f"{error}", final=not granted) from error
        with sparse.map_os_errors(f"Volume {volume.id} could not be exported"):
            self._volumes.link(volume.id, export.attachment_id)
            if not self._loops:
                # What outlives a boot has to be on disk; a loop device is granted anew.
                self._volumes.sync_link(link)
            path = self._device(link, export.mode) if self._loops else link
        data = {
            "device_path": f"{path}",
            "volume_id": volume.id,
            "access_mode": export.mode,
            "discard": self._discards,
        }
        if not self._loops:
            # Other hosts may write to it, see file_hosts.
            data["folder"] = f"{self._volumes.tree.root}"
        return {"driver_volume_type": "local", "data": data}

    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        """Free the loop device and remove the link.

        A device in use, or an open file, cannot be revoked: that is an error.  Plain files are
        shared with ``others``, so that use can be detected only when there are none.
        """
        link = self._link(volume, export)
        with sparse.map_os_errors(f"Volume {volume.id} could not be withdrawn"):
            loop.detach(link)
            base.check_still_owner()
            name = self._devices / link.name
            # Without loop devices the directory need not be readable for this process.
            if os.path.lexists(name):
                name.unlink(missing_ok=True)
            if not self._loops and not others and _is_open(self._volumes, link):
                raise exception.BackendInUse(
                    f"{link} is still open on this host; close it, then detach again."
                )
            self._volumes.unlink(link)

    def boot_id(self) -> str:
        """Return the boot id of the machine: loop devices do not survive a reboot; links do."""
        return boot.read_id() if self._loops else ""

    def list_exports(self) -> Iterable[base.BackendExport]:
        """List links and the devices over them; open devices cannot be detected."""
        with sparse.map_os_errors(f"{self._volumes.exports} could not be listed"):
            return _listed(self._granted_in(self._volumes.exports))

    def list_volume_exports(self, volume: base.VolumeRef) -> Iterable[base.BackendExport]:
        """List the links in the volume's directory."""
        folder = self._volumes.exports / volume.id
        if folder.parent != self._volumes.exports:
            return ()  # No volume has such an id.
        with sparse.map_os_errors(f"{folder} could not be listed"):
            return _listed(self._granted_in(folder))

    def expected_exports(
        self, volume: base.VolumeRef, exports: Sequence[base.Export]
    ) -> Iterable[base.BackendExport]:
        """Return links, and devices if loop devices are used: a link does not prevent writes."""
        modes: dict[str, list[base.AccessMode]] = {
            export.attachment_id: [export.mode if self._loops else "rw"] for export in exports
        }
        parts = _PARTS if self._loops else ()
        return _listed(_Granted(volume.id, mode, tuple(modes[mode]), parts) for mode in modes)

    def revoke_all_except(self, volume: base.VolumeRef, staying: Sequence[base.Export]) -> None:
        """Free the devices and remove the links of exports that are not in ``staying``."""
        kept = {item.attachment_id: item for item in staying}
        with sparse.map_os_errors(f"Volume {volume.id} could not be withdrawn"):
            for grant in list(self._granted_in(self._volumes.link_folder(volume.id))):
                if grant.attachment_id not in kept:
                    self.revoke(volume, base.Export(grant.attachment_id, {}), staying)
                elif self._loops:
                    export = kept[grant.attachment_id]
                    loop.detach(self._link(volume, export), set(grant.modes) - {export.mode})

    def _granted_in(self, folder: Path) -> Iterator["_Granted"]:
        """Find links in a directory, and devices over present or former links."""
        links = self._volumes.links(folder)
        over: dict[Path, list[loop.LoopDevice]] = {}
        for link, device in self._devices_in(folder, links) if self._loops else ():
            over.setdefault(link, []).append(device)
        for link in sorted(links | over.keys()):
            devices = over.get(link, [])
            named = any(_leads_to((self._devices / link.name), device.path) for device in devices)
            present = (link in links, named) if self._loops else ()
            parts = tuple(
                part for part, is_present in zip(_PARTS, present, strict=False) if is_present
            )
            modes: set[base.AccessMode] = {device.mode for device in devices}
            yield _Granted(
                link.parent.name, link.name, tuple(modes) if self._loops else ("rw",), parts
            )

    def _devices_in(
        self, folder: Path, links: set[Path]
    ) -> Iterator[tuple[Path, loop.LoopDevice]]:
        """Find the devices over links, by the names that the links had."""

        def directories() -> Iterable[Path]:
            if folder != self._volumes.exports:
                return [folder]
            return [folder / volume_id for volume_id in self._volumes.sizes()]

        return loop.made_under(folder, links, directories)

    def _link(self, volume: base.VolumeRef, export: base.Export) -> Path:
        return self._volumes.link_path(volume.id, export.attachment_id)

    def _device(self, link: Path, mode: base.AccessMode) -> Path:
        """Return the name of a device over the link; create it if there is none."""
        usable = [
            device for device in loop.find(link) if device.mode == mode and not device.closing
        ]
        if usable:
            device = usable[0].path
        else:
            flags = os.O_RDONLY if mode == "ro" else os.O_RDWR
            with self._volumes.opened(link, flags) as file:
                device = loop.attach(file, link, mode).path
        name = self._devices / link.name
        if not _leads_to(name, device):
            for other in self._devices.iterdir():
                # Its device was freed by another program, and reused for this one.
                if _leads_to(other, device):
                    base.check_still_owner()
                    other.unlink(missing_ok=True)
            base.check_still_owner()
            name.unlink(missing_ok=True)
            base.check_still_owner()
            name.symlink_to(device)
        return name


def _is_open(volumes: linked_files.LinkedFiles, link: Path) -> bool:
    if volumes.tree.stat(link) is None:
        return False
    with volumes.opened(link, os.O_RDONLY) as descriptor:
        return bool(existing_files.is_open(descriptor))


def _is_same_host(name: str, other: str) -> bool:
    """Return whether two names are of one host; one of them may lack the domain."""
    one, two = name.lower().split("."), other.lower().split(".")
    return one == two or (one[0] == two[0] and min(len(one), len(two)) == 1)


def _remove_former_names(folder: Path) -> None:
    """Remove the names of an earlier boot, which may lead to devices of other volumes by now.

    Without a record, as after an upgrade, the boot of the names is unknown: all stay.  Names of
    devices over the link of their attachment stay in any case.
    """
    current = f"{boot.read_id()}\n"
    with (folder / ".boot_id").open("a+") as record:
        # Another process that starts at the same time has to find what this one has done.
        fcntl.flock(record, fcntl.LOCK_EX)
        record.seek(0)
        recorded = record.read()
        if recorded == current:
            return
        # The devices of all backends: they may share the directory of the names.
        devices = loop.under(Path("/")) if recorded else []
        for name in folder.iterdir() if recorded else ():
            is_valid = any(
                link.name == name.name and _leads_to(name, device.path) for link, device in devices
            )
            if name.is_symlink() and not is_valid:
                LOG.warning("Removing the name %s of an earlier boot", name)
                name.unlink()
        record.truncate(0)
        record.write(current)


def _listed(granted: Iterable[_Granted]) -> list[base.BackendExport]:
    """Group by volume and mode; parts grant no access by themselves."""
    holders: dict[tuple[str, base.AccessMode], set[str]] = {}
    parts: dict[str, set[str]] = {}
    for grant in granted:
        for mode in grant.modes:
            holders.setdefault((grant.volume_id, mode), set()).add(grant.attachment_id)
        if grant.parts:
            named = {f"{part} of attachment {grant.attachment_id}" for part in grant.parts}
            parts.setdefault(grant.volume_id, set()).update(named)
    return [
        *(base.BackendExport(*key, frozenset(found)) for key, found in holders.items()),
        *(base.BackendExport(key, None, parts=frozenset(found)) for key, found in parts.items()),
    ]


def _leads_to(name: Path, device: str) -> bool:
    try:
        return f"{name.readlink()}" == device
    except OSError:
        return False
