# SPDX-License-Identifier: Apache-2.0
"""iSCSI targets of LIO, the kernel's SCSI target; for the lvm driver.

A volume has a target for its writers, and another one ending in "-ro" for its readers, each with
its own backstore: a host logs in to each with another account.  A host has an ACL at the target,
in it its CHAP account and its LUN, which is write-protected at the second target.  Without an
account in the ACL the kernel accepts no login, so that the account comes last.  An export with a
connection of its own has a target of its own over the backstore of writers, with one ACL, whose
LUN changes its protection under the session.

Properties of LIO (tested with Linux 6.1):

* Initiators log in by their names in lower case.
* A new LUN of an ACL is write-protected if the target's attribute prod_mode_write_protect is set.
* Removing the LUN of an ACL waits for its commands, and fails later ones; removing the ACL ends
  the session.
* All targets with the same portal share its socket, which is closed with the last of them.

Source: Linux, Documentation/target, drivers/target/target_core_fabric_configfs.c.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
import dataclasses
from dataclasses import dataclass
from pathlib import Path
import re
from typing import Final

from attachd import exception
from attachd.drivers import abilities, base, iscsi
from attachd.drivers.lvm import backstores, configfs
from attachd.drivers.lvm.backstores import Backstore
from attachd.drivers.lvm.target import Target
from attachd.linux import block_device

_MODULES: Final = "target_core_mod, target_core_iblock, target_core_file, iscsi_target_mod"
_LUN: Final = 0
_LUN_NAME: Final = f"lun_{_LUN}"
_NO_SESSION: Final = "No active iSCSI Session"
_IN_SERVICE: Final = "the LUN in service"
_RESERVATION = re.compile(r"(?P<kind>SPC-[23] Reservation): .*Initiator: (?P<initiator>[^\s,]+)")
_TYPE: Final = "SPC-3 Reservation Type: "
_ENDPOINT = re.compile(r"Target Node Endpoint: (\S+)")

_SETTINGS: Final = {
    "attrib/authentication": "1",
    "attrib/generate_node_acls": "0",
    "attrib/demo_mode_discovery": "0",
}
_IMMEDIATE_DATA: Final = "param/ImmediateData"


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

    def _backstores(self, kind: backstores.Kind) -> Path:
        return backstores.directory(self.tree.root, self.backend, kind)

    def _store(self, volume_id: str, kind: backstores.Kind) -> Backstore:
        return Backstore(self.tree, kind, self._backstores(kind) / volume_id)

    def setup(self) -> None:
        """Check modules, rights and portals."""
        configfs.require(self.tree.root / "target", _MODULES)
        configfs.make_required(self.tree.make, self._fabric, _MODULES)
        for kind in backstores.KINDS:
            configfs.make_required(self.tree.make, self._backstores(kind), _MODULES)
        for portal in self.portals:
            if not any(self._fabric.glob(f"*/*/np/{_escape(f'{portal}')}")):
                configfs.check_portal(portal)

    def check_connector(self, connector: base.Connector) -> None:
        """Refuse a host without an iSCSI name."""
        if not _initiator(name := connector.get("initiator")):
            raise iscsi.invalid_initiator(name)

    def host(self, export: base.Export) -> str:
        """Return the iSCSI name in lower case."""
        return _initiator(export.connector.get("initiator"))

    def connection_key(self, volume: base.VolumeRef, export: base.Export) -> str:
        """Return the name of the session: an initiator has one with a target."""
        if export.own_connection:
            return ""
        return f"{self.host(export)} {self._name(volume.id, export.mode)}"

    def grant(
        self, volume: base.VolumeRef, export: base.Export, device: Path
    ) -> base.ConnectionInfo:
        """Make what is missing, the account last.

        :returns: "iscsi", for os-brick's ISCSIConnector
        """
        initiator = self.host(export)
        iscsi.check_credentials(export, initiator)
        group = self._group(volume.id, export.mode, iscsi.own_id(export))
        name = group.path.parent.name
        user = iscsi.account(name, initiator)
        discards = block_device.can_discard(f"{device}")
        group.store.show(device, discards=discards)
        self.tree.make(self._fabric)
        group.show(self.portals)
        group.allow(initiator, user, export.secret)
        portals = [f"{portal}" for portal in self.portals]
        return iscsi.connection_info(volume, export, name, user, _LUN, portals, discards=discards)

    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        """Remove the initiator's ACLs, each target without another export, and its backstore."""
        if export.own_connection:
            self._group(volume.id, export.mode, iscsi.own_id(export)).remove()
            self._remove_unused_stores(volume.id)
            return
        for mode in iscsi.SUFFIXES:
            staying = _hosts(others, mode)
            group, initiator = self._group(volume.id, mode), self.host(export)
            if not staying:
                group.remove()
            elif initiator and initiator not in staying:
                group.forbid(initiator)
        self._remove_unused_stores(volume.id)

    def revoke_all_except(self, volume: base.VolumeRef, staying: Sequence[base.Export]) -> None:
        """Remove all other ACLs, and set attributes that let other hosts in."""
        for mode in iscsi.SUFFIXES:
            group = self._group(volume.id, mode)
            if not (initiators := _hosts(staying, mode)):
                group.remove()
            elif group.exists():
                group.forbid_all_except(initiators)
        kept = {iscsi.own_id(export): export for export in staying}
        for group in self._groups(volume.id):
            own = kept.get(group.attachment_id) if group.attachment_id else None
            if own is not None and (initiator := self.host(own)):
                dataclasses.replace(group, mode=own.mode).forbid_all_except({initiator})
            elif group.attachment_id:
                group.remove()
        self._remove_unused_stores(volume.id)

    def _remove_unused_stores(self, volume_id: str) -> None:
        used = {group.store.path for group in self._groups(volume_id)}
        for kind in backstores.KINDS:
            if (path := self._store(volume_id, kind).path) not in used:
                self.tree.remove(path)

    def notify_size(self, volume: base.VolumeRef) -> None:
        """Do nothing: LIO reads the device's size at each command, and hosts rescan."""

    def get_persistent_reservation(
        self, volume: base.VolumeRef
    ) -> abilities.PersistentReservation | None:
        """Return what the kernel shows of a SCSI reservation, which only writers can have.

        Source: Linux, drivers/target/target_core_configfs.c, target_pr_res_holder_show and
        target_pr_res_pr_holder_tg_port_show.
        """
        shown = self._store(volume.id, backstores.WRITERS).path / "pr"
        if not (match := _RESERVATION.match(self.tree.read(shown / "res_holder"))):
            return None
        kind = self.tree.read(shown / "res_pr_type")
        is_persistent = kind.startswith(_TYPE)
        return abilities.PersistentReservation(
            holder=_name_holder(
                match["initiator"].lower(),
                self._groups(volume.id),
                _ENDPOINT.search(self.tree.read(shown / "res_pr_holder_tg_port")),
            ),
            type=kind.removeprefix(_TYPE) if is_persistent else match["kind"],
        )

    def list_volume_ids(self) -> Collection[str]:
        """List the volumes with a backstore or a target."""
        prefix = self._name("", "rw")
        targets = [name for name in self.tree.list(self._fabric) if name.startswith(prefix)]
        ids = {iscsi.parse_target(name.removeprefix(prefix))[0] for name in targets}
        return ids.union(*(self.tree.list(self._backstores(kind)) for kind in backstores.KINDS))

    def list_exports(self, volume_id: str, device: Path) -> Iterator[base.BackendExport]:
        """List targets, and backstores."""
        parts = [self._store(volume_id, kind).parts(device) for kind in backstores.KINDS]
        if any(parts):
            yield base.BackendExport(volume_id, None, parts=frozenset().union(*parts))
        groups = self._groups(volume_id)
        yield from base.merge_exports(group.listed(volume_id, self.portals) for group in groups)

    def expected_exports(
        self, volume: base.VolumeRef, exports: Sequence[base.Export]
    ) -> Iterable[base.BackendExport]:
        """Return a target for each mode, and backstores; hosts need names."""
        found, stores = [], set()
        for mode in iscsi.SUFFIXES:
            name = self._name(volume.id, mode)
            if holders := _hosts(exports, mode):
                accounts = [_account(iscsi.account(name, holder)) for holder in holders]
                parts = frozenset([_IN_SERVICE, *accounts, *map(_lun, holders)])
                found.append(base.BackendExport(volume.id, mode, frozenset(holders), parts))
                stores.add(self._group(volume.id, mode).store.kind.part)
        for export in exports:
            if export.own_connection and self.host(export):
                found.append(self._expected_alone(volume, export))
                stores.add(backstores.WRITERS.part)
        if stores:
            found.append(base.BackendExport(volume.id, None, parts=frozenset(stores)))
        return base.merge_exports(found)

    def _expected_alone(self, volume: base.VolumeRef, export: base.Export) -> base.BackendExport:
        name, host = (
            self._group(volume.id, export.mode, iscsi.own_id(export)).path.parent.name,
            self.host(export),
        )
        parts = [
            iscsi.own_part(export.attachment_id),
            _account(iscsi.account(name, host)),
            _lun(host),
        ]
        holders = iscsi.holders([host], export.attachment_id)
        return base.BackendExport(volume.id, export.mode, holders, frozenset(parts))

    def _name(self, volume_id: str, mode: base.AccessMode) -> str:
        suffix = iscsi.SUFFIXES[mode]
        return f"{iscsi.PREFIX}{self.backend}:{volume_id}{suffix}"

    def _group(
        self, volume_id: str, mode: base.AccessMode, attachment_id: str = ""
    ) -> "PortalGroup":
        """Return the target of a mode, or that of one export."""
        name = self._name(volume_id, mode)
        if attachment_id:
            name = iscsi.own_target(self._name("", "rw"), volume_id, attachment_id)
        path = self._fabric / name / "tpgt_1"
        kind = backstores.READERS if mode == "ro" and not attachment_id else backstores.WRITERS
        store = self._store(volume_id, kind)
        return PortalGroup(self.tree, path, mode, store, attachment_id, self.immediate_data)

    def _groups(self, volume_id: str) -> list["PortalGroup"]:
        """Return the existing targets of a volume, those of single exports last."""
        groups = [self._group(volume_id, mode) for mode in iscsi.SUFFIXES]
        prefix = self._name("", "rw")
        for name in self.tree.list(self._fabric):
            found, mode, attachment_id = iscsi.parse_target(name.removeprefix(prefix))
            if name.startswith(prefix) and found == volume_id and attachment_id:
                groups.append(self._group(volume_id, mode, attachment_id))
        return [group for group in groups if group.exists()]


@dataclass(frozen=True)
class PortalGroup:
    """The portal group of a target, which is all of it.

    :ivar path: its directory
    :ivar mode: of its hosts
    :ivar store: the backstore of its LUN
    :ivar attachment_id: of the export whose own target it is; "": exports share it
    :ivar immediate_data: whether hosts may send data in the message of a command
    """

    tree: configfs.Tree
    path: Path
    mode: base.AccessMode
    store: Backstore
    attachment_id: str = ""
    immediate_data: bool = False

    @property
    def _settings(self) -> dict[str, str]:
        """Return the settings of the target on which hosts' access, or the node, depends.

        A LUN whose protection changes is protected until it is told otherwise.  Immediate data
        for a command that reads stops a worker of the kernel (seen with Linux 6.1).
        """
        return {
            **_SETTINGS,
            "attrib/prod_mode_write_protect": (
                "1" if self.attachment_id else _protection(self.mode)
            ),
            _IMMEDIATE_DATA: "Yes" if self.immediate_data else "No",
        }

    def _set(self) -> None:
        for name, value in self._settings.items():
            self.tree.write(self.path / name, value)

    def exists(self) -> bool:
        """Return whether anything of the target is there."""
        return self.path.parent.is_dir()

    def has_acl(self, initiator: str) -> bool:
        """Return whether an initiator has an ACL."""
        return (self.path / "acls" / initiator).is_dir()

    @property
    def _lun(self) -> Path:
        return self.path / "lun" / _LUN_NAME

    def show(self, portals: Sequence[configfs.Portal]) -> None:
        """Make the target, closed to all hosts."""
        self.tree.make(self.path.parent)
        self.tree.make(self.path)
        self._set()
        self.tree.make(self._lun)
        self.tree.link(self._lun / self.store.path.name, self.store.path)
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
        """Remove other ACLs, and undo settings that let other hosts in."""
        self._set()
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
        """Return the target as an export; that of one export in the mode that its LUN has."""
        acls = self._acls()
        mode = self._present_mode() if self.attachment_id else self.mode
        part = iscsi.own_part(self.attachment_id) if self.attachment_id else _IN_SERVICE
        parts = {*iscsi.shown_part(part, self.attachment_id, serves=self._serves(portals))}
        if self.tree.read(self.path / "attrib" / "generate_node_acls") == "1":
            parts.add("access of all hosts")
        for acl in acls:
            parts |= self._wrong_parts(acl, mode)
            if user := self.tree.read(acl / "auth" / "userid"):
                parts.add(_account(user))
            if self.tree.leads_to(acl / _LUN_NAME / _LUN_NAME, self._lun):
                parts.add(_lun(acl.name))
        sessions = [acl.name for acl in acls if self._has_session(acl)]
        return base.BackendExport(
            volume_id,
            mode,
            holders=iscsi.holders([acl.name for acl in acls], self.attachment_id),
            parts=frozenset(parts),
            sessions=iscsi.holders(sessions, self.attachment_id),
        )

    def _present_mode(self) -> base.AccessMode:
        luns = [acl / _LUN_NAME for acl in self._acls()]
        writable = [lun for lun in luns if self.tree.read(lun / "write_protect") == "0"]
        return "rw" if writable else "ro"

    def _serves(self, portals: Sequence[configfs.Portal]) -> bool:
        expected = self._settings
        return (
            self.tree.read(self.path / "enable") == "1"
            and expected == {key: self.tree.read(self.path / key) for key in expected}
            and self.tree.leads_to(self._lun / self.store.path.name, self.store.path)
            and set(self.tree.list(self.path / "np")) == {f"{portal}" for portal in portals}
        )

    def _wrong_parts(self, acl: Path, mode: base.AccessMode) -> set[str]:
        """Return what an ACL should not have: another LUN, or one in the other mode."""
        mapped = self._mapped(acl)
        wrong = {f"{lun} of {acl.name}" for lun in mapped if lun != _LUN_NAME}
        protected = self.tree.read(acl / _LUN_NAME / "write_protect")
        if _LUN_NAME in mapped and protected != _protection(mode):
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
    valid = iscsi.is_initiator(name) and "/" not in f"{name}"
    return f"{name}".lower() if valid else ""


def _hosts(exports: Sequence[base.Export], mode: base.AccessMode) -> set[str]:
    """Return the hosts that share the target of a mode."""
    found = {_initiator(item.connector.get("initiator")) for item in iscsi.sharing(exports, mode)}
    return found - {""}


def _protection(mode: base.AccessMode) -> str:
    return "1" if mode == "ro" else "0"


def _account(user: str) -> str:
    return f"CHAP account {user}"


def _lun(initiator: str) -> str:
    return f"LUN of {initiator}"


def _escape(name: str) -> str:
    """Escape the brackets of an IPv6 address for a glob."""
    return name.replace("[", "[[]")


def _name_holder(
    initiator: str, groups: Iterable["PortalGroup"], endpoint: re.Match[str] | None
) -> str:
    """Return the initiator of a reservation as list_exports() names it.

    :param groups: of the volume
    :param endpoint: its target; None: the kernel does not show it, as of SPC-2
    """
    found = {
        name
        for group in groups
        if group.has_acl(initiator) and (endpoint is None or group.path.parent.name == endpoint[1])
        for name in iscsi.holders([initiator], group.attachment_id)
    }
    return found.pop() if len(found) == 1 else initiator
