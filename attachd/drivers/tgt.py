# SPDX-License-Identifier: Apache-2.0
"""Volumes over iSCSI from sparse files of this machine, by tgtd, the target in user space.

A volume has a target, made for its first export and removed with its last, and a second one
ending in "-ro" for read-only exports; both show the same file under the same world-wide name.
A host gets in with its initiator's name and a CHAP secret, one for each volume and mode: it logs
in once, however many of its servers use the volume.

tgtd remembers nothing: after a restart it is empty, and the manager, told so by :meth:`epoch`,
grants everything anew.
"""

from collections.abc import Iterable, Sequence
import hashlib
from pathlib import Path
import re
import secrets
import time
from typing import Any
import uuid

from oslo_config import cfg

from attachd import exception
from attachd.drivers import base, sparse, tgtadm, tgtshow

_IQN_PREFIX = re.compile(r"iqn\.\d{4}-\d{2}\.[a-z0-9][a-z0-9.-]*:[a-z0-9.:-]*")
_INITIATOR = re.compile(r"(iqn|eui|naa)\.[\x21-\x7e]{1,219}")
_SUFFIXES: dict[base.AccessMode, str] = {"rw": "", "ro": "-ro"}
# RFC 7143 asks for 96 bits at least, or 12 octets.
_MIN_SECRET = 12
_NAP = 0.02
_ACCOUNTS = uuid.UUID("2d0c5e0c-6d9b-4f0e-8a53-0f8e6a3c1b74")


class TgtDriver(base.Driver):
    """iSCSI targets of one tgtd, which must run as the same user and group as the manager.

    Besides the accounts of hosts tgtd has one of ours, the guard, with a secret that
    nobody knows.  It is the first account of each target, so that none is ever open to a host
    without CHAP, and its name is new in each life of tgtd: it is the epoch.
    """

    # Each volume has a target of its own, and sessions of its own.
    SHARED_TARGETS = False

    OPTIONS = (
        cfg.StrOpt(
            "tgt_volumes_dir",
            default="$state_path/tgt",
            help="The folder for the volumes' files; each backend needs one of its own.",
        ),
        cfg.StrOpt(
            "tgt_portal",
            default="127.0.0.1:3260",
            help="ADDRESS:PORT where hosts reach tgtd; IPv6 addresses in brackets.",
        ),
        cfg.StrOpt(
            "tgt_iqn_prefix",
            default="iqn.2026-01.internal.attachd:volume-",
            help="What the names of targets begin with; the id of the volume follows.",
        ),
        cfg.StrOpt(
            "tgt_control_socket",
            default="/var/run/tgtd/socket",
            help="The control socket of tgtd without its number, as in TGT_IPC_SOCKET.",
        ),
        cfg.IntOpt(
            "tgt_control_port",
            default=0,
            min=0,
            help="The number of the control socket, as in tgtd --control-port.",
        ),
        cfg.FloatOpt(
            "tgt_timeout",
            default=10.0,
            min=0.1,
            help="Seconds that tgtd has for one request, and for ending a host's sessions.",
        ),
    )

    def __init__(self, name: str, conf: cfg.ConfigOpts) -> None:
        super().__init__(name, conf)
        options = self.options
        self._volumes = sparse.SparseFiles(Path(options.tgt_volumes_dir).absolute())
        self._tgtd = tgtadm.Tgtd(
            options.tgt_control_socket, options.tgt_control_port, options.tgt_timeout
        )
        self._guard_prefix = f"attachd-guard.{re.sub('[^0-9A-Za-z_-]', '_', name)}."

    def setup(self) -> None:
        """Make the folder, and see that tgtd answers and takes secrets."""
        _check_options(self.options)
        self._volumes.prepare()
        self._tgtd.check()
        self._guard()

    def report(self) -> base.Report:
        """Measure the folder's file system."""
        return self._volumes.report("iSCSI", read_only_enforced=True)

    def create(self, volume: base.VolumeRef) -> dict[str, Any]:
        """Make the volume's file; tgtd hears of it with the first export."""
        self._volumes.create(volume)
        return {}

    def clone(self, volume: base.VolumeRef, source: base.VolumeRef) -> dict[str, Any]:
        """Copy the source's file, as it is at one moment."""
        self._volumes.clone(volume, source.id)
        return {}

    def delete(self, volume: base.VolumeRef) -> None:
        """Remove the volume's file; refused while a target shows it."""
        for target in self._targets(volume):
            raise exception.BackendError(
                f"Volume {volume.id} is still exported as {target.name}.", final=True
            )
        self._volumes.delete(volume.id)

    def extend(
        self, volume: base.VolumeRef, size_gib: int, exports: Sequence[base.Export]  # noqa: ARG002
    ) -> None:  # fmt: skip
        """Lengthen the file and let its targets, which know the exports, open it again."""
        self._volumes.extend(volume.id, size_gib)
        for target in self._targets(volume):
            self._renew(target, self._volumes.existing(volume.id), size_gib)

    def grant(self, volume: base.VolumeRef, export: base.Export) -> base.ConnectionInfo:
        """Let an initiator log in to the volume's target with the secret of its session.

        :returns: "iscsi", for os-brick's ISCSIConnector
        """
        initiator = _initiator(export)
        if not initiator or len(export.secret) < _MIN_SECRET:
            lacking = "secret" if initiator else "'initiator' in its connector, an iSCSI name"
            raise exception.BackendError(
                f"Attachment {export.attachment_id} has no {lacking}.", final=True
            )
        path = self._volumes.existing(volume.id)
        name = _target_name(self.options, volume, export.mode)
        target = next(iter(self._tgtd.named(name)), None)
        tid = target.tid if target else self._tgtd.new_target(name)
        self._show_unit(tid, target, path, export.mode)
        self._tgtd.bind_account(tid, self._guard())
        user = _account(name, initiator)
        self._tgtd.new_account(user, export.secret)
        self._tgtd.bind_account(tid, user)
        # Last: until here nobody can log in.
        self._tgtd.allow(tid, initiator)
        return _connection_info(volume, export, self.options.tgt_portal, name)

    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        """Refuse the initiator, end its sessions and remove its account.

        What it shares with ``others`` from the same initiator stays until the last of them.
        A target of the other mode that has an account of the initiator is left as well:
        whatever the mode says by now, no access remains.
        """
        initiator = _initiator(export)
        found = {target.name: target for target in self._targets(volume)}
        for mode in _SUFFIXES:
            name = _target_name(self.options, volume, mode)
            user, target = _account(name, initiator), found.get(name)
            staying = {_initiator(other) for other in others if other.mode == mode}
            if target and (mode == export.mode or user in target.accounts):
                if staying:
                    self._withdraw(target, initiator, staying)
                else:
                    self._remove(target)
            if initiator not in staying:
                self._tgtd.delete_account(user)

    def connection_key(self, volume: base.VolumeRef, export: base.Export) -> str:
        """Name the session: one initiator has one with a target, whatever it is used for."""
        return f"{_initiator(export)} {_target_name(self.options, volume, export.mode)}"

    def epoch(self) -> str:
        """Name the life of tgtd."""
        return self._guard().removeprefix(self._guard_prefix)

    def exports(self) -> Iterable[tuple[str, str]]:
        """List initiators by volume; targets of other backends have other guards."""
        prefix = self.options.tgt_iqn_prefix
        return [
            (target.name.removeprefix(prefix).removesuffix(_SUFFIXES["ro"]), initiator)
            for target in self._tgtd.targets()
            if any(user.startswith(self._guard_prefix) for user in target.accounts)
            for initiator in target.initiators
        ]

    def _targets(self, volume: base.VolumeRef) -> list[tgtshow.Target]:
        return self._tgtd.named(*(_target_name(self.options, volume, mode) for mode in _SUFFIXES))

    def _guard(self) -> str:
        """Return the name of the guard, made if tgtd has none.

        Two processes that do so at the same moment leave two; the smaller name counts.
        """
        users = self._tgtd.accounts()
        if not any(user.startswith(self._guard_prefix) for user in users):
            self._tgtd.new_account(
                f"{self._guard_prefix}{uuid.uuid4().hex}", secrets.token_hex(16)
            )
            users = self._tgtd.accounts()
        guards = [user for user in users if user.startswith(self._guard_prefix)]
        if not guards:
            raise exception.BackendError(
                "tgtd took an account and does not have it: its control socket speaks another "
                "dialect than that of tgt 1.0.85."
            )
        return min(guards)

    def _show_unit(
        self, tid: int, target: tgtshow.Target | None, path: Path, mode: base.AccessMode
    ) -> None:
        """Give the target its unit as it has to be, whatever an interrupted call left."""
        scsi_id, read_only = _scsi_id(path.name), mode == "ro"
        unit = target.luns.get(tgtadm.LUN) if target else None
        if unit is None:
            self._tgtd.new_unit(tid, f"{path}")
        elif target and not (target.ready and unit.online):
            self._reopen(tid, path)
        if unit is None or unit.scsi_id != scsi_id or unit.read_only != read_only:
            self._tgtd.set_unit(
                tid, scsi_id=scsi_id, scsi_sn=path.name[:36], readonly=f"{read_only:d}"
            )

    def _renew(self, target: tgtshow.Target, path: Path, size_gib: int) -> None:
        """Let the unit have the file's new size, unless it has."""
        unit = target.luns.get(tgtadm.LUN)
        if unit is None:
            return
        # tgtd shows sizes rounded to 10**6 bytes; a step is a GiB at least.
        short = (unit.size_mb + 1) * 10**6 < size_gib * sparse.GIB
        if short or not (target.ready and unit.online):
            self._reopen(target.tid, path)

    def _reopen(self, tid: int, path: Path) -> None:
        """Let tgtd open the unit's file again while no command is under way.

        Hosts that are logged in lose their connection and log in again by themselves, as after
        a failure of the network: within two seconds with open-iscsi, and without an error.
        """
        self._tgtd.shut_target(tid)
        try:
            self._end_sessions(tid, set())
            self._tgtd.set_unit(tid, online="0")
            self._tgtd.set_unit(tid, path=f"{path}")
            self._tgtd.set_unit(tid, online="1")
        finally:
            self._tgtd.open_target(tid)

    def _withdraw(self, target: tgtshow.Target, initiator: str, staying: set[str]) -> None:
        """Take one initiator from a target that others go on using, unless it is one of them."""
        user = _account(target.name, initiator)
        if initiator and initiator not in staying:
            self._tgtd.forbid(target.tid, initiator)
            self._end_sessions(target.tid, staying | set(target.initiators) - {initiator})
            if user in target.accounts:
                behind = target.accounts[target.accounts.index(user) + 1 :]
                self._tgtd.unbind_account(target.tid, user, behind)
        for other in staying:
            # An earlier call may have been interrupted while an account was not bound.
            if _account(target.name, other) not in target.accounts:
                self._tgtd.bind_account(target.tid, _account(target.name, other))

    def _remove(self, target: tgtshow.Target) -> None:
        """Remove a target that nobody has a right to any more."""
        for initiator in target.initiators:
            self._tgtd.forbid(target.tid, initiator)
        self._end_sessions(target.tid, set())
        self._tgtd.delete_target(target.tid)

    def _end_sessions(self, tid: int, allowed: set[str]) -> None:
        """End the sessions of all others than ``allowed``, and wait for their last command."""
        deadline = time.monotonic() + self.options.tgt_timeout
        while left := [c for c in self._tgtd.connections(tid) if c.initiator not in allowed]:
            if time.monotonic() > deadline:
                raise exception.BackendError(
                    f"The session of {left[0].initiator} does not end: a command still runs."
                )
            for connection in left:
                self._tgtd.close(tid, connection)
            time.sleep(_NAP)


def _connection_info(
    volume: base.VolumeRef, export: base.Export, portal: str, name: str
) -> base.ConnectionInfo:
    data = {
        "target_discovered": False,
        "target_portal": portal,
        "target_iqn": name,
        "target_lun": tgtadm.LUN,
        "volume_id": volume.id,
        "auth_method": "CHAP",
        "auth_username": _account(name, _initiator(export)),
        "auth_password": export.secret,
        "access_mode": export.mode,
        "discard": False,
    }
    return {"driver_volume_type": "iscsi", "data": data}


def _check_options(options: cfg.ConfigOpts.GroupAttr) -> None:
    if not _IQN_PREFIX.fullmatch(options.tgt_iqn_prefix):
        raise exception.BackendError(
            "tgt_iqn_prefix must be 'iqn.YYYY-MM.' and a reversed domain, a colon and small "
            "letters, digits, dots, dashes, colons.",
            final=True,
        )
    if "," in options.tgt_volumes_dir:
        raise exception.BackendError(
            "tgt_volumes_dir must not contain a comma, which tgtadm takes for a separator.",
            final=True,
        )


def _target_name(
    options: cfg.ConfigOpts.GroupAttr, volume: base.VolumeRef, mode: base.AccessMode
) -> str:
    return f"{options.tgt_iqn_prefix}{volume.id}{_SUFFIXES[mode]}"


def _account(target_name: str, initiator: str) -> str:
    """Name the CHAP user of an initiator at a target: it logs in once, whatever for."""
    return str(uuid.uuid5(_ACCOUNTS, f"{target_name} {initiator}"))


def _initiator(export: base.Export) -> str:
    """Return the iSCSI name in the connector, or "" if there is none that is one."""
    name = export.connector.get("initiator")
    return name if isinstance(name, str) and _INITIATOR.fullmatch(name) else ""


def _scsi_id(volume_id: str) -> str:
    """Return 32 hexadecimal digits; tgtd makes a world-wide name of the last 31 ("naa.6...").

    They are the volume's own for good: a host recognizes it by them, whichever way it comes.
    """
    try:
        return uuid.UUID(volume_id).hex
    except ValueError:
        return hashlib.sha256(volume_id.encode()).hexdigest()[:32]
