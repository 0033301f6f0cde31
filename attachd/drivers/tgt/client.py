# SPDX-License-Identifier: Apache-2.0
"""Client of tgtd, the iSCSI target daemon in user space; for the tgt driver.

Requests for each host go to its control socket, requests for each target through the command
tgtadm; control_socket.py explains why.

Properties of tgtd (tested with 1.0.85):

* tgtadm exits with 0 also when tgtd hangs up in the middle; only its standard error shows it.
* The accounts of a target have places.  Freeing a place before an occupied one loses the last
  account and makes tgtd crash at the next listing, so places are freed from the end only.
* To change the size of a unit, its file has to be closed and opened again, and a command
  that is in progress then fails or writes to a wrong place.  So there must be none.
* A target without accounts accepts hosts without a password.
* A login in progress refers to its target by number only, so numbers are not reused.
* A unit has a second world-wide name, in front of the true one, that begins with the number of
  its target.  With a 3 as the first digit hosts treat it as a local name, and skip it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import secrets

from attachd import exception
from attachd.drivers import base, command
from attachd.drivers.tgt import parser
from attachd.drivers.tgt.control_socket import ANY_TARGET, Code, Control, Mode, Operation, Request
from attachd.linux import commands

LUN = 1

_MAX_SOCKET_PATH = 100
_FIRST_TID, _TIDS = 0x3000_0000, 0x1000_0000
_NEW_TID_TRIES = 5
_AWAY = " to tgt daemon, "
"""What tgtadm says if it cannot connect or send."""


@dataclass(frozen=True)
class Tgtd:
    """One running tgtd.

    :ivar socket: path of its control socket, without the dot and the number at its end
    :ivar port: its control port, that number
    :ivar timeout: seconds for each request
    """

    socket: str
    port: int
    timeout: float

    def check(self) -> None:
        """Check that it answers, and that it accepts secrets."""
        if len(_address(self)) >= _MAX_SOCKET_PATH:
            raise exception.BackendError(
                f"The path {_address(self)} is too long for a socket.", final=True
            )
        self._adm("show", "sys")

    def targets(self, of_volume: str = "") -> list[parser.Target]:
        """List all targets, or those of a volume, by the name of its first one."""
        shown = _shown(self, Mode.TARGET)
        return parser.of_volume(shown, of_volume) if of_volume else [*parser.targets(shown)]

    def named(self, *names: str) -> list[parser.Target]:
        """List the existing targets of some names."""
        return parser.named(_shown(self, Mode.TARGET), names)

    def new_target(self, name: str) -> int:
        """Create a target with a new name, closed to all hosts, and return its number."""
        for _ in range(_NEW_TID_TRIES):
            tid = _FIRST_TID + secrets.randbelow(_TIDS)
            outcome = self._ask("new", "target", "--tid", f"{tid}", "--targetname", name)
            if "already exists" not in outcome.stderr:
                _demand(outcome)
                return tid
        raise exception.BackendError(f"tgtd has a target {name} already, or no number for it.")

    def delete_target(self, tid: int) -> None:
        """Remove a target without sessions, its unit and its list of initiators."""
        self._adm("delete", "target", "--tid", f"{tid}", but="can't find the target")

    def open_target(self, tid: int) -> None:
        """Let a target accept logins and commands, as a new one does."""
        self._adm("update", "target", "--tid", f"{tid}", "--name", "state", "--value", "ready")

    def close_target(self, tid: int) -> None:
        """Answer logins with "try again later", and commands not at all."""
        self._adm("update", "target", "--tid", f"{tid}", "--name", "state", "--value", "offline")

    def new_unit(self, tid: int, path: str) -> None:
        """Create the one logical unit of a target, over a file."""
        self._adm(
            "new", "logicalunit", "--tid", f"{tid}", "--lun", f"{LUN}", "--backing-store", path,
            but="already exists",
        )  # fmt: skip

    def set_unit(self, tid: int, **params: str) -> None:
        """Change the logical unit, by tgtd's names of its parameters."""
        listed = ",".join(f"{key}={value}" for key, value in params.items())
        self._adm(
            "update", "logicalunit", "--tid", f"{tid}", "--lun", f"{LUN}", "--params", listed
        )

    def allow(self, tid: int, initiator: str) -> None:
        """Allow logins of an initiator."""
        name = f"initiator-name={initiator}"
        passed = (Code.ACL_EXISTS,)
        _control(self).ask(Request(Mode.TARGET, Operation.BIND, tid, name, passed))

    def forbid(self, tid: int, initiator: str) -> None:
        """Refuse new logins of an initiator; sessions stay."""
        name = f"initiator-name={initiator}"
        passed = (Code.NO_ACL,)
        _control(self).ask(Request(Mode.TARGET, Operation.UNBIND, tid, name, passed))

    def connections(self, tid: int) -> list[parser.Connection]:
        """List the connections of a target that exists."""
        return parser.connections(_shown(self, Mode.CONNECTION, tid))

    def close(self, tid: int, connection: parser.Connection) -> None:
        """Start to close a connection; it is listed until its last command is done."""
        self._adm(
            "delete", "conn", "--tid", f"{tid}", "--sid", f"{connection.sid}",
            "--cid", f"{connection.cid}", but="can't find the",
        )  # fmt: skip

    def accounts(self) -> list[str]:
        """List the CHAP users of all targets."""
        return parser.accounts(_shown(self, Mode.ACCOUNT))

    def new_account(self, user: str, secret: str) -> None:
        """Create a CHAP user; an existing one keeps its secret."""
        body = f"user={user},password={secret}"
        passed = (Code.USER_EXISTS,)
        _control(self).ask(Request(Mode.ACCOUNT, Operation.NEW, body=body, passed=passed))

    def bind_account(self, tid: int, user: str) -> None:
        """Allow a CHAP user to log in to a target; an unknown user is ignored."""
        _control(self).ask(_binding(tid, user))

    def unbind_account(self, tid: int, user: str, behind: Sequence[str]) -> None:
        """Remove a CHAP user from a target.

        Those behind it are removed as well, from the end, and added again; meanwhile, for some
        milliseconds, their hosts cannot log in; their sessions are not disturbed.

        :param behind: all that have later places, in their order
        """
        # One after the other, as tgtd may take what comes together in another order.
        out = [
            [Request(Mode.ACCOUNT, Operation.UNBIND, tid, f"user={account}", (Code.NO_USER,))]
            for account in [*reversed(behind), user]
        ]
        _control(self).request_together(*out, [_binding(tid, account) for account in behind])

    def delete_account(self, user: str) -> None:
        """Delete a CHAP user, which must not be bound to a target that stays."""
        body, passed = f"user={user}", (Code.NO_USER,)
        _control(self).ask(Request(Mode.ACCOUNT, Operation.DELETE, body=body, passed=passed))

    def _adm(self, operation: str, mode: str, *arguments: str, but: str = "") -> str:
        """Execute a request; an error that contains ``but`` means that it was done before."""
        outcome = self._ask(operation, mode, *arguments)
        if but and but in outcome.stderr:
            return ""
        return _demand(outcome)

    def _ask(self, operation: str, mode: str, *arguments: str) -> commands.CommandResult:
        """Run tgtadm once; without the right to change the backend only reads are allowed."""
        line = ["tgtadm", "--control-port", f"{self.port}", "--lld", "iscsi"]
        line += ["--op", operation, "--mode", mode, *arguments]
        if operation != "show":
            base.check_still_owner()
        return command.run(line, self.timeout, {"TGT_IPC_SOCKET": self.socket})


def _address(tgtd: Tgtd) -> str:
    return f"{tgtd.socket}.{tgtd.port}"


def _control(tgtd: Tgtd) -> Control:
    return Control(_address(tgtd), tgtd.timeout)


def _shown(tgtd: Tgtd, mode: Mode, tid: int = ANY_TARGET) -> str:
    return _control(tgtd).ask(Request(mode, Operation.SHOW, tid))


def _binding(tid: int, user: str) -> Request:
    passed = (Code.USER_EXISTS, Code.NO_USER)
    return Request(Mode.ACCOUNT, Operation.BIND, tid, f"user={user}", passed)


def _demand(outcome: commands.CommandResult) -> str:
    if outcome.exit_code or outcome.stderr:
        away = _AWAY in outcome.stderr
        kind = exception.BackendUnreachable if away else exception.BackendError
        raise kind(f"tgtd: {outcome.stderr or 'unknown error'}.")
    return outcome.stdout
