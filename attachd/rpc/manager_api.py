# SPDX-License-Identifier: Apache-2.0
"""RPC client of a manager's backend; manager/endpoint.py is the server.

Version history of the contract:

* 1.0: attach, attach_exclusive, check_attach, detach, force_detach, finish_move,
  process_pending, initialize_connection, terminate_connections, compare_exports,
  compare_volume, get_persistent_reservation, create_volume, delete_volume, extend_volume,
  reimage_volume, upload_volume, manage_volume, unmanage_volume, revert_volume,
  create_snapshot, delete_snapshot, list_manageable, list_manageable_snapshots,
  get_manageable, get_manageable_snapshot, set_log_levels, get_log_levels

A manager of an older release is called in its own version (versions.py).  An argument that
it does not have is left out if it is empty; otherwise the request is refused until the manager is
upgraded.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
import contextlib
import copy
import enum
import json
from typing import Any, Final, NotRequired, TypedDict

from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db.secrets import encryption
from attachd.objects import Attachment, Volume
from attachd.rpc import bulkheads, versions
from attachd.rpc.versions import IntroducedIn, VersionedManagerClient, map_rpc_errors

VERSION = "1.0"

_INTRODUCED: Final[Mapping[str, IntroducedIn]] = {}
"""Methods that version 1.0 did not have, and methods with arguments that it did not have."""


class Connected(TypedDict):
    """The answer to :func:`attach` and to :func:`initialize_connection`.

    :ivar connection_info: as drivers.base.ConnectionInfo
    :ivar mode: "rw" or "ro", as the backend lets the host in
    :ivar is_repeated: True: the host was connected before; absent: by this call
    """

    connection_info: dict[str, Any]
    mode: str
    is_repeated: NotRequired[bool]


def attach(
    context: RequestContext,
    attachment: Attachment,
    connector: dict[str, Any],
    denied_rule: str | None = None,
) -> Connected:
    """Connect the host of a connector to the volume, and wait for the backend.

    A volume that is not multiattach may be connected for the same server on two hosts, as during a
    live migration.

    :param denied_rule: the policy rule that forbids the caller to share the volume, checked when a
        failed connect is repeated; None if the caller may
    :raises Forbidden: another attachment holds the volume, and ``denied_rule`` is given
    :raises ConnectFailed: the backend failed; the attachment is in ``error_attaching``
    :raises ConnectorConflict: the attachment connects another host
    :raises NotMultiattach: the volume is not multiattach, and connected for another server
    :raises TooManyCalls: the volume or the project has too many waiting calls
    :raises ManagerTimeout: no answer in time; the operation may continue
    :raises Unavailable: the message could not be sent, or too many calls wait for the backend
    """
    return _connect(context, "attach", attachment, connector, denied_rule)


def attach_exclusive(
    context: RequestContext,
    attachment: Attachment,
    connector: dict[str, Any],
    denied_rule: str | None = None,
) -> Connected:
    """Connect as :func:`attach`, if a volume that is not multiattach has no other connection.

    :raises NotMultiattach: it has one
    """
    return _connect(context, "attach_exclusive", attachment, connector, denied_rule)


def _connect(
    context: RequestContext,
    method: str,
    attachment: Attachment,
    connector: dict[str, Any],
    denied_rule: str | None,
) -> Connected:
    with _turn(
        context, attachment.backend, attachment.volume_id, f"attachment {attachment.id}"
    ) as manager:
        answer = manager.call(
            context,
            method,
            attachment_id=attachment.id,
            volume_id=attachment.volume_id,
            connector=connector,
            denied_rule=denied_rule,
            key_id=encryption.first_key_id(),
        )
    return _decrypted(answer)


def _decrypted(answer: Mapping[str, Any]) -> Connected:
    """Return the answer to a connect with its connection, which the message may have encrypted.

    :raises SecretUnreadable: this process lacks the manager's key
    """
    info = answer["connection_info"]
    if text := answer.get("encrypted"):
        info = json.loads(encryption.decrypt(text, "connection_info", answer["id"]))
    connected = Connected(connection_info=info, mode=answer["mode"])
    if answer.get("is_repeated"):
        connected["is_repeated"] = True
    return connected


def check_attach(
    context: RequestContext,
    volume: Volume,
    connector: dict[str, Any],
    values: dict[str, Any] | None,
) -> str | None:
    """Check that :func:`attach` could connect a host now; nothing is stored or granted.

    :param values: the columns of the attachment that would be reserved; None: only backend and
        connector are checked
    :returns: "rw" or "ro", as the backend would let the host in; None without ``values``
    :raises: as :func:`attach`, except ConnectFailed
    """
    with _turn(context, volume.backend, volume.id, f"volume {volume.id}") as manager:
        mode: str | None = manager.call(
            context, "check_attach", volume_id=volume.id, connector=connector, values=values
        )
    return mode


def detach(
    context: RequestContext, attachment: Attachment, states: Collection[str] | None = None
) -> list[Attachment]:
    """Revoke the host's access and delete the attachment.

    :param states: the states in which the manager may do it: those that the caller has checked;
        None: all
    :returns: the volume's remaining attachments: ``id``, ``volume_id``, ``state`` and
        ``instance_uuid`` of each
    :raises InvalidTransition: the attachment is in another state; nothing was done
    :raises DisconnectFailed: the backend failed; the attachment is in ``error_detaching``
    :raises TooManyCalls: the volume or the project has too many waiting calls
    :raises ManagerTimeout: no answer in time; the operation may continue
    :raises Unavailable: the message could not be sent, or too many calls wait for the backend
    """
    return _disconnect(context, "detach", attachment, states)


def force_detach(
    context: RequestContext, attachment: Attachment, states: Collection[str] | None = None
) -> list[Attachment]:
    """Detach as :func:`detach`, and leave a message to the attachment's owner about the caller.

    :raises: as :func:`detach`
    """
    return _disconnect(context, "force_detach", attachment, states)


def _disconnect(
    context: RequestContext, method: str, attachment: Attachment, states: Collection[str] | None
) -> list[Attachment]:
    with _turn(
        context, attachment.backend, attachment.volume_id, f"attachment {attachment.id}"
    ) as manager:
        remaining: list[Attachment] = manager.call(
            context,
            method,
            attachment_id=attachment.id,
            volume_id=attachment.volume_id,
            states=None if states is None else sorted(states),
        )
    return remaining


FENCING: Final = "fencing"
"""The capability of a backend that is a value of :class:`Fencing`."""


class Fencing(enum.StrEnum):
    """How sure it is that a host has no access any more, after its attachment was fenced."""

    PROVED = "proved"
    """The backend lists neither the host nor a session of it."""
    ASSERTED = "asserted"
    """The backend says so, and cannot list who has access."""
    NONE = "none"
    """A host that has the volume open may keep it."""


NO_FENCING: Final = (
    "Backend {backend} cannot end the access of a host (fencing: none). Turn the host off, and "
    "then delete attachment {attachment_id} by force."
)
"""Why an attachment of a backend without fencing is not fenced, and what to do."""


def finish_move(context: RequestContext, attachment: Attachment) -> str:
    """End the access of the attachment that another one takes over from, and let that one write.

    :param attachment: the destination; if its move is finished, nothing is done
    :returns: the mode of its host
    :raises AttachmentNotFound: it is deleted
    :raises Conflict: its source cannot be ended now; nothing was done
    :raises DisconnectFailed: the host of the source may still have access; the source is in
        ``error_detaching``, and is tried again
    :raises MoveFailed: the source has ended, and the destination only reads; it is tried again
    :raises TooManyCalls: the volume or the project has too many waiting calls
    :raises ManagerTimeout: no answer in time; the operation may continue
    :raises Unavailable: the message could not be sent, or too many calls wait for the backend
    """
    with _turn(
        context, attachment.backend, attachment.volume_id, f"attachment {attachment.id}"
    ) as manager:
        mode: str = manager.call(
            context, "finish_move", attachment_id=attachment.id, volume_id=attachment.volume_id
        )
    return mode


def process_pending(context: RequestContext, attachment: Attachment) -> None:
    """Request the connect or disconnect that the attachment's row records as pending.

    The row shows the result.

    :raises Unavailable: the message could not be sent; a manager finds the row by itself later
    """
    with map_rpc_errors(attachment.backend, f"attachment {attachment.id}"):
        about = copy.copy(context)
        about.resource_uuid = attachment.volume_id  # by which the manager queues the message
        _manager(attachment.backend).cast(about, "process_pending", attachment_id=attachment.id)


def initialize_connection(
    context: RequestContext,
    volume: Volume,
    connector: dict[str, Any],
    denied_rule: str | None = None,
) -> Connected:
    """Connect the host of a connector to the volume, for an attachment that may follow.

    A host that is connected already gets the same answer.

    :param denied_rule: the policy rule that forbids the caller to share the volume; None if the
        caller may
    :raises Forbidden: another attachment holds the volume, and ``denied_rule`` is given
    :raises InvalidVolume: another caller holds the volume, or its state does not allow it
    :raises InitializeConnectionFailed: the backend failed
    :raises TooManyCalls: the volume or the project has too many waiting calls
    :raises ManagerTimeout: no answer in time; the operation may continue
    :raises Unavailable: the message could not be sent, or too many calls wait for the backend
    """
    with _turn(context, volume.backend, volume.id, f"volume {volume.id}") as manager:
        answer = manager.call(
            context,
            "initialize_connection",
            volume=volume,
            connector=connector,
            denied_rule=denied_rule,
            key_id=encryption.first_key_id(),
        )
    return _decrypted(answer)


def terminate_connections(
    context: RequestContext,
    volume: Volume,
    connector: dict[str, Any] | None,
    attachment_ids: Sequence[str] | None,
    connection_ids: Collection[str] | None = None,
) -> int:
    """Revoke access that :func:`initialize_connection` granted, and cancel the holds of it.

    :param connector: of the host; None: all hosts
    :param attachment_ids: only connections of these attachments, and those of none; None: all
    :param connection_ids: only these; None: all
    :returns: number of connections that were terminated
    :raises TerminateConnectionFailed: the backend failed
    :raises TooManyCalls: the volume or the project has too many waiting calls
    :raises ManagerTimeout: no answer in time; the operation may continue
    :raises Unavailable: the message could not be sent, or too many calls wait for the backend
    """
    with _turn(context, volume.backend, volume.id, f"volume {volume.id}") as manager:
        closed: int = manager.call(
            context,
            "terminate_connections",
            volume_id=volume.id,
            connector=connector,
            attachment_ids=None if attachment_ids is None else list(attachment_ids),
            connection_ids=None if connection_ids is None else sorted(connection_ids),
        )
    return closed


def compare_exports(context: RequestContext, volume: Volume) -> list[str]:
    """Return how the backend's exports of a volume differ from its attachments.

    :returns: a sentence for each difference; none also if the driver cannot list exports
    :raises TooManyCalls: the volume or the project has too many waiting calls
    :raises ManagerTimeout: no answer in time
    :raises Unavailable: the backend or its manager does not answer
    """
    with _turn(context, volume.backend, volume.id, f"volume {volume.id}") as manager:
        found: list[str] = manager.call(context, "compare_exports", volume_id=volume.id)
    return found


def compare_volume(context: RequestContext, volume: Volume) -> list[str]:
    """Return whether the backend lacks the data of a volume, and as :func:`compare_exports`.

    :returns: a sentence for each difference
    :raises: as :func:`compare_exports`
    """
    with _turn(context, volume.backend, volume.id, f"volume {volume.id}") as manager:
        found: list[str] = manager.call(context, "compare_volume", volume_id=volume.id)
    return found


class PersistentReservation(TypedDict):
    """The reservation of a volume.

    :ivar holder: name of the host, as drivers.abilities.PersistentReservation
    :ivar type: as the backend calls it
    :ivar attachment_ids: of the attachments to that host
    """

    holder: str
    type: str
    attachment_ids: list[str]


def get_persistent_reservation(
    context: RequestContext, volume: Volume
) -> PersistentReservation | None:
    """Return the persistent reservation of a volume; None: no host holds one.

    :raises AbilityMissing: the driver cannot show reservations
    :raises VolumeNotFound: it does not exist any more
    :raises: as :func:`compare_exports`
    """
    with _turn(context, volume.backend, volume.id, f"volume {volume.id}") as manager:
        found: PersistentReservation | None = manager.call(
            context, "get_persistent_reservation", volume_id=volume.id
        )
    return found


def create_volume(context: RequestContext, volume: Volume) -> None:
    """Request creation of the volume; it becomes ``available`` or ``error``."""
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        _manager(volume.backend).cast(context, "create_volume", volume=volume)


def delete_volume(context: RequestContext, volume: Volume) -> None:
    """Request deletion of the volume; its row disappears or becomes ``error_deleting``."""
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        _manager(volume.backend).cast(context, "delete_volume", volume=volume)


def extend_volume(context: RequestContext, volume: Volume) -> None:
    """Request growth to the row's ``new_size_gib``; on failure it becomes ``error_extending``."""
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        _manager(volume.backend).cast(context, "extend_volume", volume=volume)


def reimage_volume(context: RequestContext, volume: Volume) -> None:
    """Request that the row's image is written to the volume; on failure it becomes ``error``."""
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        _manager(volume.backend).cast(context, "reimage_volume", volume=volume)


def upload_volume(context: RequestContext, volume: Volume) -> None:
    """Request that the volume is sent to the image of the row's ``upload_image_id``."""
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        _manager(volume.backend).cast(context, "upload_volume", volume=volume)


def manage_volume(context: RequestContext, volume: Volume) -> None:
    """Request that the object of the row becomes the volume, or it is ``error_managing``."""
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        _manager(volume.backend).cast(context, "manage_volume", volume=volume)


def unmanage_volume(context: RequestContext, volume: Volume) -> None:
    """Request that the row disappears and the data stays, or it is ``error_unmanaging``."""
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        _manager(volume.backend).cast(context, "unmanage_volume", volume=volume)


def revert_volume(context: RequestContext, volume: Volume) -> None:
    """Request that a volume gets the data of the snapshot that is ``restoring``."""
    with map_rpc_errors(volume.backend, f"volume {volume.id}"):
        _manager(volume.backend).cast(context, "revert_volume", volume=volume)


def create_snapshot(context: RequestContext, host: str, snapshot_id: str) -> None:
    """Request the snapshot at ``host@backend``; it becomes ``available`` or ``error``."""
    _cast_for_snapshot(context, host, "create_snapshot", snapshot_id)


def delete_snapshot(context: RequestContext, host: str, snapshot_id: str) -> None:
    """Request deletion of a snapshot; its row disappears or becomes ``error_deleting``."""
    _cast_for_snapshot(context, host, "delete_snapshot", snapshot_id)


def _cast_for_snapshot(context: RequestContext, host: str, method: str, snapshot_id: str) -> None:
    with map_rpc_errors(host, f"snapshot {snapshot_id}"):
        about = copy.copy(context)
        about.resource_uuid = snapshot_id  # It does not wait for calls of its volume.
        _manager(host).cast(about, method, snapshot_id=snapshot_id)


class Manageable(TypedDict):
    """A volume, or an object that may become one.

    :ivar reference: its name at the backend, as drivers define it
    :ivar refusal: why it cannot be managed; "": it can
    :ivar volume_id: of the volume that it is; "": none
    :ivar pool: "": the backend has only one
    """

    reference: dict[str, str]
    size_bytes: int
    refusal: str
    volume_id: str
    pool: str


def list_manageable(context: RequestContext, host: str) -> list[Manageable]:
    """List the volumes and the objects of ``host@backend``.

    :raises AbilityMissing: its driver cannot manage objects
    :raises TooManyCalls: the project has too many waiting calls
    :raises ManagerTimeout: no answer in time
    :raises Unavailable: the backend or its manager does not answer
    """
    with _turn(context, host, None, "its objects") as manager:
        found: list[Manageable] = manager.call(context, "list_manageable")
    return found


class ManageableSnapshot(TypedDict):
    """A snapshot, or an object that may become one.

    :ivar reference: its name at the backend, as drivers define it
    :ivar refusal: why it cannot be managed; "": it can
    :ivar snapshot_id: of the snapshot that it is; "": none
    :ivar volume_id: of the volume of which it is; "": the driver does not know it
    """

    reference: dict[str, str]
    size_bytes: int
    refusal: str
    snapshot_id: str
    volume_id: str


def list_manageable_snapshots(context: RequestContext, host: str) -> list[ManageableSnapshot]:
    """List the snapshots and the objects of ``host@backend`` that may become some.

    :raises: as :func:`list_manageable`
    """
    with _turn(context, host, None, "its snapshots") as manager:
        found: list[ManageableSnapshot] = manager.call(context, "list_manageable_snapshots")
    return found


def get_manageable(context: RequestContext, host: str, reference: dict[str, str]) -> Manageable:
    """Return one object of ``host@backend``.

    :raises InvalidInput: of the field "ref": there is no such object
    :raises: as :func:`list_manageable`
    """
    with _turn(context, host, None, "its objects") as manager:
        found: Manageable = manager.call(context, "get_manageable", reference=reference)
    return found


def get_manageable_snapshot(
    context: RequestContext, host: str, volume_id: str, reference: dict[str, str]
) -> ManageableSnapshot:
    """Return one object of ``host@backend`` of which a snapshot of a volume is to be made.

    :raises InvalidInput: of the field "ref": there is no such object
    :raises: as :func:`list_manageable`
    """
    with _turn(context, host, None, "its snapshots") as manager:
        found: ManageableSnapshot = manager.call(
            context, "get_manageable_snapshot", volume_id=volume_id, reference=reference
        )
    return found


def set_log_levels(
    context: RequestContext, hosts: Collection[str], prefix: str, level: str
) -> None:
    """Set the level of loggers in every process that serves one of these backends.

    :param hosts: ``host@backend`` each
    :param prefix: of the names of loggers, as in log_levels.change()
    :param level: as in log_levels.change()
    :raises Unavailable: the message could not be sent
    """
    with map_rpc_errors(", ".join(hosts), "their log levels"):
        all_managers = versions.get_fanout_client(VERSION, _INTRODUCED)
        all_managers.cast(context, "set_log_levels", hosts=list(hosts), prefix=prefix, level=level)


def get_log_levels(context: RequestContext, host: str, prefix: str) -> dict[str, str]:
    """Return the levels of loggers in one of the processes that serve a backend.

    :param prefix: of the names of loggers, as in log_levels.current()
    :raises TooManyCalls: the project has too many waiting calls
    :raises ManagerTimeout: no answer in time
    :raises Unavailable: the message could not be sent, or too many calls wait for the backend
    """
    with _turn(context, host, None, "its log levels") as manager:
        levels: dict[str, str] = manager.call(context, "get_log_levels", prefix=prefix)
    return levels


@contextlib.contextmanager
def _turn(
    context: RequestContext, backend: str, volume_id: str | None, about: str
) -> Iterator[VersionedManagerClient]:
    """Map errors of a call, and wait for its turn; return the manager, to be called once.

    The wait is part of [rpc]attach_timeout.

    :param about: as of map_rpc_errors()
    """
    slot = bulkheads.slot(backend, volume_id, context.project_id)
    with map_rpc_errors(backend, about), slot as waited:
        yield _manager(backend, waited)


def _manager(backend: str, waited: float = 0.0) -> VersionedManagerClient:
    """Return a client of the managers of a backend.

    :param waited: by how many seconds its time limit is shorter
    """
    timeout = CONF.rpc.attach_timeout - int(waited)
    return versions.get_client(backend, VERSION, _INTRODUCED, timeout)
