# SPDX-License-Identifier: Apache-2.0
"""Changes of a target: its unit, its sessions and its accounts; for the tgt driver."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
import secrets
import time
import uuid

from attachd import exception
from attachd.drivers import base, iscsi, sparse
from attachd.drivers.tgt import client, parser

_POLL_INTERVAL = 0.02


@dataclass(frozen=True)
class TargetManager:
    """Changes targets of one tgtd, in an order that never grants access to a wrong host.

    :ivar sentinels: prefix of the names of this backend's sentinels
    :ivar discards: whether units free the blocks that hosts discard
    """

    tgtd: client.Tgtd
    sentinels: str
    discards: bool = False

    def sentinel_of(self, users: Iterable[str]) -> str:
        """Return the sentinel: if two processes have each made one, the smaller name counts."""
        return min(user for user in users if user.startswith(self.sentinels))

    def ensure_sentinel(self) -> list[str]:
        """List the CHAP users, after creating the sentinel if there was none."""
        users = self.tgtd.accounts()
        if not any(user.startswith(self.sentinels) for user in users):
            self.tgtd.new_account(f"{self.sentinels}{uuid.uuid4().hex}", secrets.token_hex(16))
            users = self.tgtd.accounts()
        if not any(user.startswith(self.sentinels) for user in users):
            raise exception.BackendError(
                "tgtd took an account and does not have it: its control socket speaks another "
                "dialect than that of tgt 1.0.85."
            )
        return users

    def show_unit(
        self, tid: int, target: parser.Target | None, path: Path, mode: base.AccessMode
    ) -> None:
        """Give the target its unit, also after an interrupted call."""
        scsi_id, read_only = iscsi.scsi_id(path.name), mode == "ro"
        unit = target.luns.get(client.LUN) if target else None
        if unit is None:
            self.tgtd.new_unit(tid, f"{path}")
        elif target and not (target.ready and unit.online and unit.path == f"{path}"):
            self._reopen(tid, path)
        shown = unit and (unit.scsi_id, unit.read_only, unit.discards)
        if shown != (scsi_id, read_only, self.discards):
            self.tgtd.set_unit(
                tid,
                scsi_id=scsi_id,
                scsi_sn=path.name[:36],
                readonly=f"{read_only:d}",
                thin_provisioning=f"{self.discards:d}",
            )

    def set_mode(self, target: parser.Target, mode: base.AccessMode) -> None:
        """Let the unit of a target refuse or accept writes, under the sessions that there are."""
        unit = target.luns.get(client.LUN)
        if unit is not None and unit.read_only != (mode == "ro"):
            self.tgtd.set_unit(target.tid, readonly=f"{mode == 'ro':d}")

    def renew(self, target: parser.Target, path: Path, size_gib: int) -> None:
        """Let the unit have the file's new size, unless it has."""
        unit = target.luns.get(client.LUN)
        if unit is None:
            return
        # tgtd shows sizes rounded to 10**6 bytes; a step is a GiB at least.
        short = (unit.size_mb + 1) * 10**6 < size_gib * sparse.GIB
        if short or not (target.ready and unit.online):
            self._reopen(target.tid, path)

    def _reopen(self, tid: int, path: Path) -> None:
        """Let tgtd open the unit's file again while no command is in progress.

        Hosts that are logged in lose their connection and log in again by themselves, as after a
        network failure: within two seconds with open-iscsi, and without an error.
        """
        self.tgtd.close_target(tid)
        try:
            self._end_sessions(tid, set())
            self.tgtd.set_unit(tid, online="0")
            self.tgtd.set_unit(tid, path=f"{path}")
            self.tgtd.set_unit(tid, online="1")
        finally:
            self.tgtd.open_target(tid)

    def withdraw(self, target: parser.Target, initiator: str, staying: set[str]) -> None:
        """Remove one initiator from a target that others still use, unless it is one of them."""
        user = iscsi.account(target.name, initiator)
        if initiator and initiator not in staying:
            self.tgtd.forbid(target.tid, initiator)
            self._end_sessions(target.tid, staying | set(target.initiators) - {initiator})
            if user in target.accounts:
                behind = target.accounts[target.accounts.index(user) + 1 :]
                self.tgtd.unbind_account(target.tid, user, behind)
        for other in staying:
            # An earlier call may have been interrupted while an account was not bound.
            if iscsi.account(target.name, other) not in target.accounts:
                self.tgtd.bind_account(target.tid, iscsi.account(target.name, other))

    def remove(self, target: parser.Target) -> None:
        """Remove a target that no host may use any more."""
        for initiator in target.initiators:
            self.tgtd.forbid(target.tid, initiator)
        self._end_sessions(target.tid, set())
        self.tgtd.delete_target(target.tid)

    def remove_own(self, name: str, initiator: str) -> None:
        """Remove the target of one export, if it is there, and its account."""
        for target in self.tgtd.named(name):
            self.remove(target)
        self.tgtd.delete_account(iscsi.account(name, initiator))

    def _end_sessions(self, tid: int, allowed: set[str]) -> None:
        """End the sessions of all others than ``allowed``, and wait for their last command."""
        deadline = time.monotonic() + self.tgtd.timeout
        while remaining := [c for c in self.tgtd.connections(tid) if c.initiator not in allowed]:
            if time.monotonic() > deadline:
                raise exception.BackendError(
                    f"The session of {remaining[0].initiator} does not end: a command still runs."
                )
            for connection in remaining:
                self.tgtd.close(tid, connection)
            time.sleep(_POLL_INTERVAL)

    def revoke_all_except(
        self, target: parser.Target, initiators: set[str], users: set[str]
    ) -> None:
        """Remove all from a target except some initiators and their accounts."""
        for initiator in set(target.initiators) - initiators:
            self.tgtd.forbid(target.tid, initiator)
        self._end_sessions(target.tid, initiators)
        current: parser.Target | None = target
        while current and (extra := self._extra_accounts(current, users)):
            behind = current.accounts[current.accounts.index(extra[0]) + 1 :]
            self.tgtd.unbind_account(target.tid, extra[0], behind)
            # What was behind it may be in another order now.
            current = next(iter(self.tgtd.named(target.name)), None)
        for user in users - set(current.accounts if current else ()):
            self.tgtd.bind_account(target.tid, user)

    def _extra_accounts(self, target: parser.Target, users: set[str]) -> list[str]:
        sentinel = self.sentinels
        return [
            account
            for account in target.accounts
            if account not in users and not account.startswith(sentinel)
        ]
