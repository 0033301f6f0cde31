# SPDX-License-Identifier: Apache-2.0
"""A model of the legacy attach actions, on top of attachment_model.py.

A hold, a connection and an attachment are separate rows, and no call says which belong together.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
import itertools

from attachd.tests.functional import attachment_model
from attachd.tests.functional.attachment_model import (
    ACCEPTED,
    BAD,
    BROKEN,
    CONFLICT,
    OK,
    Attachment,
    Faults,
)


@dataclass
class Connection(Attachment):
    """A host that was let in; ``serves`` is the id of the attachment that it is for."""

    serves: str | None = None


@dataclass
class Volume(attachment_model.Volume):
    """One volume, with all that clients are not shown of it.

    ``last`` is the connection that was asked for last, if there is one.
    """

    holds: int = 0
    connections: dict[str, Connection] = field(default_factory=dict)
    last: Connection | None = None

    def holders(self) -> list[Attachment]:
        """Return all that keeps others from the volume."""
        connected = [
            connection
            for connection in self.connections.values()
            if connection.state != "connect_failed"
        ]
        return [
            *self.used(),
            *connected,
            *(Attachment("", None, "held") for _ in range(self.holds)),
        ]

    def every(self) -> list[Attachment]:
        """Return all connections that the backend may have granted."""
        return [*self.attachments.values(), *self.connections.values()]

    def give_up(self) -> None:
        """Delete attachments that have no connection."""
        super().give_up()
        self.holds = 0

    def detach(self, attachment: Attachment, faults: Faults) -> int:
        """Revoke the connections of an attachment, and delete it."""
        self.begin_to_leave(attachment)
        for item in self._ending_with(attachment):
            if not self._end(item, faults):
                attachment.state = "disconnect_failed"
                return BROKEN
        return super().detach(attachment, faults)

    def _ending_with(self, attachment: Attachment) -> list[Connection]:
        others = [call for call in self.used() if call is not attachment and call.legacy]
        reach: set[str | None] = {attachment.id}
        if attachment.legacy and not self.holds and not others:
            reach.add(None)
        return [
            connection for connection in self.connections.values() if connection.serves in reach
        ]

    def _end(self, connection: Connection, faults: Faults) -> bool:
        done = self.shut_out(connection, faults)
        if done:
            del self.connections[self._key(connection)]
            if connection.serves is None:
                self._release()
        return done

    def _key(self, connection: Connection) -> str:
        (key,) = [key for key, item in self.connections.items() if item is connection]
        return key

    def _free_key(self, host: str) -> str:
        keys = (f"{host} {number}" for number in itertools.count())
        return next(key for key in keys if key not in self.connections)

    def open_to(self, host: str) -> Connection | None:
        """Return the connection that a host gets once more, if there is one."""
        one_more = self.multiattach and self.holds
        return next(
            (
                connection
                for connection in self.connections.values()
                if connection.host == host and not (one_more and connection.serves)
            ),
            None,
        )

    def _release(self) -> None:
        self.holds = max(self.holds - 1, 0)

    def hold(self) -> int:
        """Reserve the volume."""
        if self.reserve(None) != OK:
            return BAD
        self.holds += 1
        return ACCEPTED

    def unhold(self, faults: Faults) -> int:
        """Give it back."""
        return self._give_back(faults)

    def _give_back(self, faults: Faults) -> int:
        alone = self.holds == 1 or not self.multiattach
        used = [call for call in self.used() if call.legacy or not self.multiattach]
        left = max(self.holds - 1, 0)
        if alone and not used and not self._close(None, (), faults):
            return BROKEN
        self.holds = min(self.holds, left)
        return ACCEPTED

    def begin_detaching(self) -> int:
        """Set the volume to detaching."""
        if self.status()[0] != "in-use":
            return BAD
        self.leaving += 1
        return ACCEPTED

    def roll_detaching(self) -> int:
        """Take that back."""
        self.leaving = max(self.leaving - 1, 0)
        return ACCEPTED

    def let_in(self, host: str, faults: Faults) -> int:
        """Connect a host; the caller sets the id of a new connection."""
        self.last = attachment = self.open_to(host)
        if attachment is not None and attachment.state == "connected":
            return OK
        if not self._may_let_in(attachment):
            return BAD
        if attachment is not None and attachment.state == "disconnect_failed":
            return CONFLICT
        if attachment is None:
            attachment = Connection("", None, host=host)
            self.connections[self._free_key(host)] = attachment
        self.last = attachment
        made = [item for item in self.attachments.values() if item.legacy]
        if self.multiattach:
            free = self._unconnected(attachment)
            is_plain = len(free) == 1 and not self.holds
            made = [item for item in free if item.mountpoint_host == host] or (
                free if is_plain else []
            )
        if made:
            attachment.serves, attachment.server = made[0].id, made[0].server
        return self.connected(attachment, faults)

    def _unconnected(self, opened: Connection) -> list[Attachment]:
        """Return the attachments without a connection other than this one."""
        served = {
            connection.serves
            for connection in self.connections.values()
            if connection is not opened and connection.state != "connect_failed"
        }
        return [
            attachment
            for attachment in self.attachments.values()
            if attachment.legacy and attachment.id not in served
        ]

    def _may_let_in(self, connection: Connection | None) -> bool:
        if self.own != "ready" or self.status(without=connection)[0] == "error":
            return False
        strange = [
            call for call in self.used() if not call.legacy or call.state == "disconnect_failed"
        ]
        return self.multiattach or not strange

    def shut(self, host: str | None, faults: Faults) -> int:
        """Shut a host out, or all."""
        several = self.multiattach and len(self.connections) > 1
        if host is None and (several or len(self.used()) > 1):
            return BAD
        done = self._close(host, None if host else self.attachments, faults)
        return ACCEPTED if done else BROKEN

    def _close(self, host: str | None, ids: Collection[str] | None, faults: Faults) -> bool:
        ending = [
            connection
            for connection in self.connections.values()
            if host in {None, connection.host}
            and (ids is None or connection.serves in {None, *ids})
        ]
        counted = [item for item in ending if item.state == "connected"]
        if host is not None and len({item.serves for item in counted}) > 1:
            # No call said for which of them it is revoked: they are when detached.
            ending = [item for item in ending if item not in counted]
        return all(self._end(item, faults) for item in ending)

    def attach(self, server: str | None, host: str) -> int:
        """Attach for a server or a host; add() adds a new attachment."""
        attachment = self._known(server, host)
        if attachment is None:
            free = self.own == "ready" and self.status()[0] != "error"
            return ACCEPTED if free and (self.multiattach or not self.used()) else BAD
        if attachment.state not in {"reserved", "connected", "attached"}:
            return CONFLICT
        self._attached(attachment)
        return ACCEPTED

    def is_known(self, server: str | None, host: str) -> bool:
        """Return whether they have an attachment already."""
        return self._known(server, host) is not None

    def _known(self, server: str | None, host: str) -> Attachment | None:
        for call in self.used():
            same_place = server is None and (call.host or call.mountpoint_host) == host
            if call.server == server and (server is not None or same_place):
                return call
        return None

    def add_attached(self, attachment_id: str, server: str | None, host: str) -> None:
        """Add what was attached anew."""
        attachment = self.add(attachment_id, server)
        attachment.legacy, attachment.mountpoint_host = True, host
        self._attached(attachment)

    def _attached(self, attachment: Attachment) -> None:
        if attachment.state != "attached":
            self._release()
        attachment.state, self.leaving = "attached", 0
        free = [
            connection for connection in self.connections.values() if connection.serves is None
        ]
        if self.multiattach:
            existing = [
                item
                for item in free
                if item.host == (attachment.host or attachment.mountpoint_host)
            ]
            free = existing or (free if len(free) == 1 else [])
        for item in free:
            item.serves, item.server = attachment.id, attachment.server

    def leave(self, attachment: Attachment | None, faults: Faults) -> int:
        """Detach an attachment, or the only one."""
        chosen = attachment
        if chosen is None:
            used = self.used()
            if len(used) > 1:
                return BAD
            chosen = next(iter(used or self.attachments.values()), None)
        if chosen is None:
            return self._give_back(faults)
        return ACCEPTED if self.detach(chosen, faults) == OK else BROKEN

    def leave_by_force(self, attachment: Attachment, host: str | None, faults: Faults) -> int:
        """Detach one attachment in any state, and close one more connection."""
        gone = self.leave(attachment, faults)
        if gone == ACCEPTED and host is not None and not self._close(host, (), faults):
            return BROKEN
        return gone
