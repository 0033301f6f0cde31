# SPDX-License-Identifier: Apache-2.0
"""What an agent asks of the service: the client half; manager/agents/endpoint.py answers.

Each message names the host and shows its key.  Only who has the key of a host learns what that is
to connect to, and says what it has connected.

Version history of the contract:

* 1.0: report, duty, connected, not_connected, disconnected, kept
"""

from collections.abc import Iterator
import contextlib
from typing import Any, NamedTuple, NotRequired, TypedDict

import oslo_messaging as messaging

from attachd import context, exception
from attachd.conf import CONF
from attachd.rpc import transport

VERSION = "1.0"

TIMEOUT = 30
"""Seconds that an agent waits for an answer: the service only reads and writes a few rows.

A report whose answer is lost must not make its agent count as away, see [agent] down_time."""


class DeviceReport(TypedDict):
    """A device of a host, as its agent found it.

    :ivar attachment_id: that it was made for
    :ivar path: of the device; None: there is none, although there should be
    :ivar size_bytes: of the device; None: there is none
    """

    attachment_id: str
    volume_id: str
    path: str | None
    size_bytes: int | None
    mountpoint: NotRequired[str | None]


class Report(TypedDict):
    """What an agent says of its host.

    :ivar connector: as os-brick's get_connector_properties(); None: nothing can be attached there
    :ivar way: "kernel" or "user-space"
    :ivar version: of attachd
    :ivar error: what is wrong there, such as why nothing can be attached; None: nothing
    """

    connector: dict[str, Any] | None
    devices: list[DeviceReport]
    way: str
    version: str
    error: str | None


class Duty(TypedDict):
    """What is due for one attachment.

    :ivar wanted: "connected": there is to be a device; "disconnected": it is to go
    :ivar complete: whether it has been said already that the device is there
    :ivar connection_info: flat, as the API shows it, with secrets
    :ivar size_gib: of the volume, in GiB (2**30 bytes)
    :ivar generation: fences: what is said of an older one is not heard
    :ivar shared_targets: of the volume, with ``service_uuid``: what os-brick's guard goes by
    """

    attachment_id: str
    volume_id: str
    wanted: str
    complete: bool
    connection_info: dict[str, Any]
    mode: str
    size_gib: int
    generation: int
    shared_targets: bool | None
    service_uuid: str | None


class Proof(NamedTuple):
    """Who speaks."""

    host: str
    key: str


def report(proof: Proof, said: Report) -> list[Duty]:
    """Say how a host is, and return all that is due there.

    :raises Forbidden: another one is the host's agent, or nobody knows the host
    :raises Unavailable: nobody answers
    """
    duties: list[Duty] = _call(proof, "report", report=said)
    return duties


def duty(proof: Proof, attachment_id: str) -> Duty | None:
    """Return what is due for one attachment; None: it is nothing of this host (any more)."""
    found: Duty | None = _call(proof, "duty", attachment_id=attachment_id)
    return found


def connected(proof: Proof, attachment_id: str, generation: int, device: str) -> None:
    """Say that the device is there: the attachment is complete.

    :raises InvalidTransition: it is not wanted any more, or not in this generation
    """
    _call(proof, "connected", attachment_id=attachment_id, generation=generation, device=device)


def not_connected(proof: Proof, attachment_id: str, generation: int, error: str) -> None:
    """Say why there is no device, or why one that is to go is still there; that is tried again."""
    _call(proof, "not_connected", attachment_id=attachment_id, generation=generation, error=error)


def disconnected(proof: Proof, attachment_id: str, generation: int) -> None:
    """Prove that the device is gone: the backend may shut the host out."""
    _call(proof, "disconnected", attachment_id=attachment_id, generation=generation)


def kept(proof: Proof, attachment_id: str, generation: int, error: str) -> None:
    """Say why the device has to stay, such as who uses it: the attachment stays attached."""
    _call(proof, "kept", attachment_id=attachment_id, generation=generation, error=error)


def _call(proof: Proof, method: str, **arguments: Any) -> Any:
    with _translated():
        client = transport.get_topic_client(CONF.agent.registry_topic, None, TIMEOUT, VERSION)
        return client.call(context.admin(), method, host=proof.host, key=proof.key, **arguments)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (
        messaging.MessagingTimeout,
        messaging.MessageUndeliverable,
        messaging.MessageDeliveryFailure,
    ) as error:
        raise exception.Unavailable(
            reason="No manager answers to this agent. It goes on trying."
        ) from error
