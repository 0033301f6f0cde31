# SPDX-License-Identifier: Apache-2.0
"""The table of states, events and transitions; read by db, manager, api and the documentation.

An attachment, a volume and a snapshot each have an *inner* state, which determines what recovery
does, and a *wire* name, which is that of the Block Storage API v3.  A volume's ``status`` and
``attach_status`` are never set directly: :func:`derive` computes both from the volume's own
state and the states of its attachments, in the transaction that changes either.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import enum
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=enum.StrEnum)


class AttachmentState(enum.StrEnum):
    """State of an attachment; stored in ``attachments.state``."""

    HELD = "held"
    RESERVED = "reserved"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    ATTACHED = "attached"
    WITHDRAWING = "withdrawing"
    DISCONNECTING = "disconnecting"
    CONNECT_FAILED = "connect_failed"
    CONNECT_UNKNOWN = "connect_unknown"
    DISCONNECT_FAILED = "disconnect_failed"

    @property
    def wire(self) -> str:
        """The name of this state in the Block Storage API."""
        return _ATTACHMENT_WIRE[self]


_ATTACHMENT_WIRE: Mapping[AttachmentState, str] = MappingProxyType(
    {
        AttachmentState.HELD: "attaching",
        AttachmentState.RESERVED: "reserved",
        AttachmentState.CONNECTING: "attaching",
        AttachmentState.CONNECTED: "attaching",
        AttachmentState.ATTACHED: "attached",
        AttachmentState.WITHDRAWING: "detaching",
        AttachmentState.DISCONNECTING: "detaching",
        AttachmentState.CONNECT_FAILED: "error_attaching",
        AttachmentState.CONNECT_UNKNOWN: "error_attaching",
        AttachmentState.DISCONNECT_FAILED: "error_detaching",
    }
)

INACTIVE = frozenset({AttachmentState.CONNECT_FAILED})
"""States in which the host surely cannot reach the volume, and does not reserve it."""

ESTABLISHED = frozenset({AttachmentState.CONNECTED, AttachmentState.ATTACHED})
"""States in which access was granted, if a host was named, and is to stay."""

WITH_ACCESS = ESTABLISHED | {AttachmentState.WITHDRAWING}
"""States in which access was granted: a host that is about to detach may write until then."""

LIVE = WITH_ACCESS | {AttachmentState.CONNECTING}
"""States in which a host has access, or is being granted access, and should have it."""

ACCESS_UNKNOWN = frozenset({AttachmentState.CONNECT_UNKNOWN, AttachmentState.DISCONNECT_FAILED})
"""States in which the host may still reach the volume although it should not."""

CONNECTOR_FIXED = (
    WITH_ACCESS
    | ACCESS_UNKNOWN
    | {
        AttachmentState.CONNECTING,
        AttachmentState.DISCONNECTING,
    }
)
"""States in which a host has access or may have it: its connector cannot change any more."""

NOT_CONNECTED = frozenset({AttachmentState.RESERVED, AttachmentState.CONNECT_FAILED})
"""States in which no host has access, and a connect adds one to those of the volume."""

DETACHING = frozenset({AttachmentState.DISCONNECTING, AttachmentState.DISCONNECT_FAILED})
"""States of an attachment that is being removed."""


class AttachmentKind(enum.StrEnum):
    """What a row of attachments stands for; stored in ``attachments.kind``.

    The older calls for attaching reserve a volume, connect a host and record an attachment
    separately.  Each of them has a row of its own: a *hold* of os-reserve, a *connection* of
    os-initialize_connection, a *legacy* attachment of os-attach.
    """

    ATTACHMENT = "attachment"
    LEGACY = "legacy"
    CONNECTION = "connection"
    HOLD = "hold"


VISIBLE_KINDS = frozenset({AttachmentKind.ATTACHMENT, AttachmentKind.LEGACY})
"""The kinds that clients see as attachments."""


class ConditionState(enum.StrEnum):
    """How well an attached host reaches its volume, as managers observe it."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"
    UNKNOWN = "unknown"


class VolumeState(enum.StrEnum):
    """State of a volume itself; stored in ``volumes.state``."""

    CREATING = "creating"
    READY = "ready"
    EXTENDING = "extending"
    DELETING = "deleting"
    MANAGING = "managing"
    UNMANAGING = "unmanaging"
    REVERTING = "reverting"
    DOWNLOADING = "downloading"
    UPLOADING = "uploading"
    MAINTENANCE = "maintenance"
    AWAITING_TRANSFER = "awaiting-transfer"
    ERROR = "error"
    ERROR_DELETING = "error_deleting"
    ERROR_EXTENDING = "error_extending"
    ERROR_MANAGING = "error_managing"
    ERROR_UNMANAGING = "error_unmanaging"


BEING_REMOVED = frozenset({VolumeState.DELETING, VolumeState.UNMANAGING})
"""States in which the backend removes a volume, and then its row goes."""


class SnapshotState(enum.StrEnum):
    """State of a snapshot; stored in ``snapshots.state``, and its status on the wire."""

    CREATING = "creating"
    AVAILABLE = "available"
    DELETING = "deleting"
    RESTORING = "restoring"
    UNMANAGING = "unmanaging"
    ERROR = "error"
    ERROR_DELETING = "error_deleting"


class Event(enum.StrEnum):
    """What happens to an attachment, a volume or a snapshot; messages put it after "cannot"."""

    CONNECT = "connect"
    GRANTED = "be granted"
    CONNECT_FAILED = "fail to connect"
    CONNECT_LOST = "lose its connect"
    COMPLETE = "be completed"
    CANCEL = "be cancelled"
    RELEASE = "be released"
    WITHDRAW = "be withdrawn from its host"
    REFUSE_DETACH = "stay on its host"
    DISCONNECT = "disconnect"
    REVOKED = "be revoked"
    DISCONNECT_FAILED = "fail to disconnect"

    CREATED = "be created"
    CREATE_FAILED = "fail to be created"
    DELETE = "be deleted"
    DELETED = "be removed"
    DELETE_FAILED = "fail to be deleted"
    EXTEND = "be extended"
    EXTENDED = "have grown"
    EXTEND_FAILED = "fail to grow"
    EXTEND_LOST = "lose its growth"
    EXTEND_RESOLVED = "have its size confirmed"
    MANAGED = "be managed"
    MANAGE_FAILED = "fail to be managed"
    UNMANAGE = "be unmanaged"
    UNMANAGED = "be removed without its data"
    UNMANAGE_FAILED = "fail to be unmanaged"
    REVERT = "be reverted"
    REVERTED = "have its former data"
    REVERT_FAILED = "fail to be reverted"
    REIMAGE = "get another image"
    REIMAGED = "have another image"
    REIMAGE_FAILED = "fail to get another image"
    UPLOAD = "be uploaded"
    UPLOADED = "have been uploaded"
    UPLOAD_FAILED = "fail to be uploaded"
    OFFER = "be offered for transfer"
    ACCEPT = "be accepted"
    WITHDRAW_OFFER = "be kept by its project"


@dataclasses.dataclass(frozen=True)
class Transition(Generic[S]):
    """A transition from any of ``sources``, on an event, to ``target`` (None: no row)."""

    sources: frozenset[S]
    target: S | None


_A = AttachmentState
_V = VolumeState
_S = SnapshotState

ATTACHMENT_TRANSITIONS: Mapping[Event, Transition[AttachmentState]] = MappingProxyType(
    {
        # A connect is repeated after a failure, and after a crash that interrupted it.  What was
        # completed without a connector is still a reservation; connect_rules.decide() refuses the
        # other attached ones.
        Event.CONNECT: Transition(
            frozenset(
                {
                    *(_A.RESERVED, _A.ATTACHED),
                    *(_A.CONNECTING, _A.CONNECT_FAILED, _A.CONNECT_UNKNOWN),
                }
            ),
            _A.CONNECTING,
        ),
        Event.GRANTED: Transition(frozenset({_A.CONNECTING}), _A.CONNECTED),
        # Recovery revokes what an uncertain connect may have granted.
        Event.CONNECT_FAILED: Transition(
            frozenset({_A.CONNECTING, _A.CONNECT_UNKNOWN}), _A.CONNECT_FAILED
        ),
        Event.CONNECT_LOST: Transition(frozenset({_A.CONNECTING}), _A.CONNECT_UNKNOWN),
        # A reservation may be completed without a connector, as the Block Storage API allows;
        # attachd's own API refuses it before.
        Event.COMPLETE: Transition(
            frozenset({_A.RESERVED, _A.CONNECTED, _A.ATTACHED}), _A.ATTACHED
        ),
        # Only a reservation can be deleted without a call of the backend: a connect is stored
        # before the driver is called.
        Event.CANCEL: Transition(frozenset({_A.RESERVED}), None),
        # A hold has no connector: it is cancelled or becomes an attachment.
        Event.RELEASE: Transition(frozenset({_A.HELD}), None),
        # An agent removes the device first, or refuses because a process uses it.
        Event.WITHDRAW: Transition(
            frozenset({_A.CONNECTED, _A.ATTACHED, _A.WITHDRAWING}), _A.WITHDRAWING
        ),
        Event.REFUSE_DETACH: Transition(frozenset({_A.WITHDRAWING}), _A.ATTACHED),
        Event.DISCONNECT: Transition(frozenset(_A) - {_A.HELD}, _A.DISCONNECTING),
        Event.REVOKED: Transition(frozenset({_A.DISCONNECTING}), None),
        Event.DISCONNECT_FAILED: Transition(frozenset({_A.DISCONNECTING}), _A.DISCONNECT_FAILED),
    }
)

VOLUME_TRANSITIONS: Mapping[Event, Transition[VolumeState]] = MappingProxyType(
    {
        Event.CREATED: Transition(frozenset({_V.CREATING}), _V.READY),
        Event.CREATE_FAILED: Transition(frozenset({_V.CREATING}), _V.ERROR),
        # Only without attachments; the row's derived attach_status is part of the swap.
        Event.DELETE: Transition(
            frozenset({_V.READY, _V.ERROR, _V.ERROR_DELETING, _V.ERROR_EXTENDING}), _V.DELETING
        ),
        Event.DELETED: Transition(frozenset({_V.DELETING}), None),
        Event.DELETE_FAILED: Transition(frozenset({_V.DELETING}), _V.ERROR_DELETING),
        Event.EXTEND: Transition(frozenset({_V.READY}), _V.EXTENDING),
        Event.EXTENDED: Transition(frozenset({_V.EXTENDING}), _V.READY),
        Event.EXTEND_FAILED: Transition(frozenset({_V.EXTENDING}), _V.ERROR_EXTENDING),
        # The size is not known: recovery asks the backend.
        Event.EXTEND_LOST: Transition(frozenset({_V.EXTENDING}), _V.ERROR_EXTENDING),
        Event.EXTEND_RESOLVED: Transition(frozenset({_V.ERROR_EXTENDING}), _V.READY),
        Event.MANAGED: Transition(frozenset({_V.MANAGING}), _V.READY),
        # The object is not this service's to delete: such a volume can only be unmanaged.
        Event.MANAGE_FAILED: Transition(frozenset({_V.MANAGING}), _V.ERROR_MANAGING),
        Event.UNMANAGE: Transition(
            frozenset(
                {
                    *(_V.READY, _V.ERROR, _V.ERROR_EXTENDING),
                    *(_V.ERROR_MANAGING, _V.ERROR_UNMANAGING),
                }
            ),
            _V.UNMANAGING,
        ),
        Event.UNMANAGED: Transition(frozenset({_V.UNMANAGING}), None),
        Event.UNMANAGE_FAILED: Transition(frozenset({_V.UNMANAGING}), _V.ERROR_UNMANAGING),
        # Its data is undefined until it has that of the snapshot: no host may get it.
        Event.REVERT: Transition(frozenset({_V.READY}), _V.REVERTING),
        Event.REVERTED: Transition(frozenset({_V.REVERTING}), _V.READY),
        Event.REVERT_FAILED: Transition(frozenset({_V.REVERTING}), _V.ERROR),
        # Its former data is gone from then on.
        Event.REIMAGE: Transition(frozenset({_V.READY, _V.ERROR}), _V.DOWNLOADING),
        Event.REIMAGED: Transition(frozenset({_V.DOWNLOADING}), _V.READY),
        Event.REIMAGE_FAILED: Transition(frozenset({_V.DOWNLOADING}), _V.ERROR),
        # Its data stays, also if the image is not complete.
        Event.UPLOAD: Transition(frozenset({_V.READY}), _V.UPLOADING),
        Event.UPLOADED: Transition(frozenset({_V.UPLOADING}), _V.READY),
        Event.UPLOAD_FAILED: Transition(frozenset({_V.UPLOADING}), _V.READY),
        # Only without attachments: no host of the former project keeps access.
        Event.OFFER: Transition(frozenset({_V.READY}), _V.AWAITING_TRANSFER),
        Event.ACCEPT: Transition(frozenset({_V.AWAITING_TRANSFER}), _V.READY),
        Event.WITHDRAW_OFFER: Transition(frozenset({_V.AWAITING_TRANSFER}), _V.READY),
    }
)

SNAPSHOT_TRANSITIONS: Mapping[Event, Transition[SnapshotState]] = MappingProxyType(
    {
        Event.CREATED: Transition(frozenset({_S.CREATING}), _S.AVAILABLE),
        Event.CREATE_FAILED: Transition(frozenset({_S.CREATING}), _S.ERROR),
        Event.DELETE: Transition(
            frozenset({_S.AVAILABLE, _S.ERROR, _S.ERROR_DELETING}), _S.DELETING
        ),
        Event.DELETED: Transition(frozenset({_S.DELETING}), None),
        Event.DELETE_FAILED: Transition(frozenset({_S.DELETING}), _S.ERROR_DELETING),
        # That of a volume in use, which is removed when the volume is uploaded, or is not.
        Event.UPLOADED: Transition(frozenset({_S.CREATING}), _S.DELETING),
        # Its data stays in any case.
        Event.UNMANAGE: Transition(frozenset({_S.AVAILABLE, _S.ERROR}), _S.UNMANAGING),
        Event.UNMANAGED: Transition(frozenset({_S.UNMANAGING}), None),
        Event.UNMANAGE_FAILED: Transition(frozenset({_S.UNMANAGING}), _S.ERROR),
        # In the transactions of its volume: a snapshot keeps its data in any case.
        Event.REVERT: Transition(frozenset({_S.AVAILABLE}), _S.RESTORING),
        Event.REVERTED: Transition(frozenset({_S.RESTORING}), _S.AVAILABLE),
        Event.REVERT_FAILED: Transition(frozenset({_S.RESTORING}), _S.AVAILABLE),
    }
)

_STATUS_OF_ATTACH_STATUS = MappingProxyType(
    {
        "attached": "in-use",
        "detached": "available",
        # A host may still write: no other host gets this volume before that is certain.
        "error_attaching": "error",
        "error_detaching": "error",
    }
)


class VolumeStatus(NamedTuple):
    """Status of a volume on the wire: both values are stored, neither is set directly."""

    status: str
    attach_status: str


def derive(
    state: VolumeState, attachments: Iterable[AttachmentState], pending_detaches: int = 0
) -> VolumeStatus:
    """Compute a volume's wire status from its own state and those of all its attachments.

    The most attached one decides, in the alphabetical order of the wire names: attached before
    attaching before detaching before reserved.  Failed connects that surely left no access do not
    count; uncertain ones count if there are no others.

    :param pending_detaches: number of attached ones that are about to be detached, without saying
        which; the volume is detaching as long as there are some
    """
    counted = [a for a in attachments if a not in INACTIVE]
    certain = {a.wire for a in counted if a not in ACCESS_UNKNOWN and a is not _A.HELD}
    uncertain = {a.wire for a in counted if a in ACCESS_UNKNOWN}
    attach_status = min(certain or uncertain or {"detached"})
    if state is not VolumeState.READY:
        return VolumeStatus(state.value, attach_status)
    if pending_detaches and _A.ATTACHED in counted:
        return VolumeStatus(_A.DISCONNECTING.wire, attach_status)
    if _A.HELD in counted:
        # On the wire only the volume shows a hold.
        certain.add(_A.HELD.wire)
    deciding = min(certain or uncertain or {"detached"})
    return VolumeStatus(_STATUS_OF_ATTACH_STATUS.get(deciding, deciding), attach_status)


def preserves_status(event: Event) -> bool:
    """Return whether a transition of an attachment cannot change the derived status."""
    move = ATTACHMENT_TRANSITIONS[event]
    if move.target is None:
        return False
    return {_seen(source) for source in move.sources} == {_seen(move.target)}


def _seen(state: AttachmentState) -> tuple[str, bool, bool]:
    """Return the properties of a state that :func:`derive` uses."""
    return state.wire, state in INACTIVE, state in ACCESS_UNKNOWN


def state_after_detach(state: VolumeState) -> VolumeState:
    """Return the volume's own state after an attachment of it was deleted.

    As on the wire, deleting an attachment of a volume in error makes it usable again.
    """
    return VolumeState.READY if state is VolumeState.ERROR else state


def remaining_detaches(pending_detaches: int, attachments: Iterable[AttachmentState]) -> int:
    """Return how many of the attached ones can still be about to be detached."""
    return min(pending_detaches, sum(attachment is _A.ATTACHED for attachment in attachments))


def attachment_states(wire_name: str) -> frozenset[AttachmentState]:
    """Return the inner states with this wire name; empty if there is no such name."""
    return frozenset(state for state in AttachmentState if state.wire == wire_name)
