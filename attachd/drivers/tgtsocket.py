# SPDX-License-Identifier: Apache-2.0
"""Requests to tgtd's control socket as tgtadm sends them, without tgtadm; for tgtadm.py.

tgtadm takes secrets only as an argument, where each user of the machine can read them while it
runs.  And a process for each request would take too long where a volume has many hosts: they
wait for each other, and whoever is behind an account that goes cannot log in meanwhile.
"""

from dataclasses import dataclass
import enum
import socket
import struct

from attachd import exception

# struct tgtadm_req: mode, operation, driver, length of it all, target, session, unit,
# connection, host, device type, account direction, packed, forced; unchanged since 2012.
_REQUEST = struct.Struct("@ii64sIiQQIIIIII")
# struct tgtadm_rsp: error, length of it all; a text follows.
_ANSWER = struct.Struct("@II")
_DONE = 0
ANY_TARGET = -1


class Mode(enum.IntEnum):
    """What a request is about."""

    TARGET = 1
    CONNECTION = 6
    ACCOUNT = 7


class Operation(enum.IntEnum):
    """What is to be done to it."""

    NEW = 0
    DELETE = 1
    SHOW = 2
    BIND = 3
    UNBIND = 4


class Code(enum.IntEnum):
    """What tgtd may answer that is no trouble."""

    ACL_EXISTS = 12
    NO_ACL = 13
    USER_EXISTS = 14
    NO_USER = 15


@dataclass(frozen=True)
class Control:
    """A control socket.

    :ivar address: its path, with the dot and the number at its end
    :ivar timeout: seconds that tgtd has for each request
    """

    address: str
    timeout: float

    def show(self, mode: Mode, tid: int = ANY_TARGET) -> str:
        """Return what tgtadm would print.

        :param tid: of the target that is meant
        :raises BackendError: there was no answer or an error; never final
        """
        return self.ask(mode, Operation.SHOW, tid, "")

    def ask(
        self, mode: Mode, operation: Operation, tid: int, body: str, *passed: Code
    ) -> str:  # fmt: skip
        """Have something done and return what tgtd says to it.

        :param tid: of the target that is meant, or ANY_TARGET
        :param body: ``user=NAME``, of a new one also ``,password=SECRET``, or
            ``initiator-name=NAME``
        :param passed: answers that mean that it was done before
        :raises BackendError: it was not done, or nobody knows; never final
        """
        text = body.encode() + b"\0" if body else b""
        size = _REQUEST.size + len(text)
        head = _REQUEST.pack(mode, operation, b"iscsi", size, tid, 0, 0, 0, 0, 0, 0, 0, 0)
        what = f"{operation.name} {mode.name}"
        try:
            code, said = self._exchange(head + text)
        except TimeoutError as error:
            raise exception.BackendError(f"tgtd did not answer in {self.timeout} s.") from error
        except OSError as error:
            raise exception.BackendError(
                f"tgtd did not take {what} at {self.address}: {error}."
            ) from error
        if code not in {_DONE, *passed}:
            raise exception.BackendError(f"tgtd refused {what}: error {code}.")
        return said

    def _exchange(self, request: bytes) -> tuple[int, str]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(self.timeout)
            channel.connect(self.address)
            channel.sendall(request)
            code, size = _ANSWER.unpack(_received(channel, _ANSWER.size))
            said = _received(channel, size - _ANSWER.size)
        return code, said.decode(errors="replace")


def _received(channel: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        more = channel.recv(size - len(found))
        if not more:
            raise ConnectionResetError("it hung up")
        found += more
    return bytes(found)
