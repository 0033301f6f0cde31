# SPDX-License-Identifier: Apache-2.0
"""Processes that work on the files of a share, so that no thread hangs; see file_worker.py.

A process is used for one call after the other, because its start takes a third of a second.
"""

import errno
import json
from pathlib import Path
import socket
import subprocess
import sys
from typing import Any, Final

from attachd import exception
from attachd.drivers import base
from attachd.drivers.nfs import file_worker

KILL_TIMEOUT: Final = 5.0
"""Seconds that a killed process may take to end, unless the kernel holds it."""


class Unusable(Exception):
    """The share is away or hangs; the process must not be used again.

    :ivar is_stale: the server does not know the mounted share any more
    """

    def __init__(self, reason: str, *, is_stale: bool = False) -> None:
        self.is_stale = is_stale
        super().__init__(reason)


class FileProcess:
    """One process, for one thread at a time.

    :param folder: the root of the mounted share
    """

    def __init__(self, folder: Path) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 (a list of arguments, no shell)
                [sys.executable, "-P", "-m", file_worker.__name__, f"{folder}"],
                process_group=0,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
            )
        self._answers = self._control.makefile("rb")

    def call(self, name: str, *arguments: Any, timeout: float, buffer: int | None = None) -> Any:
        """Call a method of file_worker.ShareFiles; the ownership is checked here.

        :param buffer: a file in memory with the data of the call
        :param timeout: seconds for each step up to the next check or report of progress
        :raises Unusable: see there
        :raises BackendError: from the method, or the check
        :raises InvalidInput: from the method
        """
        self._control.settimeout(timeout)
        try:
            answer, refused = self._converse([name, *arguments], buffer)
        except TimeoutError as error:
            raise Unusable(f"It did not answer within {timeout:g} s.") from error
        except (OSError, ValueError) as error:
            raise Unusable("The process that works on its files has ended.") from error
        if refused is not None:
            raise refused
        if "result" in answer:
            return answer["result"]
        if "invalid" in answer:
            raise exception.InvalidInput(**answer["invalid"])
        if number := answer["unreachable"]:
            raise Unusable(answer["error"], is_stale=number == errno.ESTALE)
        kind = exception.BackendInUse if answer["in_use"] else exception.BackendError
        raise kind(answer["error"], final=answer["final"])

    def end(self) -> bool:
        """Kill the process; returns whether it has ended: the kernel may hold it."""
        self._answers.close()
        self._control.close()
        self._process.kill()
        try:
            self._process.wait(KILL_TIMEOUT)
        except subprocess.TimeoutExpired:
            return False
        return True

    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return self._process.poll() is not None

    def _converse(
        self, request: list[Any], buffer: int | None
    ) -> tuple[dict[str, Any], Exception | None]:
        """Send a request; return its answer, and what the checks meanwhile have raised."""
        refused: Exception | None = None
        buffers = () if buffer is None else (buffer,)
        socket.send_fds(self._control, [b"\n"], (*base.liveness_fds(), *buffers))
        self._send(request)
        while True:
            answer: dict[str, Any] = json.loads(self._answers.readline())
            if "progress" in answer:
                base.report_progress(answer["progress"])
            elif "check" in answer:
                try:
                    base.check_still_owner()
                except Exception as error:  # noqa: BLE001 (the caller raises it)
                    refused = error
                self._send(refused is None)
            else:
                return answer, refused

    def _send(self, message: Any) -> None:
        self._control.sendall(json.dumps(message).encode() + b"\n")
