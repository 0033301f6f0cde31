# SPDX-License-Identifier: Apache-2.0
"""Select the attachment of a volume to detach; for client.py."""

from collections.abc import Iterable, Mapping
import dataclasses
from typing import Any

from openstack import exceptions

from attachd import exception, host_identity
from attachd.agent.connectors.base import Device, Options
from attachd.agent.host import Host
from attachd.agent.journal import Entry, Owner, Step
from attachd.client.service import RemoteAttachment, Service, Volume


@dataclasses.dataclass(frozen=True)
class DetachRequest:
    """Parameters of a detach, as in Client.detach()."""

    attachment_id: str | None = None
    device_info: Mapping[str, Any] | None = None
    options: Options | None = None


class AttachmentSelector:
    """Selects the attachment to detach."""

    def __init__(self, host: Host, service: Service) -> None:
        self._host = host
        self._service = service

    def volume(self, name_or_id: str) -> Volume:
        """Return the volume of a name or an id.

        A volume that the service has deleted may still be in the journal, by its id.

        :raises LocalConflict: it belongs to another service
        :raises NotFoundException: it is unknown
        """
        try:
            return self._service.find(name_or_id)
        except exceptions.NotFoundException:
            entries = self._host.journal.list_for_volume(name_or_id)
            if not entries:
                raise
        clouds = {entry.cloud for entry in entries} - {None, self._service.cloud}
        if clouds:
            raise exception.LocalConflict(
                reason=f"{self._service.cloud} has no volume {name_or_id}; it was attached from "
                f"{', '.join(map(str, clouds))}. Repeat the command with that cloud."
            )
        return Volume(name_or_id)

    def entry(self, volume: Volume, request: DetachRequest) -> Entry:
        """Return the journal entry of the attachment; create one if another program attached it.

        :raises LocalConflict: there is none on this host, or several
        """
        known = self._host.journal.list_for_volume(volume.id)
        if request.attachment_id is not None:
            for entry in known:
                if entry.attachment_id == request.attachment_id:
                    return _check_local(entry)
        ids = {entry.attachment_id for entry in known}
        others = [
            attachment
            for attachment in self._service.attachments(volume)
            if attachment.id not in ids
        ]
        if request.attachment_id is not None:
            return self._find_by_id(volume, others, request)
        own = self._host.identity.name
        foreign = [
            other for other in others if other.host and host_identity.is_same_name(other.host, own)
        ]
        if len(known) + len(foreign) > 1:
            raise _ambiguous(volume, known, foreign)
        if known:
            return _check_local(known[0])
        if foreign:
            return self._import_foreign(volume, foreign[0], request)
        raise self._not_here(volume, others)

    def _find_by_id(
        self, volume: Volume, others: Iterable[RemoteAttachment], request: DetachRequest
    ) -> Entry:
        found = [other for other in others if other.id == request.attachment_id]
        if not found:
            raise exceptions.NotFoundException(
                f"Volume {volume.id} has no attachment {request.attachment_id}."
            )
        (remote,) = found
        # Without a host from the service, a caller who passes the device knows what it is.
        if remote.host is None and request.device_info:
            return self._import_foreign(volume, remote, request)
        if remote.host != self._host.identity.name:
            raise self._not_here(volume, found)
        return self._import_foreign(volume, remote, request)

    def _import_foreign(
        self, volume: Volume, remote: RemoteAttachment, request: DetachRequest
    ) -> Entry:
        info = dict(request.device_info or {})
        return Entry(
            volume.id,
            volume_name=volume.name,
            step=Step.ATTACHED,
            attachment_id=remote.id,
            mode=remote.mode,
            options=request.options or Options(),
            connection_info={**remote.connection_info, **volume.guard}
            if remote.connection_info
            else None,
            device=Device(info["path"], info) if "path" in info else None,
            cloud=self._service.cloud,
        )

    def _not_here(
        self, volume: Volume, others: Iterable[RemoteAttachment]
    ) -> exception.LocalConflict:
        places = [
            f"attachment {other.id} is of "
            + (f"host {other.host}" if other.host else "a host that the service does not name")
            for other in others
        ]
        return exception.LocalConflict(
            reason=f"Volume {volume.id} is not attached to this host, "
            f"{self._host.identity.name}: {', '.join(places) or 'it has no attachment'}."
        )


def _check_local(entry: Entry) -> Entry:
    if entry.owner is Owner.LOCAL:
        return entry
    raise exception.LocalConflict(
        reason=f"The agent of this host looks after attachment {entry.attachment_id}. Have the "
        "service detach it, by deleting the attachment."
    )


def _ambiguous(
    volume: Volume, known: Iterable[Entry], foreign: Iterable[RemoteAttachment]
) -> exception.LocalConflict:
    """Return the error that lists the candidates: id, device, mountpoint, mode."""
    lines = [
        f"{entry.attachment_id} ({entry.device.path if entry.device else 'no device'}, "
        f"{entry.mountpoint or 'not mounted'}, {entry.mode})"
        for entry in known
    ]
    lines += [f"{attachment.id} (of another program, {attachment.mode})" for attachment in foreign]
    return exception.LocalConflict(
        reason=f"Volume {volume.id} has several attachments on this host. Say which one, by its "
        f"id: {'; '.join(lines)}"
    )
