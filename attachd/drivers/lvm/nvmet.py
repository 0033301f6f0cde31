# SPDX-License-Identifier: Apache-2.0
"""NVMe/TCP subsystems of nvmet, the kernel's NVMe target; for the lvm driver.

Each host that has a volume gets a subsystem of its own for it, with a namespace over the device.
The namespaces of a volume have the same UUID.  nvmet can end the connections of a subsystem, but,
before Linux 6.11, not those of one of its hosts; and it cannot deny writes to a host.

Properties of nvmet (tested with Linux 6.1):

* Disabling a namespace waits for its commands, and fails later ones.
* A port listens while any subsystem is linked to it.  Ports and hosts belong to all backends.
* A host is who it claims to be, unless it has a key for DH-CHAP (Linux 6.0, if that is
  configured; see host_keys.py).  The key counts at the subsystems of all backends.

Source: Linux, drivers/nvme/target/configfs.c.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
import errno
import hashlib
from pathlib import Path
import re
from typing import Any, Final
import uuid

from attachd import exception
from attachd.drivers import base, iscsi
from attachd.drivers.lvm import configfs
from attachd.drivers.lvm.target import Target
from attachd.linux import block_device

_PREFIX: Final = f"nqn.{iscsi.AUTHORITY}"
_MODULES: Final = "nvmet, nvmet_tcp"
_NQN = re.compile(r"nqn\.[\x21-\x2e\x30-\x7e]{1,219}")
_TRIES: Final = 5
_PORTS: Final = 2**16
_NAMESPACE: Final = "1"
_ALL: Final = "all hosts"


class Nvmet(Target):
    """NVMe/TCP subsystems of one backend."""

    PROTOCOL = "NVMe-TCP"
    PROMISES = base.Promises(session_end=True, detach_proof=True)

    @property
    def _root(self) -> Path:
        return self.tree.root / "nvmet"

    @property
    def _subsystems(self) -> Path:
        return self._root / "subsystems"

    def setup(self) -> None:
        """Check modules and portals, and make the ports."""
        configfs.require(self._root, _MODULES)
        self.host_keys.check(self.tree, self._root / "hosts" / f"{_PREFIX}:{self.backend}")
        for portal in self.portals:
            known = self._find_ports(portal)
            if not any(self.tree.list(port / "subsystems") for port in known):
                configfs.check_portal(portal)
            try:
                self._port(portal)
            except OSError as error:
                raise exception.BackendError(
                    f"lvm_target cannot be used: {error}. Load the kernel modules {_MODULES}, and "
                    "give this process the right to write there.",
                    final=True,
                ) from error

    def _find_ports(self, portal: configfs.Portal) -> list[Path]:
        wanted = _port_attributes(portal)
        ports = [self._root / "ports" / name for name in self.tree.list(self._root / "ports")]
        return [
            port
            for port in ports
            if {name: self.tree.read(port / name) for name in wanted} == wanted
        ]

    def _port(self, portal: configfs.Portal) -> Path:
        """Return the port of a portal; make it if there is none."""
        if found := self._find_ports(portal):
            return found[0]
        # Another backend may make one at the same time, so that the number has to be its own.
        digest = hashlib.sha256(f"{portal}".encode()).digest()
        for attempt in range(_TRIES):
            number = int.from_bytes(digest[2 * attempt : 2 * attempt + 2], "big")
            port = self._root / "ports" / f"{number or _PORTS - 1}"
            if self.tree.read(port / "addr_trsvcid"):
                continue  # of another portal
            self.tree.make(port)
            for name, value in _port_attributes(portal).items():
                self.tree.write(port / name, value)
            return port
        raise exception.BackendError(f"lvm_portals: there is no free number for a port {portal}.")

    def check_connector(self, connector: base.Connector) -> None:
        """Refuse a host without an NQN."""
        if not _is_nqn(name := connector.get("nqn")):
            raise exception.InvalidInput(
                field="connector.nqn",
                value=name,
                reason="The volume is reached by NVMe over TCP, for which the host needs an NQN, "
                "as in /etc/nvme/hostnqn.",
            )

    def host(self, export: base.Export) -> str:
        """Return the NQN of the host."""
        name = export.connector.get("nqn")
        return f"{name}" if _is_nqn(name) else ""

    def connection_key(self, volume: base.VolumeRef, export: base.Export) -> str:
        """Return the name of the subsystem, and the mode."""
        return f"{self._name(volume.id, self.host(export))} {export.mode}"

    def grant(
        self, volume: base.VolumeRef, export: base.Export, device: Path
    ) -> base.ConnectionInfo:
        """Make what is missing, the ports last.

        :returns: "nvmeof", for os-brick's NVMeOFConnector
        """
        if not (host := self.host(export)):
            raise exception.BackendError(
                f"Attachment {export.attachment_id} has no 'nqn' in its connector.", final=True
            )
        subsystem = self._subsystems / self._name(volume.id, host)
        self.tree.make(subsystem)
        self.tree.write(subsystem / "attr_allow_any_host", "0")
        self.tree.write(subsystem / "attr_serial", _serial(volume.id))
        namespace = subsystem / "namespaces" / _NAMESPACE
        self.tree.make(namespace)
        if self.tree.read(namespace / "enable") != "1":
            for name, value in _identity(volume.id, device).items():
                self.tree.write(namespace / name, value)
            self.tree.write(namespace / "enable", "1")
        self._allow(subsystem, host)
        for portal in self.portals:
            with configfs.portal_errors(portal):
                self.tree.link(self._port(portal) / "subsystems" / subsystem.name, subsystem)
        discards = block_device.can_discard(f"{device}")
        return _connection_info(volume, export, subsystem.name, self.portals, discards=discards)

    def _allow(self, subsystem: Path, host: str) -> None:
        known = self._root / "hosts" / host
        for attempt in range(_TRIES):
            self.tree.make(known)
            try:
                self.host_keys.assign(self.tree, known)
                self.tree.link(subsystem / "allowed_hosts" / host, known)
            except FileNotFoundError:
                # The last subsystem of another volume was removed, and the host with it.
                if attempt == _TRIES - 1:
                    raise
            else:
                return

    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        """Remove the host's subsystem; if no export is left, all of the volume."""
        staying = {self.host(other) for other in others} - {""}
        host = self.host(export)
        if not staying:
            self.revoke_all_except(volume, [])
        elif host and host not in staying:
            self._remove(self._subsystems / self._name(volume.id, host))

    def revoke_all_except(self, volume: base.VolumeRef, staying: Sequence[base.Export]) -> None:
        """Remove all other subsystems, and all others from the staying ones."""
        hosts = {self._name(volume.id, self.host(item)): self.host(item) for item in staying}
        for subsystem in self._of_volume(volume.id):
            if not hosts.get(subsystem.name):
                self._remove(subsystem)
                continue
            self.tree.write(subsystem / "attr_allow_any_host", "0")
            for host in self.tree.list(subsystem / "allowed_hosts"):
                if host != hosts[subsystem.name]:
                    # It may be connected, and only the end of all connections ends its own.
                    self._remove(subsystem)
                    break

    def _remove(self, subsystem: Path) -> None:
        """Remove a subsystem, and end the commands and connections of its hosts first."""
        namespaces = self.tree.list(subsystem / "namespaces")
        for name in namespaces:
            self.tree.write(subsystem / "namespaces" / name / "enable", "0")
        for port in self.tree.list(self._root / "ports"):
            self.tree.remove(self._root / "ports" / port / "subsystems" / subsystem.name)
        for host in self.tree.list(subsystem / "allowed_hosts"):
            self.tree.remove(subsystem / "allowed_hosts" / host)
            try:
                self.tree.remove(self._root / "hosts" / host)
            except OSError as error:
                if error.errno not in {errno.EBUSY, errno.ENOTEMPTY}:  # other volumes
                    raise
        for name in namespaces:
            self.tree.remove(subsystem / "namespaces" / name)
        self.tree.remove(subsystem)

    def notify_size(self, volume: base.VolumeRef) -> None:
        """Have the kernel read the size, and notify hosts."""
        for subsystem in self._of_volume(volume.id):
            revalidate = subsystem / "namespaces" / _NAMESPACE / "revalidate_size"
            if revalidate.exists():
                self.tree.command(revalidate, "1")

    def list_volume_ids(self) -> Collection[str]:
        """List the volumes with a subsystem."""
        start = f"{_PREFIX}:{self.backend}:"
        return {
            name.removeprefix(start).rpartition(":")[0]
            for name in self.tree.list(self._subsystems)
            if name.startswith(start)
        }

    def list_exports(self, volume_id: str, device: Path) -> Iterator[base.BackendExport]:
        """List the subsystems as one export."""
        holders: set[str] = set()
        parts: set[str] = set()
        for subsystem in self._of_volume(volume_id):
            holders |= set(self.tree.list(subsystem / "allowed_hosts"))
            if self.tree.read(subsystem / "attr_allow_any_host") == "1":
                holders.add(_ALL)
            parts.add(_part(subsystem.name))
            if self._serves(subsystem, volume_id, device):
                parts.add(_in_service(subsystem.name))
        parts |= self.host_keys.parts(self.tree, self._root / "hosts", holders)
        if parts:
            yield base.BackendExport(volume_id, "rw", frozenset(holders), frozenset(parts))

    def _serves(self, subsystem: Path, volume_id: str, device: Path) -> bool:
        namespace = subsystem / "namespaces" / _NAMESPACE
        wanted = {**_identity(volume_id, device), "enable": "1"}
        return {name: self.tree.read(namespace / name) for name in wanted} == wanted and all(
            any(
                (port / "subsystems" / subsystem.name).is_symlink()
                for port in self._find_ports(portal)
            )
            for portal in self.portals
        )

    def expected_exports(
        self, volume: base.VolumeRef, exports: Sequence[base.Export]
    ) -> Iterable[base.BackendExport]:
        """Return one export with all hosts; hosts without an NQN have no access."""
        holders = {self.host(export) for export in exports} - {""}
        subsystems = [self._name(volume.id, holder) for holder in holders]
        parts = [*map(_part, subsystems), *map(_in_service, subsystems)]
        parts += self.host_keys.expected_parts(holders)
        if holders:
            yield base.BackendExport(volume.id, "rw", frozenset(holders), frozenset(parts))

    def _of_volume(self, volume_id: str) -> list[Path]:
        start = f"{_PREFIX}:{self.backend}:{volume_id}:"
        known = self.tree.list(self._subsystems)
        return [self._subsystems / name for name in known if name.startswith(start)]

    def _name(self, volume_id: str, host: str) -> str:
        digest = hashlib.sha256(host.encode()).hexdigest()[:16] if host else ""
        return f"{_PREFIX}:{self.backend}:{volume_id}:{digest}"


def _is_nqn(name: object) -> bool:
    return isinstance(name, str) and _NQN.fullmatch(name) is not None


def _serial(volume_id: str) -> str:
    """Return the serial number: 20 characters at most, the same at all subsystems of a volume."""
    return iscsi.scsi_id(volume_id)[:20]


def _uuid(volume_id: str) -> str:
    return f"{uuid.UUID(iscsi.scsi_id(volume_id))}"


def _identity(volume_id: str, device: Path) -> dict[str, str]:
    """Return the attributes of a namespace, which can be set only while it is disabled."""
    return {"device_path": f"{device}", "device_uuid": _uuid(volume_id)}


def _port_attributes(portal: configfs.Portal) -> dict[str, str]:
    return {
        "addr_trtype": "tcp",
        "addr_adrfam": "ipv6" if ":" in portal.address else "ipv4",
        "addr_traddr": portal.address,
        "addr_trsvcid": portal.port,
    }


def _part(subsystem: str) -> str:
    return f"subsystem {subsystem}"


def _in_service(subsystem: str) -> str:
    return f"subsystem {subsystem} in service"


def _connection_info(
    volume: base.VolumeRef,
    export: base.Export,
    subsystem: str,
    portals: Sequence[configfs.Portal],
    *,
    discards: bool,
) -> base.ConnectionInfo:
    data: dict[str, Any] = {
        "target_nqn": subsystem,
        "vol_uuid": _uuid(volume.id),
        "portals": [[portal.address, portal.port, "tcp"] for portal in portals],
        "volume_id": volume.id,
        "access_mode": export.mode,
        "discard": discards,
    }
    return {"driver_volume_type": "nvmeof", "data": data}
