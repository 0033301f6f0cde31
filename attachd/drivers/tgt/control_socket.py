# SPDX-License-Identifier: Apache-2.0
"""Requests to tgtd's control socket, in the format of tgtadm; for client.py.

tgtadm takes secrets only as an argument, where each user of the machine can read them while it
runs.  And a process for each request takes ten times as long as the request itself.
"""

from collections.abc import Collection, Iterator, Sequence
import contextlib
from dataclasses import dataclass
import enum
import itertools
import socket
import struct
import time
from typing import NamedTuple

from attachd import exception
from attachd.drivers import base

# struct tgtadm_req: mode, operation, driver, length of it all, target, session, LUN,
# connection, host, device type, account direction, packed, forced; unchanged since 2012.
_REQUEST = struct.Struct("@ii64sIiQQIIIIII")
# struct tgtadm_rsp: error, length of it all; a text follows.
_ANSWER = struct.Struct("@II")
_DONE = 0
_LAST = b"\0"
_POLL_INTERVAL = 0.001
ANY_TARGET = -1


class Mode(enum.IntEnum):
    """Subject of a request."""

    SYSTEM = 0
    TARGET = 1
    UNIT = 2
    CONNECTION = 6
    ACCOUNT = 7


class Operation(enum.IntEnum):
    """Operation of a request."""

    NEW = 0
    DELETE = 1
    SHOW = 2
    BIND = 3
    UNBIND = 4
    UPDATE = 5


class Code(enum.IntEnum):
    """Answers of tgtd that callers distinguish.

    Source: tgt 1.0.85, tgtadm_error.h.
    """

    NO_TARGET = 4
    NO_SESSION = 6
    NO_CONNECTION = 7
    TARGET_EXISTS = 9
    UNIT_EXISTS = 11
    ACL_EXISTS = 12
    NO_ACL = 13
    USER_EXISTS = 14
    NO_USER = 15


class Request(NamedTuple):
    """A request to tgtd.

    :ivar tid: of the target, or ANY_TARGET
    :ivar body: ``user=NAME``, of a new one also ``,password=SECRET``, or ``initiator-name=NAME``
    :ivar passed: answers that mean that it was done before
    :ivar lun: of the unit
    :ivar connection: the numbers of a session and of a connection in it
    """

    mode: Mode
    operation: Operation
    tid: int = ANY_TARGET
    body: str = ""
    passed: Collection[Code] = ()
    lun: int = 0
    connection: tuple[int, int] = (0, 0)


class Refused(exception.BackendError):
    """tgtd has refused a request; never final.

    :ivar answer: see :class:`Code`
    """

    def __init__(self, request: Request, answer: int) -> None:
        known = f" ({Code(answer).name})" if answer in set(Code) else ""
        super().__init__(f"tgtd refused {_named(request)}: error {answer}{known}.")
        self.answer = answer


@dataclass(frozen=True)
class Control:
    """A control socket.

    :ivar address: its path, with the dot and the number at its end
    :ivar timeout: seconds for each step
    """

    address: str
    timeout: float

    def ask(self, request: Request) -> str:
        """Execute a request and return tgtd's answer.

        :raises BackendError: it failed, or its result is unknown; never final
        """
        return self.request_together([request])[0]

    def request_together(self, *groups: Sequence[Request]) -> list[str]:
        """Execute many requests with as little time as possible in between.

        Each request has a connection of its own, and tgtd has all of it but its last byte before
        any last byte is sent.  Fencing is checked before the last bytes of a group.

        :param groups: each group waits for the answers to the one before
        :raises BackendError: as in :meth:`ask`; all were sent, unless tgtd stopped answering or
            fencing forbids to continue
        """
        requests = [request for group in groups for request in group]
        try:
            with contextlib.ExitStack() as stack:
                all_channels = iter(
                    [
                        stack.enter_context(self._start_request(one_request))
                        for one_request in requests
                    ]
                )
                answers = []
                for group in groups:
                    channels = list(itertools.islice(all_channels, len(group)))
                    if any(item.operation is not Operation.SHOW for item in group):
                        base.check_still_owner()
                    for channel in channels:
                        channel.sendall(_LAST)
                    answers += [_answer(channel) for channel in channels]
        except TimeoutError as error:
            raise exception.BackendUnreachable(
                f"tgtd did not answer in {self.timeout} s."
            ) from error
        except OSError as error:
            raise exception.BackendUnreachable(
                f"tgtd did not take {_named(requests[0])} at {self.address}: {error}."
            ) from error
        for request, (code, _said) in zip(requests, answers, strict=True):
            if code not in {_DONE, *request.passed}:
                raise Refused(request, code)
        return [said for _code, said in answers]

    @contextlib.contextmanager
    def _start_request(self, request: Request) -> Iterator[socket.socket]:
        """Send a request without its last byte."""
        text = request.body.encode() + _LAST
        session, connection = request.connection
        head = _REQUEST.pack(
            request.mode, request.operation, b"iscsi", _REQUEST.size + len(text), request.tid,
            session, request.lun, connection, 0, 0, 0, 0, 0,
        )  # fmt: skip
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(self.timeout)
            self._connect(channel)
            channel.sendall((head + text)[: -len(_LAST)])
            yield channel

    def _connect(self, channel: socket.socket) -> None:
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                channel.connect(self.address)
            except BlockingIOError:  # Many other clients are waiting.
                if time.monotonic() > deadline:
                    raise TimeoutError from None
                time.sleep(_POLL_INTERVAL)
            else:
                return


def _named(request: Request) -> str:
    return f"{request.operation.name} {request.mode.name}"


def _answer(channel: socket.socket) -> tuple[int, str]:
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
