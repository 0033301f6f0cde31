# SPDX-License-Identifier: Apache-2.0
"""SCSI commands as they are, over iSCSI, through libiscsi; for tests of what a target lets pass.

QEMU's tools do not send what they know to be refused.  A session here sends any command, and a
session that is broken stays so: whoever goes on without an error has never lost it.
"""

import ctypes
import functools
import secrets
import threading
from typing import Any, NamedTuple
import unittest

from attachd.drivers import base
from attachd.tests import machine
from attachd.tests.functional import initiators
from attachd.tests.wait import TIMEOUT

BLOCK = 512
"""Bytes of a block, as tgtd has them."""

GOOD, CHECK_CONDITION = 0x00, 0x02
ILLEGAL_REQUEST, DATA_PROTECT = 0x05, 0x07
WRITE_PROTECTED = 0x2700
"""Additional sense code and its qualifier."""

_LOCAL = 3
_LIBRARY = "libiscsi.so.7"
_NORMAL_SESSION = 2
_NOTHING, _TO_HOST, _TO_TARGET = 0, 1, 2


class _Sense(ctypes.Structure):
    _fields_ = (
        ("error_type", ctypes.c_ubyte),
        ("key", ctypes.c_int),
        ("ascq", ctypes.c_int),
        ("specific", ctypes.c_ubyte * 4),
    )


class _Data(ctypes.Structure):
    _fields_ = (("size", ctypes.c_int), ("data", ctypes.POINTER(ctypes.c_ubyte)))


class _Task(ctypes.Structure):
    """The beginning of struct scsi_task; Source: libiscsi 1.19, scsi-lowlevel.h."""

    _fields_ = (
        ("status", ctypes.c_int),
        ("cdb_size", ctypes.c_int),
        ("direction", ctypes.c_int),
        ("length", ctypes.c_int),
        ("cdb", ctypes.c_ubyte * 16),
        ("residual_status", ctypes.c_int),
        ("residual", ctypes.c_size_t),
        ("sense", _Sense),
        ("datain", _Data),
    )


class Reply(NamedTuple):
    """What a target answered.

    :ivar ascq: additional sense code and qualifier, as one number
    """

    status: int
    key: int = 0
    ascq: int = 0
    data: bytes = b""


class Session:
    """A host's session with a target, for one thread at a time; it never logs in again."""

    def __init__(
        self, test: unittest.TestCase, info: initiators.ConnectionInfo, connector: base.Connector
    ) -> None:
        """Log in, and out when the test is over.

        :raises Refused: the target does not want us
        """
        self._lib = _library(test)
        told = info["data"]
        self._lun = told["target_lun"]
        self._context = self._lib.iscsi_create_context(_text(connector["initiator"]))
        test.addCleanup(self.close)
        self._lib.iscsi_set_session_type(self._context, _NORMAL_SESSION)
        self._lib.iscsi_set_timeout(self._context, int(TIMEOUT))
        self._lib.iscsi_set_noautoreconnect(self._context, 1)
        self._lib.iscsi_set_targetname(self._context, _text(told["target_iqn"]))
        self._lib.iscsi_set_initiator_username_pwd(
            self._context, _text(told["auth_username"]), _text(told["auth_password"])
        )
        portal = _text(told["target_portal"])
        if self._lib.iscsi_full_connect_sync(self._context, portal, self._lun):
            raise initiators.Refused(self._complaint())

    def close(self) -> None:
        """Log out, or hang up where that is not possible any more."""
        if self._context:
            self._lib.iscsi_logout_sync(self._context)
            self._lib.iscsi_destroy_context(self._context)
            self._context = None

    def send(self, cdb: bytes, data: bytes = b"", wanted: int = 0) -> Reply:
        """Send one command and wait for its answer.

        :param data: what goes with it; or else
        :param wanted: how many bytes may come back
        :raises Refused: no answer came: the session is over
        """
        direction = _TO_TARGET if data else _TO_HOST if wanted else _NOTHING
        raw = (ctypes.c_ubyte * len(cdb)).from_buffer_copy(cdb)
        task = self._lib.scsi_create_task(len(cdb), raw, direction, len(data) or wanted)
        payload = _Data(
            len(data),
            ctypes.cast(ctypes.create_string_buffer(data), ctypes.POINTER(ctypes.c_ubyte)),
        )
        sent = ctypes.byref(payload) if data else None
        try:
            done = self._lib.iscsi_scsi_command_sync(self._context, self._lun, task, sent)
            if not done or done.contents.status not in {GOOD, CHECK_CONDITION}:
                raise initiators.Refused("the session is over: no answer came")
            answer = done.contents
            came = ctypes.string_at(answer.datain.data, answer.datain.size) if wanted else b""
            return Reply(answer.status, answer.sense.key, answer.sense.ascq, came)
        finally:
            self._lib.scsi_free_scsi_task(task)

    def read(self, block: int, count: int = 1) -> bytes:
        """Read blocks.

        :raises Refused: the target does not give them
        """
        return self._must(read_10(block, count), wanted=count * BLOCK)

    def write(self, block: int, data: bytes) -> None:
        """Write whole blocks.

        :raises Refused: the target does not take them
        """
        self._must(write_10(block, len(data) // BLOCK), data)

    def page(self, number: int) -> bytes:
        """Return a page of vital product data, its head included."""
        return self._must(bytes([0x12, 1, number, 0, 255, 0]), wanted=255)

    def is_write_protected(self) -> bool:
        """Ask as an operating system does before it makes a device writable: MODE SENSE(6)."""
        return bool(self._must(bytes([0x1A, 0, 0x3F, 0, 255, 0]), wanted=255)[2] & 0x80)

    def _must(self, cdb: bytes, data: bytes = b"", wanted: int = 0) -> bytes:
        reply = self.send(cdb, data, wanted)
        if reply.status != GOOD:
            raise initiators.Refused(f"sense {reply.key:#04x}, {reply.ascq:#06x}")
        return reply.data

    def _complaint(self) -> str:
        return str(self._lib.iscsi_get_error(self._context).decode(errors="replace"))


def read_10(block: int, count: int) -> bytes:
    """Return a command; Source: SBC-3, 5.8."""
    return b"\x28\0" + block.to_bytes(4, "big") + b"\0" + count.to_bytes(2, "big") + b"\0"


def write_10(block: int, count: int) -> bytes:
    """Return a command; Source: SBC-3, 5.33."""
    return b"\x2a\0" + block.to_bytes(4, "big") + b"\0" + count.to_bytes(2, "big") + b"\0"


def writes(block: int, data: bytes) -> dict[str, tuple[bytes, bytes]]:
    """List each command that changes what a disk holds, by name, with what goes with it.

    :param data: one block
    :returns: command and data; Source: SBC-3, chapter 5
    """
    lba, lba8, one = block.to_bytes(4, "big"), block.to_bytes(8, "big"), b"\0\0\0\1"
    unmap = b"\0\x16\0\x10\0\0\0\0" + lba8 + one + bytes(4)
    return {
        "WRITE(6)": (bytes([0x0A, *lba[1:], 1, 0]), data),
        "WRITE(10)": (write_10(block, 1), data),
        "WRITE(12)": (b"\xaa\0" + lba + one + bytes(2), data),
        "WRITE(16)": (b"\x8a\0" + lba8 + one + bytes(2), data),
        "WRITE AND VERIFY(10)": (b"\x2e\0" + lba + b"\0\0\1\0", data),
        "WRITE AND VERIFY(12)": (b"\xae\0" + lba + one + bytes(2), data),
        "WRITE AND VERIFY(16)": (b"\x8e\0" + lba8 + one + bytes(2), data),
        "WRITE SAME(10)": (b"\x41\0" + lba + b"\0\0\1\0", data),
        "WRITE SAME(16)": (b"\x93\0" + lba8 + one + bytes(2), data),
        "WRITE SAME(16) UNMAP": (b"\x93\x08" + lba8 + one + bytes(2), data),
        "ORWRITE(16)": (b"\x8b\0" + lba8 + one + bytes(2), data),
        "COMPARE AND WRITE": (b"\x89\0" + lba8 + bytes(3) + b"\1\0\0", data * 2),
        "UNMAP": (b"\x42" + bytes(6) + b"\0\x18\0", unmap),
        "FORMAT UNIT": (b"\x04" + bytes(5), b""),
    }


def names(page: bytes) -> set[bytes]:
    """Return the names in the page of device identification, but those that are only local.

    Source: SPC-4, 7.8.6; an NAA name says in its first digit of what kind it is.
    """
    found, rest = set(), page[4:]
    while rest:
        length = rest[3]
        if rest[4] >> 4 != _LOCAL:
            found.add(rest[4 : 4 + length])
        rest = rest[4 + length :]
    return found


class Writer:
    """Writes one block after the other, again and again, until it is ended or fails.

    :ivar error: what went wrong; None: nothing did
    """

    def __init__(
        self, test: unittest.TestCase, session: Session, blocks: range = range(1000, 1064)
    ) -> None:
        self.error: Exception | None = None
        self._session = session
        self._blocks = blocks
        self._count = 0
        self._ending = threading.Event()
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()
        test.addCleanup(self.end)

    def go_on(self, more: int = 20) -> None:
        """Wait until so many more blocks were written and read back.

        :raises AssertionError: they were not
        """
        with self._progress:
            wanted = self._count + more
            enough = self._progress.wait_for(
                lambda: self._count >= wanted or self.error is not None, TIMEOUT
            )
        assert enough, f"no more than {self._count} blocks"
        assert self.error is None, self.error

    def fail(self) -> Exception:
        """Wait for the error that has to come."""
        self._thread.join(TIMEOUT)
        assert self.error is not None, "it goes on writing"
        return self.error

    def end(self) -> int:
        """Stop; return how many blocks were written."""
        self._ending.set()
        self._thread.join(TIMEOUT)
        return self._count

    def _write(self) -> None:
        while not self._ending.is_set():
            block = self._blocks[self._count % len(self._blocks)]
            data = secrets.token_bytes(BLOCK)
            error: Exception | None = None
            try:
                self._session.write(block, data)
                if self._session.read(block) != data:
                    error = AssertionError(f"block {block} has other bytes")
            except Exception as caught:  # noqa: BLE001 (the test tells what it was)
                error = caught
            with self._progress:
                self.error = error
                self._count += error is None
                self._progress.notify_all()
            if error:
                return


@functools.cache
def _load() -> Any:
    library = ctypes.CDLL(_LIBRARY)
    library.iscsi_create_context.restype = ctypes.c_void_p
    library.iscsi_get_error.restype = ctypes.c_char_p
    library.scsi_create_task.restype = ctypes.POINTER(_Task)
    library.iscsi_scsi_command_sync.restype = ctypes.POINTER(_Task)
    context, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    for name, arguments in {
        "iscsi_destroy_context": [context],
        "iscsi_full_connect_sync": [context, text, number],
        "iscsi_get_error": [context],
        "iscsi_logout_sync": [context],
        "iscsi_scsi_command_sync": [context, number, ctypes.POINTER(_Task), ctypes.c_void_p],
        "iscsi_set_initiator_username_pwd": [context, text, text],
        "iscsi_set_noautoreconnect": [context, number],
        "iscsi_set_session_type": [context, number],
        "iscsi_set_targetname": [context, text],
        "iscsi_set_timeout": [context, number],
        "scsi_free_scsi_task": [ctypes.POINTER(_Task)],
    }.items():
        getattr(library, name).argtypes = arguments
    return library


def _library(test: unittest.TestCase) -> Any:
    machine.need_library(test, _LIBRARY)
    return _load()


def _text(value: str) -> bytes:
    return value.encode()
