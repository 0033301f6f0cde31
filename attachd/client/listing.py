# SPDX-License-Identifier: Apache-2.0
"""What is attached on this host: what its journal says, and what the service does; for client."""

from collections.abc import Mapping
import dataclasses
from types import MappingProxyType
from typing import Final

from attachd import exception
from attachd.agent.host import Host
from attachd.agent.journal import Entry
from attachd.client.attaching import mode_of
from attachd.client.service import FAILURES, Service

GONE: Final = "gone"
UNKNOWN: Final = "unknown"


@dataclasses.dataclass(frozen=True)
class LocalAttachment:
    """A volume of this host.

    :ivar attachment_id: None: it is not known whether there is one
    :ivar path: of its device; None: it has none yet, or no longer
    :ivar owner: "local" or "agent": who looks after it
    :ivar step: what was begun last, as journal.Step
    :ivar present: whether the device is there, and is this volume
    :ivar status: of the attachment, as the service has it; "gone": it has none; "unknown": it
        cannot be asked
    :ivar error: why the last step failed; None: it did not
    """

    volume_id: str
    attachment_id: str | None
    path: str | None
    mountpoint: str | None
    mode: str
    owner: str
    step: str
    present: bool
    status: str
    error: str | None


def listed(
    host: Host, service: Service, errors: Mapping[str, str] = MappingProxyType({})
) -> list[LocalAttachment]:
    """Tell of each entry of a host's journal.

    :param errors: what went wrong just now, by the ids of entries
    """
    asker = _Asker(service)
    return [
        _told(
            dataclasses.replace(entry, error=errors.get(entry.id, entry.error)),
            present=_is_present(host, entry),
            status=asker.status(entry),
        )
        for entry in host.journal.entries()
    ]


def gone(entry: Entry) -> LocalAttachment:
    """Tell of what is neither here nor in the service any more."""
    return _told(dataclasses.replace(entry, device=None), present=False, status=GONE)


def _told(entry: Entry, *, present: bool, status: str) -> LocalAttachment:
    return LocalAttachment(
        volume_id=entry.volume_id,
        attachment_id=entry.attachment_id,
        path=entry.device.path if entry.device else None,
        mountpoint=entry.mountpoint,
        mode=mode_of(entry),
        owner=entry.owner.value,
        step=entry.step.value,
        present=present,
        status=status,
        error=entry.error,
    )


class _Asker:
    """Asks for statuses until the service does not answer: then it is not waited for again."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._answers = True

    def status(self, entry: Entry) -> str:
        if entry.attachment_id is None or not self._answers:
            return UNKNOWN
        try:
            if entry.cloud not in {None, self._service.cloud}:
                return UNKNOWN  # Another service would not have it.
            found = self._service.attachment(entry.attachment_id)
        except FAILURES:
            self._answers = False
            return UNKNOWN
        return found.status if found else GONE


def _is_present(host: Host, entry: Entry) -> bool:
    try:
        return host.is_present(entry)
    except exception.HostError:
        return False
