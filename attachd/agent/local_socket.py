# SPDX-License-Identifier: Apache-2.0
"""The unix socket by which programs of root on this host call the agent.

A caller connects, sends one line of JSON, gets one line of JSON, and the connection ends:

    {"version": 1, "call": "device", "arguments": {"attachment_id": "...", "timeout": 30}}
    {"version": 1, "result": {"path": "/dev/sdb", ...}}
    {"version": 1, "error": {"code": "not_ready", "message": "..."}}

The agent checks by SO_PEERCRED who calls, and the mode of the socket keeps others away.
"""

from collections.abc import Callable, Mapping
import contextlib
import enum
import json
import os
from pathlib import Path
import socket
import threading
from typing import Any, Final

from oslo_log import log

from attachd import exception
from attachd.linux import unix_sockets

LOG = log.getLogger(__name__)

VERSION: Final = 1
MAX_REQUEST: Final = 4096
"""Bytes of a request, with the end of the line."""
MAX_CONNECTIONS: Final = 128
"""Further callers get an error: each one has a thread."""
REQUEST_TIMEOUT: Final = 5.0
"""Seconds that a caller may take to send its request, and to read the answer."""

Call = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Takes the arguments as they were received, and returns what can be stored as JSON.

:raises CallError: it refuses, or has failed
"""


class Code(enum.StrEnum):
    """Why a call has no result."""

    INVALID = "invalid_request"
    """The request is malformed."""
    VERSION = "unsupported_version"
    """The agent does not know this version of the protocol."""
    FORBIDDEN = "forbidden"
    """The caller is neither root nor the user of the agent."""
    NOT_FOUND = "not_found"
    """The service has no such attachment of this host."""
    NOT_READY = "not_ready"
    """There is no device yet; the work goes on."""
    BUSY = "busy"
    """Other work on the volume is in progress, or there are too many callers."""
    UNAVAILABLE = "unavailable"
    """The agent cannot say at present, such as because no manager answers."""
    FAILED = "failed"
    """The host could not do it."""
    DETACH_FIRST = "detach_first"
    """The host cannot do it while the volume is attached."""


class CallError(exception.HostError):
    """A call has no result.

    :ivar kind: why, for programs
    """

    def __init__(self, kind: Code, reason: str) -> None:
        super().__init__(reason=reason)
        self.kind = kind


class LocalSocket:
    """Accepts callers, each in a thread.

    :param path: of the socket; one that is left of an earlier process is replaced
    :param calls: by name
    :raises HostError: the socket cannot be made, or another process serves it
    """

    def __init__(self, path: Path, calls: Mapping[str, Call]) -> None:
        self._path = path
        self._calls = calls
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._listener = unix_sockets.listen(path, MAX_CONNECTIONS, "[agent]local_socket")

    def start(self) -> None:
        """Accept callers."""
        threading.Thread(target=self._accept, name="local-socket", daemon=True).start()

    def stop(self) -> None:
        """Accept no more callers; calls in progress go on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                caller, _address = self._listener.accept()
            except ConnectionAbortedError:
                continue
            except OSError:
                return  # It is closed.
            if self._free.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()
            else:
                error = CallError(Code.BUSY, f"{MAX_CONNECTIONS} callers are served. Try later.")
                with caller, contextlib.suppress(OSError):
                    _send(caller, _describe(error))

    def _serve(self, caller: socket.socket) -> None:
        try:
            with caller, contextlib.suppress(OSError):
                _send(caller, self._answer(caller))
        finally:
            self._free.release()

    def _answer(self, caller: socket.socket) -> dict[str, Any]:
        try:
            line = _receive(caller)  # First: what is not read resets the connection.
            _check_peer(caller)
            name, arguments = _parse(line)
            return {"result": self._get_call(name)(arguments)}
        except CallError as error:
            return _describe(error)
        except exception.AttachdError as error:
            return _describe(CallError(_code_of(error), f"{error}"))
        except OSError:
            raise  # The caller has gone.
        except Exception as error:
            LOG.exception("A call on %s failed", self._path)
            reason = f"Unexpected error in the agent: {type(error).__name__}. Its log has it."
            return _describe(CallError(Code.FAILED, reason))

    def _get_call(self, name: str) -> Call:
        if name not in self._calls:
            known = ", ".join(sorted(self._calls))
            raise CallError(Code.INVALID, f"There is no call {name[:64]!r}, only {known}.")
        return self._calls[name]


def _code_of(error: exception.AttachdError) -> Code:
    if isinstance(error, exception.Unavailable | exception.ProcessNotAccepted):
        return Code.UNAVAILABLE
    if isinstance(error, exception.GrowthNeedsDetach):
        return Code.DETACH_FIRST
    return Code.BUSY if isinstance(error, exception.LocalConflict) else Code.FAILED


def _describe(error: CallError) -> dict[str, Any]:
    return {"error": {"code": error.kind, "message": f"{error}"}}


def _send(caller: socket.socket, answer: Mapping[str, Any]) -> None:
    caller.settimeout(REQUEST_TIMEOUT)
    caller.sendall(json.dumps({"version": VERSION, **answer}).encode() + b"\n")


def _check_peer(caller: socket.socket) -> None:
    """Check the user of the process that has connected; raises CallError."""
    uid = unix_sockets.get_peer(caller).uid
    if uid not in {0, os.geteuid()}:
        raise CallError(Code.FORBIDDEN, f"User {uid} may not call the agent: only root may.")


def _receive(caller: socket.socket) -> bytes:
    """Return a line without its end; raises CallError."""
    try:
        with unix_sockets.open_request(caller, REQUEST_TIMEOUT) as request:
            line = request.readline(MAX_REQUEST + 1)
    except TimeoutError:
        line = b""
    if not line.endswith(b"\n"):
        raise CallError(
            Code.INVALID,
            f"A request is one line of at most {MAX_REQUEST} bytes, which is sent within "
            f"{REQUEST_TIMEOUT:g} s.",
        )
    return line


def _parse(line: bytes) -> tuple[str, Mapping[str, Any]]:
    """Return the name of a call and its arguments; raises CallError."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise CallError(Code.INVALID, "The request is not JSON.") from None
    if not isinstance(request, dict):
        raise CallError(Code.INVALID, "The request is not an object of JSON.")
    if request.get("version") != VERSION:
        raise CallError(Code.VERSION, f"This agent serves version {VERSION} of the protocol.")
    name, arguments = request.get("call"), request.get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise CallError(Code.INVALID, "call has to be a string, and arguments an object.")
    return name, arguments
