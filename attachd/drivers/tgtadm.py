# SPDX-License-Identifier: Apache-2.0
"""A client of tgtd, the iSCSI target in user space; for the tgt driver.

Everything goes through the command tgtadm but secrets: tgtadm takes them only as an argument,
where each user of the machine can read them while it runs.  See :meth:`Tgtd.new_account`.

What one has to know of tgtd (all of it tried with 1.0.85):

* tgtadm exits with 0 also when tgtd hangs up in the middle; only its complaint tells.
* The accounts of a target have places.  Freeing a place before an occupied one loses the last
  account and makes tgtd crash at the next listing, so places are freed from the end only.
* To let a unit have another size, its file has to be closed and opened again, and a command
  that is under way just then fails or writes to where it should not.  So there must be none.
* A target without accounts lets hosts in without a password.
* A login under way refers to its target by number only, so numbers are not used again.
"""

from dataclasses import dataclass
import secrets
import socket
import struct

from attachd import exception
from attachd.drivers import command, tgtshow

LUN = 1

_MAX_SOCKET_PATH = 100
_MAX_TID = 2**31 - 1
_NEW_TID_TRIES = 5

# struct tgtadm_req: mode, operation, driver, length of it all, target, session, unit,
# connection, host, device type, account direction, packed, forced; unchanged since 2012.
_REQUEST = struct.Struct("@ii64sIiQQIIIIII")
_ANSWER = struct.Struct("@II")
_MODE_ACCOUNT = 7
_OP_NEW = 0
_USER_EXISTS = 14


@dataclass(frozen=True)
class Tgtd:
    """One running tgtd.

    :ivar socket: path of its control socket, without the dot and the number at its end
    :ivar port: its control port, that number
    :ivar timeout: seconds it has for each request
    """

    socket: str
    port: int
    timeout: float

    def check(self) -> None:
        """See that it answers, and that it can be told secrets."""
        if len(_address(self)) >= _MAX_SOCKET_PATH:
            raise exception.BackendError(
                f"The path {_address(self)} is too long for a socket.", final=True
            )
        self._adm("show", "sys")

    def targets(self) -> list[tgtshow.Target]:
        """List all targets."""
        return list(tgtshow.targets(self._adm("show", "target")))

    def target(self, name: str) -> tgtshow.Target | None:
        """Look up a target by name."""
        return tgtshow.target(self._adm("show", "target"), name)

    def new_target(self, name: str) -> int:
        """Make a target of a name that is not in use, closed to everybody, and tell its number."""
        for _ in range(_NEW_TID_TRIES):
            tid = secrets.randbelow(_MAX_TID) + 1
            outcome = self._ask("new", "target", "--tid", f"{tid}", "--targetname", name)
            if "already exists" not in outcome.complaint:
                _demand(outcome)
                return tid
        raise exception.BackendError(f"tgtd has a target {name} already, or no number for it.")

    def delete_target(self, tid: int) -> None:
        """Remove a target without sessions, its unit and its list of initiators."""
        self._adm("delete", "target", "--tid", f"{tid}", but="can't find the target")

    def open_target(self, tid: int) -> None:
        """Let a target take logins and commands, as a new one does."""
        self._adm("update", "target", "--tid", f"{tid}", "--name", "state", "--value", "ready")

    def shut_target(self, tid: int) -> None:
        """Answer logins with "try again later", and commands not at all."""
        self._adm("update", "target", "--tid", f"{tid}", "--name", "state", "--value", "offline")

    def new_unit(self, tid: int, path: str) -> None:
        """Let a target show a file as its one logical unit."""
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
        """Let hosts of a name log in."""
        self._adm(
            "bind", "target", "--tid", f"{tid}", "--initiator-name", initiator,
            but="already exists",
        )  # fmt: skip

    def forbid(self, tid: int, initiator: str) -> None:
        """Refuse new logins of a name; sessions stay."""
        self._adm(
            "unbind", "target", "--tid", f"{tid}", "--initiator-name", initiator,
            but="does not exist",
        )  # fmt: skip

    def connections(self, tid: int) -> list[tgtshow.Connection]:
        """List the connections of a target that exists."""
        listing = self._adm("show", "conn", "--tid", f"{tid}")
        return tgtshow.connections(listing)

    def close(self, tid: int, connection: tgtshow.Connection) -> None:
        """Begin to end a connection; it is listed until its last command is done."""
        self._adm(
            "delete", "conn", "--tid", f"{tid}", "--sid", f"{connection.sid}",
            "--cid", f"{connection.cid}", but="can't find the",
        )  # fmt: skip

    def accounts(self) -> list[str]:
        """List the CHAP users of all targets."""
        return tgtshow.accounts(self._adm("show", "account"))

    def new_account(self, user: str, secret: str) -> None:
        """Make a CHAP user; one that exists keeps its secret.

        The request is sent to the socket as tgtadm sends it, see the head of this module.
        """
        body = f"user={user},password={secret}".encode() + b"\0"
        size = _REQUEST.size + len(body)
        head = _REQUEST.pack(
            _MODE_ACCOUNT, _OP_NEW, b"iscsi", size, 0, 0, 0, 0, 0, 0, 0, 0, 0
        )  # fmt: skip
        try:
            answer = _exchange(_address(self), head + body, self.timeout)
        except OSError as error:
            raise exception.BackendError(
                f"tgtd did not take a new account at {_address(self)}: {error}."
            ) from error
        if answer not in {0, _USER_EXISTS}:
            raise exception.BackendError(f"tgtd refused a new account: error {answer}.")

    def bind_account(self, tid: int, user: str) -> None:
        """Let a CHAP user log in to a target; an unknown user is passed over."""
        outcome = self._ask("bind", "account", "--tid", f"{tid}", "--user", user)
        if "already exists" in outcome.complaint or "can't find the account" in outcome.complaint:
            return
        _demand(outcome)

    def unbind_account(self, tid: int, user: str) -> None:
        """Take a CHAP user from a target, which must be the last one of it."""
        self._adm(
            "unbind", "account", "--tid", f"{tid}", "--user", user, but="can't find the account"
        )

    def delete_account(self, user: str) -> None:
        """Remove a CHAP user; where it is bound, it must be the last one."""
        self._adm("delete", "account", "--user", user, but="can't find the account")

    def _adm(self, operation: str, mode: str, *arguments: str, but: str = "") -> str:
        """Have something done; a complaint that contains ``but`` means that it was before."""
        outcome = self._ask(operation, mode, *arguments)
        if but and but in outcome.complaint:
            return ""
        return _demand(outcome)

    def _ask(self, operation: str, mode: str, *arguments: str) -> command.Outcome:
        line = ["tgtadm", "--control-port", f"{self.port}", "--lld", "iscsi"]
        line += ["--op", operation, "--mode", mode, *arguments]
        return command.run(line, self.timeout, {"TGT_IPC_SOCKET": self.socket})


def _address(tgtd: Tgtd) -> str:
    return f"{tgtd.socket}.{tgtd.port}"


def _exchange(address: str, request: bytes, timeout: float) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(timeout)
        channel.connect(address)
        channel.sendall(request)
        answer = channel.recv(_ANSWER.size, socket.MSG_WAITALL)
    if len(answer) < _ANSWER.size:
        raise ConnectionResetError("it hung up")
    return int(_ANSWER.unpack(answer)[0])


def _demand(outcome: command.Outcome) -> str:
    if outcome.code or outcome.complaint:
        raise exception.BackendError(f"tgtd: {outcome.complaint or 'unknown error'}.")
    return outcome.output
