# SPDX-License-Identifier: Apache-2.0
"""iSCSI targets of LIO, the kernel's SCSI target; for the lvm driver.

A volume has a backstore, over its device, a target for its writers, and another one ending in
"-ro" for its readers: a host logs in to each with another account.  A host has an ACL at the
target, in it its CHAP account and its LUN, which is write-protected at the second target.  Without
an account in the ACL the kernel accepts no login, so that the account comes last.

Properties of LIO (tested with Linux 6.1):

* Initiators log in by their names in lower case.
* A new LUN of an ACL is write-protected if the target's attribute prod_mode_write_protect is set.
* Removing the LUN of an ACL waits for its commands, and fails later ones; removing the ACL ends
  the session.
* All targets with the same portal share its socket, which is closed with the last of them.

Source: Linux, Documentation/target, drivers/target/target_core_fabric_configfs.c.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
import re
from typing import Final
import zlib

from attachd import exception
from attachd.drivers import abilities, base
from attachd.drivers.lvm import configfs
from attachd.drivers.lvm.target import Target
from attachd.drivers.tgt import names

_PREFIX: Final = "iqn.2026-01.internal.attachd"
_MODULES: Final = "target_core_mod, target_core_iblock, iscsi_target_mod"
_LUN: Final = 0
_LUN_NAME: Final = f"lun_{_LUN}"
_NO_SESSION: Final = "No active iSCSI Session"
_BACKSTORE: Final = "the backstore"
_IN_SERVICE: Final = "the LUN in service"
_RESERVATION = re.compile(r"(?P<kind>SPC-[23] Reservation): .*Initiator: (?P<initiator>[^\s,]+)")
_TYPE: Final = "SPC-3 Reservation Type: "

_ATTRIBUTES: Final = {
    "authentication": "1",
    "generate_node_acls": "0",
    "demo_mode_discovery": "0",
}


class Lio(Target):
    """iSCSI targets of one backend."""

    PROTOCOL = "iSCSI"
    PROMISES = base.Promises(
        per_host_access=True,
        read_only_enforced=True,
        session_end=True,
        complete_listing=True,
        detach_proof=True,
        session_listing=True,
    )

    @property
    def _fabric(self) -> Path:
        return self.tree.root / "target" / "iscsi"

    @property
    def _backstores(self) -> Path:
        # The number is of 32 bits; targetcli and rtslib count theirs from 0.
        number = 2**31 + zlib.crc32(self.backend.encode()) % 2**31
        return self.tree.root / "target" / "core" / f"iblock_{number}"

    def setup(self) -> None:
        """Check modules, rights and portals."""
        configfs.require(self.tree.root / "target", _MODULES)
        configfs.make_required(self.tree.make, self._fabric, _MODULES)
        configfs.make_required(self.tree.make, self._backstores, _MODULES)
        for portal in self.portals:
            if not any(self._fabric.glob(f"*/*/np/{_escape(f'{portal}')}")):
                configfs.check_portal(portal)

    def check_connector(self, connector: base.Connector) -> None:
        """Refuse a host without an iSCSI name."""
        if not _initiator(name := connector.get("initiator")):
            raise names.invalid_initiator(name)

    def host(self, export: base.Export) -> str:
        """Return the iSCSI name in lower case."""
        return _initiator(export.connector.get("initiator"))

    def connection_key(self, volume: base.VolumeRef, export: base.Export) -> str:
        """Return the name of the session: an initiator has one with a target."""
        return f"{self.host(export)} {self._name(volume.id, export.mode)}"

    def grant(
        self, volume: base.VolumeRef, export: base.Export, device: Path
    ) -> base.ConnectionInfo:
        """Make what is missing, the account last.

        :returns: "iscsi", for os-brick's ISCSIConnector
        """
        initiator = self.host(export)
        names.check_credentials(export, initiator)
        name = self._name(volume.id, export.mode)
        user, group = names.account(name, initiator), self._group(volume.id, export.mode)
        self._show_device(volume.id, device)
        self.tree.make(self._fabric)
        group.show(self.portals)
        group.allow(initiator, user, export.secret)
        return names.connection_info(
            volume, export, name, user, _LUN, [f"{portal}" for portal in self.portals]
        )

    def _show_device(self, volume_id: str, device: Path) -> None:
        store = self._backstores / volume_id
        self.tree.make(store.parent)
        self.tree.make(store)
        if self.tree.read(store / "enable") == "1":
            return
        # The kernel takes no second path, and nothing can use a store that is not enabled.
        if self.tree.read(store / "udev_path"):
            self.tree.remove(store)
            self.tree.make(store)
        self.tree.command(store / "control", f"udev_path={device}")
        self.tree.command(store / "udev_path", f"{device}")
        # Hosts derive the world-wide name from it: it is the same over any connection.
        self.tree.command(store / "wwn" / "vpd_unit_serial", names.scsi_id(volume_id))
        self.tree.write(store / "enable", "1")

    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        """Remove the initiator's ACLs, and each target without another export."""
        for mode in names.SUFFIXES:
            staying = self._hosts(others, mode)
            group, initiator = self._group(volume.id, mode), self.host(export)
            if not staying:
                group.remove()
            elif initiator and initiator not in staying:
                group.forbid(initiator)
        self._remove_unused_store(volume.id)

    def revoke_all_except(self, volume: base.VolumeRef, staying: Sequence[base.Export]) -> None:
        """Remove all other ACLs, and set attributes that let other hosts in."""
        for mode in names.SUFFIXES:
            group = self._group(volume.id, mode)
            if not (initiators := self._hosts(staying, mode)):
                group.remove()
            elif group.exists():
                group.forbid_all_except(initiators)
        self._remove_unused_store(volume.id)

    def _remove_unused_store(self, volume_id: str) -> None:
        if not any(self._group(volume_id, mode).exists() for mode in names.SUFFIXES):
            self.tree.remove(self._backstores / volume_id)

    def notify_size(self, volume: base.VolumeRef) -> None:
        """Do nothing: LIO reads the device's size at each command, and hosts rescan."""

    def get_reservation(self, volume: base.VolumeRef) -> abilities.Reservation | None:
        """Return what the kernel shows of a SCSI reservation.

        Source: Linux, drivers/target/target_core_configfs.c, target_pr_res_holder_show.
        """
        shown = self._backstores / volume.id / "pr"
        if not (match := _RESERVATION.match(self.tree.read(shown / "res_holder"))):
            return None
        kind = self.tree.read(shown / "res_pr_type")
        is_persistent = kind.startswith(_TYPE)
        return abilities.Reservation(
            holder=match["initiator"].lower(),
            type=kind.removeprefix(_TYPE) if is_persistent else match["kind"],
        )

    def list_volume_ids(self) -> Collection[str]:
        """List the volumes with a backstore or a target."""
        prefix, reading = self._name("", "rw"), names.SUFFIXES["ro"]
        targets = [name for name in self.tree.list(self._fabric) if name.startswith(prefix)]
        ids = {name.removeprefix(prefix).removesuffix(reading) for name in targets}
        return ids | set(self.tree.list(self._backstores))

    def list_exports(self, volume_id: str, device: Path) -> Iterator[base.BackendExport]:
        """List targets, and the backstore."""
        store = self._backstores / volume_id
        if store.is_dir():
            shows = self.tree.read(store / "udev_path") == f"{device}"
            serves = shows and self.tree.read(store / "enable") == "1"
            part = _BACKSTORE if serves else f"{_BACKSTORE}, incomplete"
            yield base.BackendExport(volume_id, None, parts=frozenset({part}))
        for mode in names.SUFFIXES:
            if (group := self._group(volume_id, mode)).exists():
                yield group.listed(volume_id, self.portals)

    def expected_exports(
        self, volume: base.VolumeRef, exports: Sequence[base.Export]
    ) -> Iterable[base.BackendExport]:
        """Return a target for each mode, and the backstore; hosts need names."""
        found = []
        for mode in names.SUFFIXES:
            name = self._name(volume.id, mode)
            if holders := self._hosts(exports, mode):
                accounts = [_account(names.account(name, holder)) for holder in holders]
                parts = frozenset([_IN_SERVICE, *accounts, *map(_lun, holders)])
                found.append(base.BackendExport(volume.id, mode, frozenset(holders), parts))
        if found:
            found.append(base.BackendExport(volume.id, None, parts=frozenset({_BACKSTORE})))
        return found

    def _hosts(self, exports: Sequence[base.Export], mode: base.AccessMode) -> set[str]:
        return {self.host(export) for export in exports if export.mode == mode} - {""}

    def _name(self, volume_id: str, mode: base.AccessMode) -> str:
        suffix = names.SUFFIXES[mode]
        return f"{_PREFIX}:{self.backend}:{volume_id}{suffix}"

    def _group(self, volume_id: str, mode: base.AccessMode) -> "PortalGroup":
        path = self._fabric / self._name(volume_id, mode) / "tpgt_1"
        return PortalGroup(self.tree, path, mode, self._backstores / volume_id)


@dataclass(frozen=True)
class PortalGroup:
    """The portal group of a target, which is all of it.

    :ivar path: its directory
    :ivar mode: of its hosts
    :ivar store: the backstore of its LUN
    """

    tree: configfs.Tree
    path: Path
    mode: base.AccessMode
    store: Path

    def exists(self) -> bool:
        """Return whether anything of the target is there."""
        return self.path.parent.is_dir()

    @property
    def _lun(self) -> Path:
        return self.path / "lun" / _LUN_NAME

    def show(self, portals: Sequence[configfs.Portal]) -> None:
        """Make the target, closed to all hosts."""
        self.tree.make(self.path.parent)
        self.tree.make(self.path)
        for name, value in _attributes(self.mode).items():
            self.tree.write(self.path / "attrib" / name, value)
        self.tree.make(self._lun)
        self.tree.link(self._lun / self.store.name, self.store)
        self.tree.write(self.path / "enable", "1")
        for portal in portals:
            with configfs.portal_errors(portal):
                self.tree.make(self.path / "np" / f"{portal}")

    def allow(self, initiator: str, user: str, secret: str) -> None:
        """Show the LUN to an initiator, and give it an account; the account comes last."""
        acl = self.path / "acls" / initiator
        self.tree.make(acl)
        self.tree.make(acl / _LUN_NAME)
        # The link may have any name.
        self.tree.link(acl / _LUN_NAME / _LUN_NAME, self._lun)
        self.tree.write(acl / _LUN_NAME / "write_protect", _protection(self.mode))
        self.tree.write(acl / "auth" / "userid", user)
        self.tree.write(acl / "auth" / "password", secret)

    def forbid(self, initiator: str) -> None:
        """Fail the commands of an initiator, and end its session."""
        acl = self.path / "acls" / initiator
        self._remove_luns(acl)
        self.tree.remove(acl)

    def forbid_all_except(self, initiators: set[str]) -> None:
        """Remove other ACLs, and set attributes that let other hosts in."""
        for name, value in _attributes(self.mode).items():
            self.tree.write(self.path / "attrib" / name, value)
        for acl in self._acls():
            mapped = self._mapped(acl)
            if acl.name not in initiators:
                self.forbid(acl.name)
            elif set(mapped) - {_LUN_NAME}:
                self._remove_luns(acl)
            elif mapped:
                self.tree.write(acl / _LUN_NAME / "write_protect", _protection(self.mode))
        if dynamic := self.tree.read(self.path / "dynamic_sessions"):
            raise exception.BackendError(
                f"{dynamic} logged in to {self.path.parent.name} without an ACL, which the "
                "kernel cannot end by itself: detach the volume everywhere."
            )

    def remove(self) -> None:
        """Remove a target that no host may use any more."""
        for acl in self._acls():
            self.forbid(acl.name)
        for portal in self.tree.list(self.path / "np"):
            self.tree.remove(self.path / "np" / portal)
        for lun in self.tree.list(self.path / "lun"):
            self._remove_lun(self.path / "lun" / lun)
        self.tree.remove(self.path)
        self.tree.remove(self.path.parent)

    def _remove_luns(self, acl: Path) -> None:
        for lun in self._mapped(acl):
            self._remove_lun(acl / lun)

    def _remove_lun(self, lun: Path) -> None:
        for name in self.tree.list(lun):
            if (lun / name).is_symlink():
                self.tree.remove(lun / name)
        self.tree.remove(lun)

    def listed(self, volume_id: str, portals: Sequence[configfs.Portal]) -> base.BackendExport:
        """Return the target as an export."""
        acls, parts = self._acls(), set()
        if self._serves(portals):
            parts.add(_IN_SERVICE)
        if self.tree.read(self.path / "attrib" / "generate_node_acls") == "1":
            parts.add("access of all hosts")
        for acl in acls:
            parts |= self._wrong_parts(acl)
            if user := self.tree.read(acl / "auth" / "userid"):
                parts.add(_account(user))
            if self.tree.leads_to(acl / _LUN_NAME / _LUN_NAME, self._lun):
                parts.add(_lun(acl.name))
        return base.BackendExport(
            volume_id,
            self.mode,
            holders=frozenset(acl.name for acl in acls),
            parts=frozenset(parts),
            sessions=frozenset(acl.name for acl in acls if self._has_session(acl)),
        )

    def _serves(self, portals: Sequence[configfs.Portal]) -> bool:
        expected = _attributes(self.mode)
        return (
            self.tree.read(self.path / "enable") == "1"
            and expected == {key: self.tree.read(self.path / "attrib" / key) for key in expected}
            and self.tree.leads_to(self._lun / self.store.name, self.store)
            and set(self.tree.list(self.path / "np")) == {f"{portal}" for portal in portals}
        )

    def _wrong_parts(self, acl: Path) -> set[str]:
        """Return what an ACL should not have: another LUN, or one in the other mode."""
        mapped = self._mapped(acl)
        wrong = {f"{lun} of {acl.name}" for lun in mapped if lun != _LUN_NAME}
        protected = self.tree.read(acl / _LUN_NAME / "write_protect")
        if _LUN_NAME in mapped and protected != _protection(self.mode):
            wrong.add(f"the other mode for {acl.name}")
        return wrong

    def _has_session(self, acl: Path) -> bool:
        shown = self.tree.read(acl / "info")
        return bool(shown) and not shown.startswith(_NO_SESSION)

    def _acls(self) -> list[Path]:
        return [self.path / "acls" / name for name in self.tree.list(self.path / "acls")]

    def _mapped(self, acl: Path) -> list[str]:
        return [name for name in self.tree.list(acl) if name.startswith("lun_")]


def _initiator(name: object) -> str:
    """Return an iSCSI name in lower case, or "" if it is none, or cannot be a directory."""
    valid = names.is_initiator(name) and "/" not in f"{name}"
    return f"{name}".lower() if valid else ""


def _protection(mode: base.AccessMode) -> str:
    return "1" if mode == "ro" else "0"


def _attributes(mode: base.AccessMode) -> dict[str, str]:
    """Return the attributes of a target, on which the access of hosts depends."""
    return {**_ATTRIBUTES, "prod_mode_write_protect": _protection(mode)}


def _account(user: str) -> str:
    return f"CHAP account {user}"


def _lun(initiator: str) -> str:
    return f"LUN of {initiator}"


def _escape(name: str) -> str:
    """Escape the brackets of an IPv6 address for a glob."""
    return name.replace("[", "[[]")
