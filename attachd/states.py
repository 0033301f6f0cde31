# SPDX-License-Identifier: Apache-2.0
"""The one table of states, events and moves; read by db, manager, api and the docs.

An attachment and a volume each have an *inner* state, which says what recovery has to do, and
a *wire* name, which is what the Block Storage API v3 calls it.  What a client sees as a volume's
``status`` and ``attach_status`` is never set by hand: :func:`derive` computes both from the
volume's own state and the states of its attachments, in the transaction that changes either.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import enum
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=enum.StrEnum)


class AttachmentState(enum.StrEnum):
    """Where an attachment is; stored in ``attachments.state``."""

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
"""States in which the host surely does not reach the volume and holds no reservation of it."""

ESTABLISHED = frozenset({AttachmentState.CONNECTED, AttachmentState.ATTACHED})
"""States in which a host was let in, if there was any to be, and is to stay in."""

WITH_ACCESS = ESTABLISHED | {AttachmentState.WITHDRAWING}
"""States in which a host was let in: one that is about to leave may have to write until then."""

LIVE = WITH_ACCESS | {AttachmentState.CONNECTING}
"""States in which a host reaches the volume, or is just being let in, because it should."""

ACCESS_UNKNOWN = frozenset({AttachmentState.CONNECT_UNKNOWN, AttachmentState.DISCONNECT_FAILED})
"""States in which the host may still reach the volume although nobody wants it to."""


class AttachmentKind(enum.StrEnum):
    """What a row of attachments stands for; stored in ``attachments.kind``.

    The older calls for attaching take a volume, connect a host and note an attachment each by
    themselves.  So each of them has a row of its own: a *hold* of os-reserve, a *connection* of
    os-initialize_connection, a *legacy* attachment of os-attach.
    """

    ATTACHMENT = "attachment"
    LEGACY = "legacy"
    CONNECTION = "connection"
    HOLD = "hold"


VISIBLE_KINDS = frozenset({AttachmentKind.ATTACHMENT, AttachmentKind.LEGACY})
"""The kinds that clients know as attachments."""


class VolumeState(enum.StrEnum):
    """What a volume itself is going through; stored in ``volumes.state``."""

    CREATING = "creating"
    READY = "ready"
    EXTENDING = "extending"
    DELETING = "deleting"
    MAINTENANCE = "maintenance"
    ERROR = "error"
    ERROR_DELETING = "error_deleting"
    ERROR_EXTENDING = "error_extending"


class Event(enum.StrEnum):
    """What happens to an attachment or to a volume; the verb reads well after "cannot"."""

    CONNECT = "connect"
    GRANTED = "be granted"
    CONNECT_FAILED = "fail to connect"
    CONNECT_LOST = "lose its connect"
    COMPLETE = "be completed"
    CANCEL = "be cancelled"
    RELEASE = "be released"
    WITHDRAW = "be withdrawn from its host"
    KEEP = "be kept by its host"
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


@dataclasses.dataclass(frozen=True)
class Transition(Generic[S]):
    """One arrow bundle: from any of ``sources``, on an event, to ``target`` (None: no row)."""

    sources: frozenset[S]
    target: S | None


_A = AttachmentState
_V = VolumeState

ATTACHMENT_TRANSITIONS: Mapping[Event, Transition[AttachmentState]] = MappingProxyType(
    {
        # A connect is repeated after a failure, and after a crash that left it half-way.
        Event.CONNECT: Transition(
            frozenset({_A.RESERVED, _A.CONNECTING, _A.CONNECT_FAILED, _A.CONNECT_UNKNOWN}),
            _A.CONNECTING,
        ),
        Event.GRANTED: Transition(frozenset({_A.CONNECTING}), _A.CONNECTED),
        Event.CONNECT_FAILED: Transition(frozenset({_A.CONNECTING}), _A.CONNECT_FAILED),
        Event.CONNECT_LOST: Transition(frozenset({_A.CONNECTING}), _A.CONNECT_UNKNOWN),
        # A reservation may be completed without a connector, as the API has always allowed.
        Event.COMPLETE: Transition(
            frozenset({_A.RESERVED, _A.CONNECTED, _A.ATTACHED}), _A.ATTACHED
        ),
        # Only a reservation can vanish without asking the backend: whatever was connecting
        # even once has been stored as such before the driver was touched.
        Event.CANCEL: Transition(frozenset({_A.RESERVED}), None),
        # A hold is nobody's who could be connected: it is taken back or becomes an attachment.
        Event.RELEASE: Transition(frozenset({_A.HELD}), None),
        # An agent takes the device away first, or says who uses it and keeps it.
        Event.WITHDRAW: Transition(
            frozenset({_A.CONNECTED, _A.ATTACHED, _A.WITHDRAWING}), _A.WITHDRAWING
        ),
        Event.KEEP: Transition(frozenset({_A.WITHDRAWING}), _A.ATTACHED),
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
    }
)

_STATUS_OF_ATTACH_STATUS = MappingProxyType(
    {
        "attached": "in-use",
        "detached": "available",
        # Somebody may still write: nobody else gets this volume before that is settled.
        "error_attaching": "error",
        "error_detaching": "error",
    }
)


class VolumeStatus(NamedTuple):
    """What the wire shows of a volume: both are stored, neither is set by hand."""

    status: str
    attach_status: str


def derive(
    state: VolumeState, attachments: Iterable[AttachmentState], pending_detaches: int = 0
) -> VolumeStatus:
    """Compute a volume's wire status from its own state and those of all its attachments.

    The most attached one decides, which the wire's names sort alphabetically: attached before
    attaching before detaching before reserved.  Failed connects that surely left nothing
    behind do not count; uncertain ones count when nothing better is there.

    :param pending_detaches: how many of the attached ones are about to be detached, nobody knows
        which;
        the volume is in use as long as one of them is going to stay, and detaching after that
    """
    counted = [a for a in attachments if a not in INACTIVE]
    certain = {a.wire for a in counted if a not in ACCESS_UNKNOWN and a is not _A.HELD}
    uncertain = {a.wire for a in counted if a in ACCESS_UNKNOWN}
    attach_status = min(certain or uncertain or {"detached"})
    if state is not VolumeState.READY:
        return VolumeStatus(state.value, attach_status)
    if 0 < counted.count(_A.ATTACHED) <= pending_detaches:
        return VolumeStatus(_A.DISCONNECTING.wire, attach_status)
    if _A.HELD in counted:
        # On the wire this is said of the volume alone.
        certain.add(_A.HELD.wire)
    deciding = min(certain or uncertain or {"detached"})
    return VolumeStatus(_STATUS_OF_ATTACH_STATUS.get(deciding, deciding), attach_status)


def preserves_status(event: Event) -> bool:
    """Tell whether an attachment's move cannot change what is derived from it."""
    move = ATTACHMENT_TRANSITIONS[event]
    if move.target is None:
        return False
    return {_seen(source) for source in move.sources} == {_seen(move.target)}


def _seen(state: AttachmentState) -> tuple[str, bool, bool]:
    """All that :func:`derive` looks at in one attachment."""
    return state.wire, state in INACTIVE, state in ACCESS_UNKNOWN


def state_after_detach(state: VolumeState) -> VolumeState:
    """Return the volume's own state once an attachment of it is gone.

    As on the wire: deleting an attachment of a volume in error makes it usable again.
    """
    return VolumeState.READY if state is VolumeState.ERROR else state


def remaining_detaches(pending_detaches: int, attachments: Iterable[AttachmentState]) -> int:
    """Return how many of the attached ones can still be about to be detached."""
    return min(pending_detaches, sum(each is _A.ATTACHED for each in attachments))


def attachment_states(wire_name: str) -> frozenset[AttachmentState]:
    """Return the inner states that the wire calls ``wire_name``; empty if it knows none."""
    return frozenset(state for state in AttachmentState if state.wire == wire_name)
