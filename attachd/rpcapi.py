# SPDX-License-Identifier: Apache-2.0
"""What the API can ask of a manager: the client half; manager/endpoint.py is the server half.

Version history of the contract:

* 1.0: attach, attach_alone, detach, create_volume, delete_volume, extend_volume
"""

from collections.abc import Iterator
import contextlib
from typing import Any, TypedDict

import oslo_messaging as messaging

from attachd import exception, service
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.objects import Attachment, Volume

VERSION = "1.0"


class Connected(TypedDict):
    """The answer to :func:`attach`.

    :ivar connection_info: as drivers.base.ConnectionInfo
    :ivar mode: "rw" or "ro", as the backend lets the host in
    """

    connection_info: dict[str, Any]
    mode: str


def attach(
    context: RequestContext, attachment: Attachment, connector: dict[str, Any]
) -> Connected:
    """Let the connector's host reach the volume, and wait for the backend to say so.

    An ordinary volume may be connected for the same server elsewhere at the same time, as it
    is while the server moves from host to host.

    :raises ConnectFailed: the backend did not; the attachment is in ``error_attaching``
    :raises ConnectorHeld: the attachment connects another host
    :raises DuplicateConnector: another server's attachment of an ordinary volume does
    :raises ManagerTimeout: no answer in time; the work may go on
    :raises Unavailable: the message could not be sent
    """
    return _connect(context, "attach", attachment, connector)


def attach_alone(
    context: RequestContext, attachment: Attachment, connector: dict[str, Any]
) -> Connected:
    """Do as :func:`attach`, but suffer no other connection of an ordinary volume at all.

    :raises DuplicateConnector: there is one
    """
    return _connect(context, "attach_alone", attachment, connector)


def _connect(
    context: RequestContext, method: str, attachment: Attachment, connector: dict[str, Any]
) -> Connected:
    with _translated(attachment.backend, f"attachment {attachment.id}"):
        answer: Connected = _client(attachment.backend).call(
            context,
            method,
            attachment_id=attachment.id,
            volume_id=attachment.volume_id,
            connector=connector,
        )
    return answer


def detach(context: RequestContext, attachment: Attachment) -> list[Attachment]:
    """Take the host's access away and delete the attachment.

    :returns: the volume's remaining attachments, without their secrets
    :raises DisconnectFailed: the backend did not; the attachment is in ``error_detaching``
    :raises ManagerTimeout: no answer in time; the work may go on
    :raises Unavailable: the message could not be sent
    """
    with _translated(attachment.backend, f"attachment {attachment.id}"):
        remaining: list[Attachment] = _client(attachment.backend).call(
            context, "detach", attachment_id=attachment.id, volume_id=attachment.volume_id
        )
    return remaining


def create_volume(context: RequestContext, volume: Volume) -> None:
    """Have the volume made; it becomes ``available`` or ``error``."""
    with _translated(volume.backend, f"volume {volume.id}"):
        _client(volume.backend).cast(context, "create_volume", volume=volume)


def delete_volume(context: RequestContext, volume: Volume) -> None:
    """Have the volume removed; it vanishes or becomes ``error_deleting``."""
    with _translated(volume.backend, f"volume {volume.id}"):
        _client(volume.backend).cast(context, "delete_volume", volume=volume)


def extend_volume(context: RequestContext, volume: Volume) -> None:
    """Have the volume grow to its row's ``new_size_gib``; or it becomes ``error_extending``."""
    with _translated(volume.backend, f"volume {volume.id}"):
        _client(volume.backend).cast(context, "extend_volume", volume=volume)


def _client(backend: str) -> Any:
    return service.client(backend, timeout=CONF.rpc.attach_timeout, version=VERSION)


@contextlib.contextmanager
def _translated(backend: str, about: str) -> Iterator[None]:
    """Say in our own terms what went wrong on the way to the manager.

    :param about: what the message is about; whoever creates it knows its id from here only
    """
    if not backend:
        raise exception.Conflict(reason="The volume has no backend yet; wait for its creation.")
    try:
        yield
    except messaging.MessagingTimeout:
        raise exception.ManagerTimeout(backend=backend, about=about) from None
    except messaging.MessageUndeliverable:
        raise exception.Unavailable(
            reason=f"No volume manager serves {backend} at present. Try again later."
        ) from None
    except messaging.MessageDeliveryFailure as error:
        raise exception.Unavailable(
            reason="The message queue does not answer. Try again later."
        ) from error
