# SPDX-License-Identifier: Apache-2.0
"""Speak iSCSI without a kernel: a program for a guest, which has the standard library alone.

It reads the data of a connection info, the initiator's name in it, and a number of rounds as JSON
from its input.  In each round it logs in anew for each kind of message, most of which break iSCSI,
sends it, and reads what comes back; it writes how often each answer came, as JSON.

Source: RFC 7143, chapters 6, 11 and 12.1.
"""

from collections import Counter
import hashlib
import json
import socket
import struct
import sys
from typing import Any, Final

READ, WRITE = 0x40, 0x20
_FINAL, _SIMPLE, _IMMEDIATE = 0x80, 0x01, 0x40
_COMMAND, _LOGIN, _DATA_OUT = 0x01, 0x03, 0x05
_READ_10: Final = struct.pack(">BBIBHB", 0x28, 0, 0, 0, 1, 0)
_TASK: Final = 7
_NO_TASK: Final = 0xFFFFFFFF
PLAIN: Final = "no data"
DATA_IN: Final = "answer 0x25"
_MESSAGES: Final = {
    PLAIN: (READ, False, False),
    "immediate data, read": (READ, True, False),
    "immediate data, write": (WRITE, True, False),
    "immediate data, both": (READ | WRITE, True, False),
    "immediate data, no direction": (0, True, False),
    "data out, read": (READ, False, True),
    "data out, write": (WRITE, False, True),
}
_PARAMETERS: Final = (
    "HeaderDigest=None",
    "DataDigest=None",
    "ImmediateData=Yes",
    "InitialR2T=No",
    "MaxBurstLength=262144",
    "FirstBurstLength=65536",
    "MaxRecvDataSegmentLength=65536",
    "MaxOutstandingR2T=1",
    "DefaultTime2Wait=2",
    "DefaultTime2Retain=0",
    "DataPDUInOrder=Yes",
    "DataSequenceInOrder=Yes",
    "MaxConnections=1",
    "ErrorRecoveryLevel=0",
)


class Session:
    """A session with a target, by CHAP."""

    def __init__(self, info: dict[str, Any]) -> None:
        address, _colon, port = info["target_portal"].rpartition(":")
        self._socket = socket.create_connection((address.strip("[]"), int(port)), timeout=120)
        self._is_logged_in = False
        self._log_in(info)

    def _log_in(self, info: dict[str, Any]) -> None:
        answer = self._ask(
            0,
            f"InitiatorName={info['initiator']}",
            "SessionType=Normal",
            f"TargetName={info['target_iqn']}",
            "AuthMethod=CHAP",
        )
        answer = self._ask(0, "CHAP_A=5")
        challenge = bytes.fromhex(answer["CHAP_C"].removeprefix("0x"))
        secret = bytes([int(answer["CHAP_I"], 0)]) + info["auth_password"].encode()
        digest = hashlib.md5(secret + challenge).hexdigest()
        self._ask(0x81, f"CHAP_N={info['auth_username']}", f"CHAP_R=0x{digest}")
        self._ask(0x87, *_PARAMETERS)
        if not self._is_logged_in:
            self._ask(0x87)
        if not self._is_logged_in:
            raise ConnectionError("the target does not end the login")

    def _ask(self, stages: int, *pairs: str) -> dict[str, str]:
        text = b"".join(f"{pair}\0".encode() for pair in pairs)
        head = struct.pack(">BBBB", _LOGIN | _IMMEDIATE, stages, 0, 0) + _length(text)
        head += b"\x80\0\0\0\0\1\0\0" + struct.pack(">IHHII", 1, 0, 0, 1, 1)
        self._send(head, text)
        answer, data = self.receive()
        if answer[36:38] != b"\0\0":
            raise ConnectionError(f"login status {answer[36:38].hex()}")
        self._is_logged_in = answer[1] & 0x83 == 0x83
        parts = data.rstrip(b"\0").decode().split("\0")
        return dict(part.split("=", 1) for part in parts if part)

    def command(self, direction: int, data: bytes = b"") -> None:
        """Send READ(10) of a block, in any direction."""
        flags = _SIMPLE | direction | (0 if direction & WRITE and not data else _FINAL)
        head = struct.pack(">BBBB", _COMMAND, flags, 0, 0) + _length(data) + bytes(8)
        head += struct.pack(">IIII", _TASK, 512, 1, 2) + _READ_10.ljust(16, b"\0")
        self._send(head, data)

    def data_out(self, data: bytes) -> None:
        """Send data for the command, without a request for it."""
        head = struct.pack(">BBBB", _DATA_OUT, _FINAL, 0, 0) + _length(data) + bytes(8)
        head += struct.pack(">IIIIIII", _TASK, _NO_TASK, 0, 2, 0, 0, 0)
        self._send(head, data)

    def _send(self, head: bytes, data: bytes) -> None:
        self._socket.sendall(head.ljust(48, b"\0") + data + bytes(-len(data) % 4))

    def receive(self) -> tuple[bytes, bytes]:
        """Return a message: its head and its data."""
        head = self._receive(48)
        length = int.from_bytes(head[5:8], "big")
        return head, self._receive(length + -length % 4)[:length]

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            if not (more := self._socket.recv(count - len(data))):
                raise ConnectionError("the target closed the connection")
            data += more
        return data

    def close(self) -> None:
        """End the connection without a logout."""
        self._socket.close()


def _length(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big")


def _try(info: dict[str, Any], kind: str) -> str:
    direction, immediate, after = _MESSAGES[kind]
    session = Session(info)
    try:
        session.command(direction, b"x" * 512 if immediate else b"")
        if after:
            session.data_out(b"x" * 512)
        return f"answer {session.receive()[0][0] & 0x3F:#x}"
    except OSError as error:
        return f"{error}"
    finally:
        session.close()


def main() -> None:
    """Send each kind of message in each round, and write the answers."""
    asked = json.load(sys.stdin)
    answers: dict[str, Counter[str]] = {kind: Counter() for kind in _MESSAGES}
    for _round in range(asked["rounds"]):
        for kind, counted in answers.items():
            counted[_try(asked["info"], kind)] += 1
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
