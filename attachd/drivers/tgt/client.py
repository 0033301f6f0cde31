# SPDX-License-Identifier: Apache-2.0
"""Client of tgtd, the iSCSI target daemon in user space; for the tgt driver.

Properties of tgtd (tested with 1.0.85):

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
from typing import Any

from attachd import exception
from attachd.drivers.tgt import parser
from attachd.drivers.tgt.control_socket import (
    ANY_TARGET,
    Code,
    Control,
    Mode,
    Operation,
    Refused,
    Request,
)

LUN = 1

_MAX_SOCKET_PATH = 100
_FIRST_TID, _TIDS = 0x3000_0000, 0x1000_0000
_NEW_TID_TRIES = 5


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
        _shown(self, Mode.SYSTEM)

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
            try:
                self._ask(Mode.TARGET, Operation.NEW, tid, f"targetname={name}")
            except Refused as error:
                if error.answer != Code.TARGET_EXISTS:
                    raise
            else:
                return tid
        raise exception.BackendError(f"tgtd has a target {name} already, or no number for it.")

    def delete_target(self, tid: int) -> None:
        """Remove a target without sessions, its unit and its list of initiators."""
        self._ask(Mode.TARGET, Operation.DELETE, tid, passed=(Code.NO_TARGET,))

    def open_target(self, tid: int) -> None:
        """Let a target accept logins and commands, as a new one does."""
        self._ask(Mode.TARGET, Operation.UPDATE, tid, "state=ready")

    def close_target(self, tid: int) -> None:
        """Answer logins with "try again later", and commands not at all."""
        self._ask(Mode.TARGET, Operation.UPDATE, tid, "state=offline")

    def new_unit(self, tid: int, path: str) -> None:
        """Create the one logical unit of a target, over a file."""
        passed = (Code.UNIT_EXISTS,)
        self._ask(Mode.UNIT, Operation.NEW, tid, f"path={path}", passed, lun=LUN)

    def set_unit(self, tid: int, **params: str) -> None:
        """Change the logical unit, by tgtd's names of its parameters."""
        listed = "".join(f"{key}={value}," for key, value in params.items())
        self._ask(Mode.UNIT, Operation.UPDATE, tid, f"targetOps {listed}", lun=LUN)

    def allow(self, tid: int, initiator: str) -> None:
        """Allow logins of an initiator."""
        name = f"initiator-name={initiator}"
        self._ask(Mode.TARGET, Operation.BIND, tid, name, (Code.ACL_EXISTS,))

    def forbid(self, tid: int, initiator: str) -> None:
        """Refuse new logins of an initiator; sessions stay."""
        name = f"initiator-name={initiator}"
        self._ask(Mode.TARGET, Operation.UNBIND, tid, name, (Code.NO_ACL,))

    def connections(self, tid: int) -> list[parser.Connection]:
        """List the connections of a target that exists."""
        return parser.connections(_shown(self, Mode.CONNECTION, tid))

    def close(self, tid: int, connection: parser.Connection) -> None:
        """Start to close a connection; it is listed until its last command is done."""
        numbers = connection.sid, connection.cid
        passed = (Code.NO_TARGET, Code.NO_SESSION, Code.NO_CONNECTION)
        self._ask(Mode.CONNECTION, Operation.DELETE, tid, "", passed, connection=numbers)

    def accounts(self) -> list[str]:
        """List the CHAP users of all targets."""
        return parser.accounts(_shown(self, Mode.ACCOUNT))

    def new_account(self, user: str, secret: str) -> None:
        """Create a CHAP user; an existing one keeps its secret."""
        body = f"user={user},password={secret}"
        self._ask(Mode.ACCOUNT, Operation.NEW, ANY_TARGET, body, (Code.USER_EXISTS,))

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
        self._ask(Mode.ACCOUNT, Operation.DELETE, ANY_TARGET, f"user={user}", (Code.NO_USER,))

    def _ask(
        self,
        mode: Mode,
        operation: Operation,
        tid: int,
        body: str = "",
        passed: Sequence[Code] = (),
        **numbers: Any,
    ) -> None:
        """Execute a request that changes something.

        :param numbers: further fields of the request
        """
        _control(self).ask(Request(mode, operation, tid, body, passed, **numbers))


def _address(tgtd: Tgtd) -> str:
    return f"{tgtd.socket}.{tgtd.port}"


def _control(tgtd: Tgtd) -> Control:
    return Control(_address(tgtd), tgtd.timeout)


def _shown(tgtd: Tgtd, mode: Mode, tid: int = ANY_TARGET) -> str:
    return _control(tgtd).ask(Request(mode, Operation.SHOW, tid))


def _binding(tid: int, user: str) -> Request:
    passed = (Code.USER_EXISTS, Code.NO_USER)
    return Request(Mode.ACCOUNT, Operation.BIND, tid, f"user={user}", passed)
