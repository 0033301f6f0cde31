# SPDX-License-Identifier: Apache-2.0
"""What programs of root on this host can ask the agent; see local_socket.py.

No answer has a secret of a connection.
"""

from collections.abc import Callable, Mapping
import contextlib
from time import monotonic
from typing import Any, Final
import uuid

from attachd import exception
from attachd.agent.device_condition import DeviceObserver
from attachd.agent.host import Host
from attachd.agent.journal import Entry, Owner, Step
from attachd.agent.local_socket import Call, CallError, Code
from attachd.agent.reconciler import CONNECTED
from attachd.conf import CONF
from attachd.linux import block_device
from attachd.rpc import agent_manager_api
from attachd.rpc.agent_manager_api import AgentCredentials, DesiredState

MAX_TIMEOUT: Final = 120.0
"""Seconds that a call waits at most; the kubelet gives a call so many."""

_GIB: Final = 2**30


class LocalCalls:
    """The calls of one agent; used by any number of threads.

    :param submit: has the agent reconcile an attachment, as WorkerPool.submit()
    :param check_lease: raises HostError where no device may be used
    """

    def __init__(
        self,
        host: Host,
        credentials: AgentCredentials,
        submit: Callable[[list[str]], None],
        check_lease: Callable[[], object],
    ) -> None:
        self._host = host
        self._credentials = credentials
        self._submit = submit
        self._check_lease = check_lease

    def by_name(self) -> Mapping[str, Call]:
        """Return the calls by the names of the protocol."""
        return {"host": self.describe_host, "device": self.get_device, "grow": self.grow}

    def describe_host(self, _arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the host is.

        :returns: ``name`` as attachments name it, ``connector_type``, ``initiator``: its iSCSI
            name, if one is configured, ``state_path`` of its journal, ``attachments``: how many it
            has, and ``max_attachments``: how many it can have, None: there is no limit
        """
        entries = self._host.journal.list_entries()
        return {
            "name": self._host.identity.name,
            "connector_type": self._host.connector.TYPE,
            "initiator": self._host.identity.initiator,
            "state_path": f"{self._host.journal.state_path}",
            "attachments": len(entries),
            "max_attachments": CONF.agent.max_attachments,
        }

    def get_device(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the device of an attachment, once the agent has made it.

        :param arguments: ``attachment_id`` and ``timeout`` in seconds
        :returns: ``volume_id``, ``path``, ``mode`` (rw or ro), ``size_bytes``, and ``condition``:
            its paths and its last error, None: there is none
        :raises CallError: there is none yet, or no such attachment
        """
        attachment_id, deadline = _read_id(arguments), monotonic() + _read_timeout(arguments)
        self._check_usable_host()
        is_asked = False
        while True:
            count = self._host.journal.changes.count
            entry = self._find(attachment_id)
            if entry is not None and self._is_usable(entry):
                return self._describe(entry)
            if not is_asked:
                is_asked = True
                # The message that the manager has sent may be lost.
                self._ask_for(attachment_id, entry)
            remaining = max(0.0, deadline - monotonic())
            if not self._host.journal.changes.wait(count, remaining) and not remaining:
                raise _not_ready(attachment_id, entry)

    def grow(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Let the device of an attachment have the size of its volume.

        :param arguments: ``attachment_id`` and ``timeout`` in seconds
        :returns: ``size_bytes`` of the device, ``volume_bytes`` as the service knows it, and
            ``is_shared``: whether another host may have mounted the volume too
        :raises CallError: it has no device, or has not grown
        """
        attachment_id, timeout = _read_id(arguments), _read_timeout(arguments)
        self._check_usable_host()
        desired = self._get_desired(attachment_id)
        with self._host.journal.volume_lock(desired["volume_id"], timeout=timeout):
            entry = self._find(attachment_id)
            if entry is None or not self._is_usable(entry):
                raise _not_ready(attachment_id, entry)
            assert entry.device is not None
            size = block_device.size(entry.device.path)
            if size < desired["size_gib"] * _GIB:
                size = self._host.extend(entry)
        return {
            "size_bytes": size,
            "volume_bytes": desired["size_gib"] * _GIB,
            "is_shared": desired.get("shared", True),
        }

    def _check_usable_host(self) -> None:
        try:
            self._check_lease()
        except exception.HostError as error:
            raise CallError(Code.UNAVAILABLE, f"{error}") from error

    def _ask_for(self, attachment_id: str, entry: Entry | None) -> None:
        """Have the attachment reconciled; raises CallError if the service does not know it."""
        # If no manager answers, or the first report is under way, that may be over in time.
        with contextlib.suppress(exception.Unavailable, exception.ProcessNotAccepted):
            if entry is None:
                self._get_desired(attachment_id)
            self._submit([attachment_id])

    def _get_desired(self, attachment_id: str) -> DesiredState:
        """Return the desired state of an attachment, which has a device; raises CallError."""
        desired = agent_manager_api.desired_state(self._credentials, attachment_id)
        if desired is None or desired["target_state"] != CONNECTED:
            raise CallError(
                Code.NOT_FOUND,
                f"The service has no attachment {attachment_id} that is to have a device on host "
                f"{self._host.identity.name}.",
            )
        return desired

    def _find(self, attachment_id: str) -> Entry | None:
        entries = self._host.journal.list_entries()
        return next(
            (
                entry
                for entry in entries
                if entry.owner is Owner.AGENT and entry.attachment_id == attachment_id
            ),
            None,
        )

    def _is_usable(self, entry: Entry) -> bool:
        return entry.step is Step.ATTACHED and self._host.is_present(entry)

    @staticmethod
    def _describe(entry: Entry) -> dict[str, Any]:
        assert entry.device is not None
        condition = DeviceObserver().read(entry.device.path)
        return {
            "volume_id": entry.volume_id,
            "path": entry.device.path,
            "mode": "ro" if (entry.connection_info or {}).get("access_mode") == "ro" else "rw",
            "size_bytes": block_device.size(entry.device.path),
            "condition": {"paths": condition.paths, "error": entry.error},
        }


def _not_ready(attachment_id: str, entry: Entry | None) -> CallError:
    state = "it is not connected yet" if entry is None else f"its step is {entry.step.value}"
    error = f": {entry.error}" if entry is not None and entry.error else "."
    return CallError(
        Code.NOT_READY, f"Attachment {attachment_id} has no usable device yet, {state}{error}"
    )


def _read_id(arguments: Mapping[str, Any]) -> str:
    """Return the id of an attachment in the form of the service; raises CallError."""
    value = arguments.get("attachment_id")
    try:
        if isinstance(value, str) and f"{uuid.UUID(value)}" == value:
            return value
    except ValueError:
        pass
    raise CallError(Code.INVALID, "attachment_id has to be a UUID in lower case.")


def _read_timeout(arguments: Mapping[str, Any]) -> float:
    """Return how many seconds a call may wait; raises CallError."""
    value = arguments.get("timeout", 0)
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(min(value, MAX_TIMEOUT))
    raise CallError(Code.INVALID, "timeout has to be a number of seconds, 0 or more.")
