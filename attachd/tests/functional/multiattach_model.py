# SPDX-License-Identifier: Apache-2.0
"""A model of multiattach: limits and modes; on top of attachment_model.py."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from attachd.tests.functional import attachment_model
from attachd.tests.functional.attachment_model import ACCEPTED, BAD, CONFLICT, OK, Faults

MOST_AT_A_HOST = 2
"""Of all volumes, as the managers are configured."""

_NEW = {"reserved", "connect_failed"}
_BOUND = {"connected", "attached", "connect_unknown", "disconnect_failed"}


@dataclass(frozen=True)
class Kind:
    """A volume type."""

    name: str
    multiattach: bool = False
    one_writer: bool = False
    most: int | None = None
    most_per_host: int | None = None

    @property
    def specs(self) -> dict[str, str]:
        """Return its extra specs."""
        found = {
            "multiattach": f"<is> {self.multiattach}",
            "mode": "RO" if self.one_writer else "RW",
            "max_attachments": self.most,
            "max_attachments_per_host": self.most_per_host,
        }
        return {key: f"{value}" for key, value in found.items() if value is not None}


KINDS = (
    Kind("plain"),
    Kind("plain-ro", one_writer=True),
    Kind("several", multiattach=True),
    Kind("one-writer", multiattach=True, one_writer=True),
    Kind("two", multiattach=True, most=2),
    Kind("one-per-host", multiattach=True, most_per_host=1),
    Kind("all", multiattach=True, one_writer=True, most=3, most_per_host=2),
)


@dataclass
class Attachment(attachment_model.Attachment):
    """One attachment.

    ``asked`` is the mode that it was reserved for, if any; ``mode`` is what the host may do, once
    that is decided; ``connector_mode`` is the mode in its connector.
    """

    asked: str | None = None
    mode: str | None = None
    connector_mode: str | None = None


def server_count(servers: Iterable[str]) -> int:
    """Count servers by their attachments, of which one that is migrated has two."""
    return sum(max(1, number - 1) for number in Counter(servers).values())


@dataclass
class Volume(attachment_model.Volume):
    """One volume."""

    kind: Kind = KINDS[0]
    readonly: bool = False
    shared: dict[str, Attachment] = field(default_factory=dict)

    def _others(self, attachment: attachment_model.Attachment | None) -> list[Attachment]:
        return [
            item
            for item in self.shared.values()
            if item is not attachment and item.state != "connect_failed"
        ]

    def _is_full(self, attachment: Attachment) -> bool:
        most = self.kind.most
        servers = [item.server or item.id for item in [*self._others(attachment), attachment]]
        return self.multiattach and most is not None and server_count(servers) > most

    def _may_write(self, attachment: Attachment) -> bool:
        if self.readonly:
            return False
        if not self.kind.one_writer:
            return True
        writers = [other for other in self._others(attachment) if other.mode == "rw"]
        same = [writer for writer in writers if writer.server == attachment.server]
        if attachment.server is not None and len(same) <= 1:  # with a third, it is no migration
            writers = [writer for writer in writers if writer.server != attachment.server]
        return self.multiattach and not writers

    def reserve_for(self, attachment: Attachment) -> int:
        """Take the volume for an attachment."""
        code = self.reserve(attachment.server)
        if code == OK and (
            self._is_full(attachment)
            or (attachment.asked == "rw" and not self._may_write(attachment))
        ):
            code = BAD
        if code == OK:
            attachment.mode = "ro" if self.readonly else attachment.asked
            self.shared[attachment.id] = self.attachments[attachment.id] = attachment
        return code

    def let_in(
        self,
        attachment: Attachment,
        host: str,
        result: str | None,
        faults: Faults,
        every: Iterable["Volume"],
        *,
        alone: bool,
    ) -> int:
        """Let a host in."""
        is_completed = attachment.is_completed_reservation()
        bound = attachment.state in _BOUND and attachment.host is not None
        if bound and (attachment.host, attachment.connector_mode) != (host, result):
            return CONFLICT
        if bound and attachment.state in {"connected", "attached"}:
            return OK
        if not self._may_connect(attachment, alone=alone):
            return CONFLICT
        mode = self._mode(attachment, result)
        code = OK if mode else BAD
        is_new = is_completed or attachment.state in _NEW
        if is_new and self._is_over_a_limit(host, attachment, every):
            code = BAD
        if code == OK and not is_new and attachment.state != "connect_unknown":
            code = CONFLICT
        if code == OK:
            attachment.host, attachment.connector_mode, attachment.mode = host, result, mode
            code = self.connected(attachment, faults)
            self.leaving = min(self.leaving, self._count_attached())
            if attachment.state == "connect_failed":
                attachment.mode = attachment.asked
        return code

    def _mode(self, attachment: Attachment, result: str | None) -> str | None:
        """Return what a host may do; None: less than it wants."""
        is_bound = attachment.state in _BOUND and not attachment.is_completed_reservation()
        if is_bound and attachment.mode:
            return attachment.mode
        wanted = attachment.asked or result
        writes = wanted != "ro" and self._may_write(attachment)
        return "rw" if writes else None if wanted == "rw" else "ro"

    def _is_over_a_limit(
        self, host: str, attachment: Attachment, every: Iterable["Volume"]
    ) -> bool:
        return self._is_full(attachment) or self._is_full_at(host, attachment, every)

    def _is_full_at(self, host: str, attachment: Attachment, every: Iterable["Volume"]) -> bool:
        local = [other for other in self._others(attachment) if other.host == host]
        existing = [
            other for one in every for other in one._others(attachment) if other.host == host
        ]
        most = self.kind.most_per_host
        return (most is not None and len(local) >= most) or len(existing) >= MOST_AT_A_HOST

    def change_flag(self, *, readonly: bool) -> int:
        """Let later attachments only read the volume, or write again."""
        if self.status()[0] != "available":
            return BAD
        self.readonly = readonly
        return ACCEPTED

    def leave(self, attachment: Attachment, faults: Faults) -> int:
        """Shut a host out and forget the attachment."""
        code = self.detach(attachment, faults)
        if code == OK:
            del self.shared[attachment.id]
        return code
