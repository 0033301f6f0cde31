# SPDX-License-Identifier: Apache-2.0
"""Calls of the agent of this host; see agent/local_socket.py for the protocol."""

from collections.abc import Mapping
import contextlib
import dataclasses
import json
from pathlib import Path
import socket
from typing import Any, Final

from attachd.agent.local_socket import VERSION, CallError, Code

_MAX_ANSWER: Final = 2**20
_MARGIN: Final = 10.0
"""Seconds that the agent may take for a call beyond the time that it was asked to wait."""


@dataclasses.dataclass(frozen=True)
class HostInfo:
    """A host.

    :ivar name: as attachments name it
    :ivar initiator: its iSCSI name; None: none is configured
    :ivar state_path: of its journal
    :ivar max_attachments: how many volumes it can have; None: there is no limit
    """

    name: str
    initiator: str | None
    state_path: Path
    max_attachments: int | None


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """The device of an attachment.

    :ivar mode: "rw" or "ro"
    :ivar error: what is wrong with it; None: nothing is known
    """

    volume_id: str
    path: str
    mode: str
    size_bytes: int
    error: str | None


@dataclasses.dataclass(frozen=True)
class GrownDevice:
    """The sizes of a device and its volume, in bytes.

    :ivar is_shared: whether another host may have mounted the volume too
    """

    size_bytes: int
    volume_bytes: int
    is_shared: bool


class AgentClient:
    """Calls the agent; each method raises CallError.

    :param path: of its socket
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def get_host(self) -> HostInfo:
        """Return the host."""
        host = self._call("host", {}, 0.0)
        return HostInfo(
            host["name"], host["initiator"], Path(host["state_path"]), host["max_attachments"]
        )

    def get_device(self, attachment_id: str, timeout: float) -> DeviceInfo:
        """Return the device of an attachment, once it is there.

        :param timeout: seconds to wait for it
        """
        device = self._call("device", {"attachment_id": attachment_id}, timeout)
        condition = device["condition"]
        failed = [path["name"] for path in condition["paths"] if path["state"] != "active"]
        error = condition["error"] or (
            f"Paths have failed: {', '.join(failed)}." if failed else None
        )
        return DeviceInfo(
            device["volume_id"], device["path"], device["mode"], device["size_bytes"], error
        )

    def grow(self, attachment_id: str, timeout: float) -> GrownDevice:
        """Let the device of an attachment have the size of its volume.

        :param timeout: seconds to wait for other work on the volume
        """
        return GrownDevice(**self._call("grow", {"attachment_id": attachment_id}, timeout))

    def _call(self, name: str, arguments: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        request = {
            "version": VERSION,
            "call": name,
            "arguments": {**arguments, "timeout": timeout},
        }
        try:
            line = self._exchange(json.dumps(request).encode() + b"\n", timeout + _MARGIN)
            answer = json.loads(line)
        except (OSError, ValueError) as error:
            raise CallError(
                Code.UNAVAILABLE,
                f"The agent of this host does not answer at {self._path}: {error}. Start it, with "
                "[agent]local_socket set to this path.",
            ) from error
        if "error" in answer:
            raise CallError(Code(answer["error"]["code"]), answer["error"]["message"])
        result: dict[str, Any] = answer["result"]
        return result

    def _exchange(self, request: bytes, timeout: float) -> bytes:
        """Send a request, and return the answer; raises OSError."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
            agent.settimeout(timeout)
            agent.connect(f"{self._path}")
            # An agent with too many callers answers, and does not read.
            with contextlib.suppress(BrokenPipeError):
                agent.sendall(request)
            with agent.makefile("rb") as answers:
                return answers.readline(_MAX_ANSWER)
