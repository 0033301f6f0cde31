# SPDX-License-Identifier: Apache-2.0
"""What the API can ask of a manager: the client half; manager/endpoint.py is the server half.

Version history of the contract:

* 1.0: attach, attach_alone, detach, create_volume, delete_volume, extend_volume
* 1.1: volumes tell where they were copied from, and whether they may be written
* 1.2: set_log_levels, get_log_levels
* 1.3: open_connection, close_connections; attachments tell of what kind they are
* 1.4: detach names the states in which it may; force_detach
* 1.5: close_connections names which
* 1.6: attach, attach_alone and open_connection tell what the caller is denied
* 1.7: carry_on; attachments have agents, and can be withdrawn from them

A manager of a former release is asked by its own version (managers.py): an argument that it
does not know is left out where it says nothing, or where the answer is as good as it was in that
release; else the request is refused until the manager is of this release.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypedDict

from attachd.context import RequestContext
from attachd.objects import Attachment, Volume
from attachd.rpc import transport, version_compat
from attachd.rpc.version_compat import IntroducedIn, VersionedManagerClient, map_rpc_errors

VERSION = "1.7"

_SINCE: Final[Mapping[str, IntroducedIn]] = {
    "attach": IntroducedIn(arguments={"denied": "1.6"}),
    "attach_alone": IntroducedIn(arguments={"denied": "1.6"}),
    "detach": IntroducedIn(arguments={"states": "1.4"}),
    "force_detach": IntroducedIn("1.4"),
    "create_volume": IntroducedIn(),
    "delete_volume": IntroducedIn(),
    "extend_volume": IntroducedIn(),
    "set_log_levels": IntroducedIn("1.2"),
    "get_log_levels": IntroducedIn("1.2"),
    "open_connection": IntroducedIn("1.3", {"denied": "1.6"}),
    "close_connections": IntroducedIn("1.3", {"connection_ids": "1.5"}),
    "carry_on": IntroducedIn("1.7"),
}


class Connected(TypedDict):
    """The answer to :func:`attach` and to :func:`open_connection`.

    :ivar connection_info: as drivers.base.ConnectionInfo
    :ivar mode: "rw" or "ro", as the backend lets the host in
    """

    connection_info: dict[str, Any]
    mode: str


def attach(
    context: RequestContext,
    attachment: Attachment,
    connector: dict[str, Any],
    denied: str = "",
) -> Connected:
    """Let the connector's host reach the volume, and wait for the backend to say so.

    An ordinary volume may be connected for the same server elsewhere at the same time, as it
    is while the server moves from host to host.

    :param denied: the rule by which the caller must not be one of several, asked where a connect
        that had failed is repeated; "" if they may
    :raises Forbidden: somebody else is there by now, and ``denied`` names a rule
    :raises ConnectFailed: the backend did not; the attachment is in ``error_attaching``
    :raises ConnectorHeld: the attachment connects another host
    :raises DuplicateConnector: another server's attachment of an ordinary volume does
    :raises ManagerTimeout: no answer in time; the work may go on
    :raises Unavailable: the message could not be sent
    """
    return _connect(context, "attach", attachment, connector, denied)


def attach_alone(
    context: RequestContext,
    attachment: Attachment,
    connector: dict[str, Any],
    denied: str = "",
) -> Connected:
    """Do as :func:`attach`, but suffer no other connection of an ordinary volume at all.

    :raises DuplicateConnector: there is one
    """
    return _connect(context, "attach_alone", attachment, connector, denied)


def _connect(
    context: RequestContext,
    method: str,
    attachment: Attachment,
    connector: dict[str, Any],
    denied: str,
) -> Connected:
    with map_rpc_errors(attachment.backend, f"attachment {attachment.id}"):
        answer: Connected = _manager(attachment.backend).call(
            context,
            method,
            attachment_id=attachment.id,
            volume_id=attachment.volume_id,
            connector=connector,
            denied=denied,
        )
    return answer


def detach(
    context: RequestContext, attachment: Attachment, states: Collection[str] | None = None
) -> list[Attachment]:
    """Take the host's access away and delete the attachment.

    :param states: only if it is in one of these by then: whoever decided that it may go has seen
        no other; None: in whatever state it is
    :returns: the volume's remaining attachments, without their secrets
    :raises InvalidTransition: it is in another state by then; nothing was done
    :raises DisconnectFailed: the backend did not; the attachment is in ``error_detaching``
    :raises ManagerTimeout: no answer in time; the work may go on
    :raises Unavailable: the message could not be sent
    """
    return _disconnect(context, "detach", attachment, states)


def force_detach(
    context: RequestContext, attachment: Attachment, states: Collection[str] | None = None
) -> list[Attachment]:
    """Do as :func:`detach`, and tell the attachment's owner who had it done.

    :raises: as :func:`detach`
    """
    return _disconnect(context, "force_detach", attachment, states)


def _disconnect(
    context: RequestContext, method: str, attachment: Attachment, states: Collection[str] | None
) -> list[Attachment]:
    with map_rpc_errors(attachment.backend, f"attachment {attachment.id}"):
        manager = _manager(attachment.backend)
        if method == "force_detach" and not manager.knows(method):
            method = "detach"  # its owner is not told by whom
        remaining: list[Attachment] = manager.call(
            context,
            method,
            attachment_id=attachment.id,
            volume_id=attachment.volume_id,
            # It was in one of these a moment ago, which had to do in former releases.
            **manager.drop_unsupported(method, states=None if states is None else sorted(states)),
        )
    return remaining


def carry_on(context: RequestContext, attachment: Attachment) -> None:
    """Have done, by and by, what the attachment's row says is due: a connect or a disconnect.

    How it ends shows in the row.

    :raises Unavailable: the message could not be sent; a manager finds the row by itself, later
    """
    with map_rpc_errors(attachment.backend, f"attachment {attachment.id}"):
        _manager(attachment.backend).cast(context, "carry_on", attachment_id=attachment.id)


def open_connection(
    context: RequestContext, volume: Volume, connector: dict[str, Any], denied: str = ""
) -> Connected:
    """Let the connector's host reach the volume, before anybody has told what for.

    A host that does reach it already gets the same answer.

    :param denied: the rule by which the caller must not be one of several; "" if they may
    :raises Forbidden: somebody else is there already, and ``denied`` names a rule
    :raises InvalidVolume: the volume is in other hands, or in no state for it
    :raises ConnectionNotOpened: the backend did not
    :raises ManagerTimeout: no answer in time; the work may go on
    :raises Unavailable: the message could not be sent
    """
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        answer: Connected = _manager(volume.backend).call(
            context, "open_connection", volume=volume, connector=connector, denied=denied
        )
    return answer


def close_connections(
    context: RequestContext,
    volume: Volume,
    connector: dict[str, Any] | None,
    attachment_ids: Sequence[str] | None,
    connection_ids: Collection[str] | None = None,
) -> int:
    """Take access away that :func:`open_connection` gave, and the holds back that came with it.

    :param connector: of the host; None: whatever hosts there are
    :param attachment_ids: only what serves one of these attachments, or none at all; None:
        whatever it serves
    :param connection_ids: only these; None: whichever there are
    :returns: how many connections were closed
    :raises ConnectionNotClosed: the backend did not
    :raises ManagerTimeout: no answer in time; the work may go on
    :raises Unavailable: the message could not be sent
    """
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        manager = _manager(volume.backend)
        which = {"connection_ids": None if connection_ids is None else sorted(connection_ids)}
        if not manager.knows("close_connections", "connection_ids") and connection_ids is not None:
            # Where the volume has one user, these are all there are.
            which = which if volume.multiattach else {}
        closed: int = manager.call(
            context,
            "close_connections",
            volume_id=volume.id,
            connector=connector,
            attachment_ids=None if attachment_ids is None else list(attachment_ids),
            **which,
        )
    return closed


def create_volume(context: RequestContext, volume: Volume) -> None:
    """Have the volume made; it becomes ``available`` or ``error``."""
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        manager = _manager(volume.backend)
        if volume.obj_attr_is_set("source_volid") and volume.source_volid is not None:
            manager.check("1.1")  # an older one would make an empty volume
        manager.cast(context, "create_volume", volume=volume)


def delete_volume(context: RequestContext, volume: Volume) -> None:
    """Have the volume removed; it vanishes or becomes ``error_deleting``."""
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        _manager(volume.backend).cast(context, "delete_volume", volume=volume)


def extend_volume(context: RequestContext, volume: Volume) -> None:
    """Have the volume grow to its row's ``new_size_gib``; or it becomes ``error_extending``."""
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        _manager(volume.backend).cast(context, "extend_volume", volume=volume)


def set_log_levels(
    context: RequestContext, hosts: Collection[str], prefix: str, level: str
) -> None:
    """Have every process that works on one of these backends log more or less.

    :param hosts: ``host@backend`` each
    :param prefix: of the names of loggers, as of log_levels.change(); so is ``level``
    :raises Unavailable: the message could not be sent
    """
    with map_rpc_errors(", ".join(hosts), "their log levels"):
        all_managers = transport.get_fanout_client(
            version_compat.contract_of_all(VERSION, _SINCE["set_log_levels"])
        )
        all_managers.cast(context, "set_log_levels", hosts=list(hosts), prefix=prefix, level=level)


def get_log_levels(context: RequestContext, host: str, prefix: str) -> dict[str, str]:
    """Return the levels of loggers in one of the processes that work on a backend.

    :param prefix: of the names of loggers, as of log_levels.current()
    :raises ManagerTimeout: no answer in time
    :raises Unavailable: the message could not be sent
    """
    with map_rpc_errors(host, "its log levels"):
        levels: dict[str, str] = _manager(host).call(context, "get_log_levels", prefix=prefix)
    return levels


def _manager(backend: str) -> VersionedManagerClient:
    return VersionedManagerClient(backend, VERSION, _SINCE)
