# SPDX-License-Identifier: Apache-2.0
"""A model of volumes and attachments in plain Python, for test_state_machine.

It imports nothing of attachd: an error in a rule there must not be repeated here.  Each method
returns the HTTP status that a client must get, and changes the model accordingly.
"""

from dataclasses import dataclass, field

OK, ACCEPTED, NO_CONTENT, BAD, CONFLICT, BROKEN = 200, 202, 204, 400, 409, 500

_RANKS = ("attached", "attaching", "detaching", "reserved", "error_attaching", "error_detaching")
_WIRE = {
    "held": "attaching",
    "reserved": "reserved",
    "connected": "attaching",
    "attached": "attached",
    "connect_failed": "error_attaching",
    "connect_unknown": "error_attaching",
    "disconnect_failed": "error_detaching",
}
_STATUS = {"attached": "in-use", "detached": "available"}
_STATUS |= {"error_attaching": "error", "error_detaching": "error"}


@dataclass(frozen=True)
class Faults:
    """How the backend will behave during one call.

    ``refused``: a final error; ``lost``: it fails before it does anything, but does not
    know that; ``late``: it fails after it has done the work.
    """

    work: str = "well"
    undo: str = "well"


@dataclass
class Attachment:
    """One attachment; ``reachable`` is whether the backend lets the host in.

    ``host`` is the host with access, if any; ``at`` is the one that the
    caller of os-attach named.
    """

    id: str
    server: str | None
    state: str = "reserved"
    host: str | None = None
    reachable: bool = False
    mountpoint_host: str | None = None
    legacy: bool = False

    def is_completed_reservation(self) -> bool:
        """Whether it was completed without a host, and may be connected."""
        return self.state == "attached" and self.host is None and not self.legacy

    @property
    def wire(self) -> str:
        """What a client is shown."""
        return _WIRE[self.state]


@dataclass
class Volume:
    """One volume; ``made_gib`` is its size at the backend, 0 if it does not exist there.

    What the older calls can do with it is in legacy_model.py.
    """

    id: str
    multiattach: bool
    size_gib: int
    made_gib: int
    own: str = "ready"
    attachments: dict[str, Attachment] = field(default_factory=dict)
    leaving: int = 0

    def status(self, *, without: Attachment | None = None) -> tuple[str, str]:
        """Return status and attach_status."""
        held = [holder for holder in self.holders() if holder is not without]
        names = {item.wire for item in held}
        known = {item.wire for item in held if item.state != "held"}
        attach_status = next((name for name in _RANKS if name in known), "detached")
        if self.own != "ready":
            return self.own, attach_status
        if self.leaving >= sum(item.state == "attached" for item in held) > 0:
            return "detaching", attach_status
        most = next((name for name in _RANKS if name in names), "detached")
        return _STATUS.get(most, most), attach_status

    def used(self) -> list[Attachment]:
        """Return the attachments that count."""
        return [
            attachment
            for attachment in self.attachments.values()
            if attachment.state != "connect_failed"
        ]

    def holders(self) -> list[Attachment]:
        """Return all that keeps others from the volume."""
        return self.used()

    def reserve(self, server: str | None) -> int:
        """Return whether one more attachment may be created; add() adds it."""
        if self.own != "ready" or self.status()[0] == "error":
            return BAD
        holders = self.holders()
        same = server is not None and all(holder.server == server for holder in holders)
        return OK if self.multiattach or not holders or same else BAD

    def duplicates(self, server: str | None, host: str) -> set[str]:
        """Return what a request to connect a host for a server may have made before."""
        return {
            attachment.id
            for attachment in self.attachments.values()
            if server is not None
            and (attachment.server, attachment.host, attachment.state)
            == (server, host, "connected")
            and not attachment.legacy
        }

    def failed(self, server: str | None, host: str) -> list[Attachment]:
        """Return what a request to connect a host for a server may have left in error before."""
        return [
            attachment
            for attachment in self.attachments.values()
            if server is not None
            and (attachment.server, attachment.host) == (server, host)
            and attachment.state in {"connect_failed", "connect_unknown"}
            and not attachment.legacy
        ]

    def add(self, attachment_id: str, server: str | None) -> Attachment:
        """Add what was reserved."""
        new = self.attachments[attachment_id] = Attachment(attachment_id, server)
        return new

    def connect(self, attachment: Attachment, host: str, faults: Faults, *, alone: bool) -> int:
        """Let a host in."""
        if attachment.state in {"connected", "attached"} and attachment.host == host:
            return OK
        bound = attachment.state in {"connect_unknown", "disconnect_failed"}
        if bound and attachment.host not in {None, host}:
            return CONFLICT
        is_completed = attachment.is_completed_reservation()
        may_be_repeated = attachment.state in {"reserved", "connect_failed", "connect_unknown"}
        if not (is_completed or may_be_repeated):
            return CONFLICT
        if not self._may_connect(attachment, alone=alone):
            return CONFLICT
        attachment.host = host
        result = self.connected(attachment, faults)
        self.leaving = min(self.leaving, self._count_attached())
        return result

    def _may_connect(self, attachment: Attachment, *, alone: bool) -> bool:
        if "error" in self.status(without=attachment)[0]:
            return False
        others = [holder for holder in self.holders() if holder is not attachment]
        if self.multiattach:
            return True
        if alone and any(other.state != "reserved" for other in others):
            return False
        return all(
            attachment.server is not None and other.server == attachment.server for other in others
        )

    @staticmethod
    def connected(attachment: Attachment, faults: Faults) -> int:
        if faults.work == "well":
            attachment.state, attachment.reachable = "connected", True
            return OK
        if faults.work == "late":
            attachment.reachable = True
        # After an earlier connect that may have succeeded, a refusal proves nothing.
        is_first = attachment.state != "connect_unknown"
        if faults.work == "refused" and is_first and not attachment.reachable:
            attachment.state = "connect_failed"
            return BROKEN
        if faults.undo in {"well", "late"}:
            attachment.reachable = False
        attachment.state = "connect_failed" if faults.undo == "well" else "connect_unknown"
        return BROKEN

    def complete(self, attachment: Attachment) -> int:
        """Note that the host uses the volume."""
        if attachment.state not in {"reserved", "connected", "attached"}:
            return CONFLICT
        attachment.state, self.leaving = "attached", 0
        return NO_CONTENT

    def detach(self, attachment: Attachment, faults: Faults) -> int:
        """Shut a host out and forget the attachment."""
        self.begin_to_leave(attachment)
        if attachment.host is not None and not self.shut_out(attachment, faults):
            return BROKEN
        del self.attachments[attachment.id]
        if self.own == "error":
            self.own = "ready"
        return OK

    def begin_to_leave(self, attachment: Attachment) -> None:
        """Count the detaches that are still to come, of those that were begun."""
        if attachment.state in {"attached", "disconnect_failed"}:
            attachment.state = "leaving"
            self.leaving = min(max(self.leaving - 1, 0), self._count_attached())

    def _count_attached(self) -> int:
        return sum(item.state == "attached" for item in self.used())

    @staticmethod
    def shut_out(attachment: Attachment, faults: Faults) -> bool:
        """Return whether a host surely does not reach the volume any more."""
        if faults.work in {"well", "late"}:
            attachment.reachable = False
        if faults.work != "well":
            attachment.state = "disconnect_failed"
        return faults.work == "well"

    def give_up(self) -> None:
        """Delete attachments that have no connection."""
        self.leaving = 0

    def delete(self) -> int:
        """Return whether the volume may be deleted."""
        return BAD if self.holders() else ACCEPTED

    def extend(self, size_gib: int, faults: Faults) -> int:
        """Let the volume grow."""
        if self.status()[0] not in {"available", "in-use"}:
            return BAD
        if faults.work == "well":
            self.size_gib = self.made_gib = size_gib
        else:
            self.own = "error_extending"
        return ACCEPTED

    def reset(self, status: str) -> int:
        """Set the status as an administrator does: ``available`` or ``error``."""
        if status == "available":
            if any(holder.state != "held" for holder in self.holders()):
                return BAD
            self.give_up()
        self.own = "error" if status == "error" else "ready"
        return ACCEPTED
