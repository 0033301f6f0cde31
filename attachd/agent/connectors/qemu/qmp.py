# SPDX-License-Identifier: Apache-2.0
"""Asks a QEMU process over its monitor; for storage_daemon.py.

Source: QEMU Machine Protocol specification.
"""

import json
import os
from pathlib import Path
import socket
from types import TracebackType
from typing import Any, Self

from attachd import exception

_SECONDS = 60.0


class Monitor:
    """A connection to a monitor; to be used in a ``with`` statement.

    :param path: of the socket, which may be longer than a socket's path can be
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        folder = -1
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_SECONDS)
        try:
            folder = os.open(self._path.parent, os.O_PATH | os.O_CLOEXEC)
            self._socket.connect(f"/proc/self/fd/{folder}/{self._path.name}")
            self._answers = self._socket.makefile("r", encoding="utf-8")
            self._answers.readline()
        except OSError as error:
            self._socket.close()
            raise _failed(f"{error}") from error
        finally:
            if folder >= 0:
                os.close(folder)
        self.execute("qmp_capabilities", {})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._answers.close()
        self._socket.close()

    def execute(self, command: str, arguments: dict[str, Any]) -> Any:
        """Run a command and return its answer.

        :raises HostError: it was refused, or not answered
        """
        request = {"execute": command, "arguments": arguments}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(self._answers.readline())
            while "event" in answer:
                answer = json.loads(self._answers.readline())
        except (OSError, ValueError) as error:
            raise _failed(f"{error}") from error
        if "error" in answer:
            raise _failed(f"{answer['error'].get('desc')}")
        return answer.get("return")


def _failed(why: str) -> exception.HostError:
    return exception.HostError(reason=f"QEMU's storage daemon could not be asked: {why}.")
