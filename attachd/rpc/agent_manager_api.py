# SPDX-License-Identifier: Apache-2.0
"""RPC client of the managers for the agent of a host; manager/agents/rpc_server.py is the server.

Each message names the host and carries its key.  Only the agent that has the key of a host gets
the connections of that host, and reports what it has connected.

Version history of the contract:

* 1.0: report, renew, desired_state, connected, failed, disconnected, detach_refused
"""

from collections.abc import Iterator
import contextlib
import json
from typing import Any, Final, NamedTuple, NotRequired, TypedDict

from oslo_log import log as logging
import oslo_messaging as messaging

from attachd import context, exception
from attachd.rpc import agent_transport
from attachd.rpc.admission import MAX_REPORT_SIZE
from attachd.rpc.path_check import PathCut

LOG = logging.getLogger(__name__)

VERSION = "1.0"

IN_LIBVIRT: Final = "in-libvirt"
"""The target state of an attachment of Compute whose key has to be a secret of libvirt."""

TIMEOUT = 30
"""Seconds that an agent waits for an answer: the service only reads and writes a few rows.

A report whose answer is lost must not make its agent count as away, see [agent] down_time.
"""


_ENVELOPE_SIZE: Final = 2**12
"""Bytes of a message beside the report, at most."""

MAX_PATHS = 64
"""How many paths one device may have in a report."""

FILESYSTEM_KEYS: Final = ("filesystem", "filesystem_bytes", "growth")
"""What a report says of the file system on a device."""

MAX_OBSERVED = 1024
"""How many devices that others have made one host may report."""

MAX_ASKED = 64
"""How many requests for a report one report may answer."""

MAX_LINE = 255
"""How many characters a text of a report may have."""


class PathReport(TypedDict):
    """A path from a host to a volume.

    :ivar name: of the SCSI disk or NVMe controller
    :ivar state: "active" or "failed"
    """

    name: str
    state: str


class DeviceReport(TypedDict):
    """A device of a host, as its agent found it.

    :ivar attachment_id: of the attachment it was made for
    :ivar path: of the device; None: it is missing
    :ivar size_bytes: of the device; None: it is missing
    :ivar paths: to the volume; none of a missing device, and where the kernel shows none
    :ivar last_io_error: in words; None: none is known
    :ivar filesystem: the type of what is on it; None: nothing whose size is known
    :ivar filesystem_bytes: its size, when it was read last
    :ivar growth: how it is smaller than the device, and why, in words; None: it is not
    """

    attachment_id: str
    volume_id: str
    path: str | None
    size_bytes: int | None
    mountpoint: NotRequired[str | None]
    paths: NotRequired[list[PathReport]]
    last_io_error: NotRequired[str | None]
    filesystem: NotRequired[str | None]
    filesystem_bytes: NotRequired[int | None]
    growth: NotRequired[str | None]


class ObservedDevice(TypedDict):
    """A device of a host that its agent has not made, such as one of Compute.

    :ivar volume_id: by the name of its target; it may be one of another service
    :ivar attachment_id: by that name, or by the journal of the host; None: they do not say
    :ivar target: what the host is connected to by it
    :ivar path: of the device; None: the host is connected, and has no device
    :ivar size_bytes: of the device; None: it is missing
    :ivar paths: as of DeviceReport
    :ivar last_io_error: as of DeviceReport
    """

    volume_id: str
    attachment_id: str | None
    target: str
    path: str | None
    size_bytes: int | None
    mountpoint: NotRequired[str | None]
    paths: NotRequired[list[PathReport]]
    last_io_error: NotRequired[str | None]


class Observed(TypedDict):
    """What a host has that its agent has not made.

    :ivar devices: all of them whose target's name has the id of a volume
    :ivar asked: the last requests for a report that had arrived before it was made
    """

    devices: list[ObservedDevice]
    asked: list[str]


class ReportToken(TypedDict):
    """What a report says about its sender, see db/agents/machines.py.

    :ivar process: a random name of the process
    :ivar start: how many processes of the agent there were, by its journal
    :ivar number: of the report, in its process
    :ivar previous: the last token that was accepted, by the journal; None: the journal has none
    :ivar next: that of this report
    :ivar is_repeated: whether the answer to the report before was that it is old
    :ivar has_rival: whether answers have shown that another process reports at the same time
    :ivar is_known: whether a report of the process was accepted before
    """

    process: str
    start: int
    number: int
    previous: str | None
    next: str
    is_repeated: bool
    has_rival: bool
    is_known: bool


class HostReport(TypedDict):
    """What an agent reports about its host.

    :ivar connector: as os-brick's get_connector_properties(); None: nothing can be attached there
    :ivar connector_type: "kernel" or "user-space"
    :ivar version: of attachd
    :ivar error: a problem of the host, such as why nothing can be attached; None: none
    :ivar boot_id: of the operating system, drawn at each start
    :ivar stops_writers: whether the agent stops writers when its lease is over
    :ivar observed: None: the agent does not report what others have made, or cannot at present
    """

    connector: dict[str, Any] | None
    devices: list[DeviceReport]
    connector_type: str
    version: str
    error: str | None
    boot_id: str
    stops_writers: bool
    observed: Observed | None


class Report(HostReport):
    """What an agent reports.

    :ivar lease: the length of the lease that it holds, in seconds; None: it holds none
    :ivar machine_id: of the firmware or the operating system; None: the machine has none
    :ivar token: distinguishes a copy of the machine from the machine
    :ivar libvirt_secrets: whether the agent defines secrets of libvirt for Compute
    :ivar max_attachments: how many attachments the host can take; None: any number
    """

    lease: int | None
    machine_id: str | None
    token: ReportToken
    libvirt_secrets: bool
    max_attachments: int | None


class Renewal(TypedDict):
    """What an agent that stops writers reports when nothing is new.

    :ivar content_number: the number of its last report; the host is still as that one says
    :ivar desired: of the answer to that report, by desired_states.digest()
    :ivar boot_id: as of HostReport
    :ivar lease: as of Report
    :ivar machine_id: as of Report
    :ivar token: as of Report
    """

    content_number: int
    desired: str
    boot_id: str
    lease: int | None
    machine_id: str | None
    token: ReportToken


class DesiredState(TypedDict):
    """The desired state of one attachment.

    :ivar target_state: "connected": the device has to exist; "disconnected": it has to go;
        :data:`IN_LIBVIRT`: no device, but a secret of libvirt has to exist
    :ivar complete: whether the agent has reported the device, or the secret, already
    :ivar connection_info: flat, as the API shows it; {} in the answer to a report; for a secret
        only ``key``, in Base64
    :ivar secrets_withheld: whether secrets are missing in it: the host has got them before
    :ivar size_gib: of the volume, in GiB (2**30 bytes)
    :ivar generation: fencing token: reports about an older generation are refused
    :ivar lease: seconds from the moment when the report was sent, after which another host may
        get the volume; absent: without limit, or in another answer than that to a report
    :ivar shared: whether another host may have the device too; only of one attachment
    :ivar shared_targets: of the volume, with ``service_uuid``: as os-brick's guard of shared
        connections needs them
    """

    attachment_id: str
    volume_id: str
    target_state: str
    complete: bool
    connection_info: dict[str, Any]
    secrets_withheld: bool
    mode: str
    size_gib: int
    generation: int
    shared_targets: bool | None
    service_uuid: str | None
    lease: NotRequired[int]
    shared: NotRequired[bool]


class AgentCredentials(NamedTuple):
    """Host name and key of an agent.

    :ivar process: that of its reports
    """

    host: str
    key: str
    process: str


def report(
    credentials: AgentCredentials, said: Report, timeout: float = TIMEOUT
) -> list[DesiredState]:
    """Report the condition of a host, and return the desired state of all its attachments.

    :param timeout: seconds to wait for the answer
    :raises Forbidden: the host has another agent, or is unknown
    :raises HostFenced: it was not started again since it was fenced; if the agent stops writers
    :raises OldReport: a later report was accepted, or the former start of the host has reported a
        moment ago (EarlyRestart)
    :raises AgentConflict: another machine reports for the host, and its reports are accepted
    :raises MachineRefused: an administrator has refused this machine
    :raises Unavailable: no manager answers
    :raises TooLarge: the host has too many devices
    """
    desired: list[DesiredState] = _call(credentials, "report", timeout, report=_shorten(said))
    return desired


def renew(credentials: AgentCredentials, said: Renewal, timeout: float = TIMEOUT) -> bool:
    """Report that nothing is new, and renew the lease of the host for the same time.

    :param timeout: seconds to wait for the answer
    :returns: False: something is, so that the report was not accepted; :func:`report` is necessary
    :raises: as :func:`report`
    """
    accepted: bool = _call(credentials, "renew", timeout, renewal=said)
    return accepted


def _shorten(said: Report) -> Report:
    """Return a report that managers accept: without details of devices if it is too large.

    :raises TooLarge: it is too large without them
    """
    if _is_short(said):
        return said
    LOG.warning("The report is too large, and has no paths, mountpoints and errors of devices")
    details = {"paths", "last_io_error", "mountpoint", *FILESYSTEM_KEYS}
    devices: list[Any] = [
        {name: value for name, value in device.items() if name not in details}
        for device in said["devices"]
    ]
    observed: Any = said["observed"] and {
        **said["observed"],
        "devices": [
            {name: value for name, value in device.items() if name not in details}
            for device in said["observed"]["devices"]
        ],
    }
    shortened: Report = {**said, "devices": devices, "observed": observed}
    if not _is_short(shortened):
        # A part of them would look as if the others were gone.
        LOG.warning("The report is still too large, and has no devices that others have made")
        shortened = {**shortened, "observed": None}
    if not _is_short(shortened):
        raise exception.TooLarge(what="The report of the host", limit=MAX_REPORT_SIZE)
    return shortened


def _is_short(said: Report) -> bool:
    # JSON in the envelope of oslo.messaging, which is JSON.
    return len(json.dumps(json.dumps(said))) <= MAX_REPORT_SIZE - _ENVELOPE_SIZE


def desired_state(credentials: AgentCredentials, attachment_id: str) -> DesiredState | None:
    """Return the desired state of one attachment; None: it is not one of this host any more."""
    found: DesiredState | None = _call_as_process(
        credentials, "desired_state", attachment_id=attachment_id
    )
    return found


def connected(
    credentials: AgentCredentials, attachment_id: str, generation: int, device: str
) -> None:
    """Report that the device exists: the attachment is complete; or that the secret does.

    :param device: its path; of a secret its name
    :raises InvalidTransition: it is no longer to be connected, or has another generation
    """
    _call_as_process(
        credentials, "connected", attachment_id=attachment_id, generation=generation, device=device
    )


def failed(credentials: AgentCredentials, attachment_id: str, generation: int, error: str) -> None:
    """Report why the device is missing, or why it could not be removed; the agent will retry."""
    _call_as_process(
        credentials,
        "failed",
        attachment_id=attachment_id,
        generation=generation,
        error=error,
    )


def disconnected(credentials: AgentCredentials, attachment_id: str, generation: int) -> None:
    """Report that the device is gone: the backend may revoke the host's access."""
    _call_as_process(
        credentials, "disconnected", attachment_id=attachment_id, generation=generation
    )


def detach_refused(
    credentials: AgentCredentials, attachment_id: str, generation: int, error: str
) -> None:
    """Report why the device stays, such as a process using it: the attachment stays attached."""
    _call_as_process(
        credentials,
        "detach_refused",
        attachment_id=attachment_id,
        generation=generation,
        error=error,
    )


def _call_as_process(credentials: AgentCredentials, method: str, **arguments: Any) -> Any:
    """Call as the process whose report was accepted."""
    return _call(credentials, method, process=credentials.process, **arguments)


def _call(
    credentials: AgentCredentials, method: str, timeout: float = TIMEOUT, **arguments: Any
) -> Any:
    with _map_errors():
        client = agent_transport.get_registry_client(credentials.host, timeout, VERSION)
        return client.call(
            context.get_admin_context(),
            method,
            host=credentials.host,
            key=credentials.key,
            **arguments,
        )


@contextlib.contextmanager
def _map_errors() -> Iterator[None]:
    try:
        yield
    except PathCut as error:
        raise exception.Unavailable(
            reason=f"The message queue has no way to managers: {error}. The agent will retry."
        ) from error
    except (
        messaging.MessagingTimeout,
        messaging.MessageUndeliverable,
        messaging.MessageDeliveryFailure,
    ) as error:
        raise exception.Unavailable(reason="No manager answers. The agent will retry.") from error
