# SPDX-License-Identifier: Apache-2.0
"""Unix sockets by which processes of this host call a daemon."""

import io
import os
from pathlib import Path
import socket
import struct
import time
from typing import Any, Final, NamedTuple

from attachd import exception

_MAX_PATH: Final = 107
"""Source: unix(7), sun_path."""
_CREDENTIALS: Final = struct.Struct("3i")
"""Source: unix(7), struct ucred: pid, uid, gid."""
_CONNECT_TIMEOUT: Final = 5.0
_FIRST_PASSED: Final = 3
"""Source: sd_listen_fds(3), SD_LISTEN_FDS_START."""


class Peer(NamedTuple):
    """The process at the other end of a connection, as the kernel knows it.

    :ivar pid: 0 if it is in another PID namespace
    """

    pid: int
    uid: int


class _Receiver(io.RawIOBase):
    """Reads from a connection until a time limit, which no part that arrives extends.

    :param seconds: the limit, from now on
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has arrived; raises TimeoutError at the limit."""
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("The request has not arrived in time.")
        self._connection.settimeout(remaining)
        return self._connection.recv_into(buffer)


def open_request(connection: socket.socket, seconds: float) -> io.BufferedReader:
    """Return a file with what a caller sends; reads raise TimeoutError after the time limit.

    The caller sets the timeout of the connection before it writes.

    :param seconds: for all reads together, from now on
    """
    return io.BufferedReader(_Receiver(connection, seconds))


def get_peer(connection: socket.socket) -> Peer:
    """Return the process that has connected; it may have ended."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)


def get_passed() -> socket.socket | None:
    """Return the socket that systemd has opened and passed to this process; None: it has not.

    Source: sd_listen_fds(3).
    """
    if os.environ.get("LISTEN_PID") != f"{os.getpid()}" or os.environ.get("LISTEN_FDS") != "1":
        return None
    os.set_inheritable(_FIRST_PASSED, False)
    return socket.socket(fileno=_FIRST_PASSED)


def listen(path: Path, backlog: int, purpose: str) -> socket.socket:
    """Return a socket that listens at a path; it is never there with a wider mode than 0600.

    The socket of a process that has ended is replaced.

    :param backlog: how many callers wait
    :param purpose: where the path comes from, such as the name of an option
    :raises HostError: it cannot be made, or another process serves it
    """
    new = path.with_name(f"{path.name}.new")
    if len(os.fsencode(new)) > _MAX_PATH or not path.is_absolute():
        raise exception.HostError(
            reason=f"{purpose} = {path} has to be an absolute path of at most "
            f"{_MAX_PATH - len('.new')} bytes."
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_replaceable(path)
        new.unlink(missing_ok=True)
        listener.bind(f"{new}")
        new.chmod(0o600)
        listener.listen(backlog)
        new.rename(path)
    except OSError as error:
        listener.close()
        reason = f"The socket {path} cannot be made: {error.strerror or error}."
        raise exception.HostError(reason=reason) from error
    except exception.HostError:
        listener.close()
        raise
    return listener


def _check_replaceable(path: Path) -> None:
    """Check that nothing is at a path but the socket of a process that has ended."""
    if not os.path.lexists(path):
        return
    if not path.is_socket():
        raise exception.HostError(reason=f"{path} is no socket, and is not replaced.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.settimeout(_CONNECT_TIMEOUT)
        try:
            other.connect(f"{path}")
        except ConnectionRefusedError:
            return
    raise exception.HostError(reason=f"Another process serves the socket {path}.")
