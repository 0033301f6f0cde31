# SPDX-License-Identifier: Apache-2.0
"""Notifications about volumes: the Block Storage service's volume.* events and their payload.

A payload contains no connector, no connection_info and no secret of a connection.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
import datetime
import functools
from types import MappingProxyType
from typing import Any, Final

from attachd import exception, states
from attachd.conf import CONF
from attachd.db.attachments import attachment_queries
from attachd.db.row_types import AttachmentRow, VolumeWithMetadataRow
from attachd.db.volumes import volume_store
from attachd.notifications import sender

COLUMNS: Final = (
    "project_id", "host", "user_id", "availability_zone", "volume_type_id", "name",
    "launched_at", "created_at", "status", "size_gib", "metadata", "snapshot_id",
)  # fmt: skip
"""Columns of a volume in a payload."""

_ATTACHMENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "id": "id",
        "volume_id": "volume_id",
        "instance_uuid": "instance_uuid",
        "attached_host": "host",
        "mountpoint": "mountpoint",
        "attach_time": "attached_at",
        "attach_mode": "mode",
        "created_at": "created_at",
        "updated_at": "updated_at",
    }
)
ATTACHMENT_COLUMNS: Final = (*_ATTACHMENT.values(), "state")
"""Columns of an attachment in a payload."""

_MAX_REMEMBERED: Final = 1000
_recent: OrderedDict[str, VolumeWithMetadataRow] = OrderedDict()
"""Last read rows of volumes, for those that are deleted; used only in the sender's thread."""


def volume(
    event: str,
    volume_id: str,
    known: Mapping[str, Any] | None = None,
    attachments: Iterable[AttachmentRow] | None = None,
    *,
    host: str | None = None,
    **more: Any,
) -> None:
    """Notify that an operation on a volume starts or ends.

    :param event: what follows "volume.", such as "attach.start"
    :param known: columns of the volume at this moment; missing COLUMNS are read later
    :param attachments: rows of all its attachments at this moment; None: they are read
    :param host: publisher, such as ``host@backend``; None: [DEFAULT]host
    :param more: additional fields of the payload
    """
    if sender.enabled():
        sender.send(_event(event, volume_id, known, attachments, host, more))


def urgent_volume(event: str, volume_id: str, **more: Any) -> None:
    """Notify with priority "warn"; see :func:`volume`."""
    if sender.enabled():
        notification = _event(event, volume_id, None, None, None, more)
        sender.send(notification._replace(priority="warn"))


def _event(
    event: str,
    volume_id: str,
    known: Mapping[str, Any] | None,
    attachments: Iterable[AttachmentRow] | None,
    host: str | None,
    more: Mapping[str, Any],
) -> sender.Event:
    # Copies, because the rows change afterwards.
    kept = {name: known[name] for name in COLUMNS if name in known} if known else {}
    shown = None if attachments is None else _attachments(attachments)
    return sender.Event(
        f"volume.{event}",
        volume_id,
        f"volume.{host or CONF.host}",
        functools.partial(_payload, volume_id, kept, shown, more),
    )


def _payload(
    volume_id: str,
    known: Mapping[str, Any],
    attachments: Sequence[Mapping[str, Any]] | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    row = known if len(known) == len(COLUMNS) else {**_read(volume_id), **known}
    if attachments is None:
        attachments = _attachments(attachment_queries.list_of_volumes([volume_id])[volume_id])
    return {
        "tenant_id": row.get("project_id"),
        "host": row.get("host"),
        "user_id": row.get("user_id"),
        "availability_zone": row.get("availability_zone"),
        "volume_id": volume_id,
        "volume_type": row.get("volume_type_id"),
        "display_name": row.get("name"),
        "launched_at": _time(row.get("launched_at") or sender.now()),
        "created_at": _time(row.get("created_at") or sender.now()),
        "status": row.get("status"),
        "snapshot_id": row.get("snapshot_id"),
        "size": row.get("size_gib"),
        "replication_status": None,
        "replication_extended_status": None,
        "replication_driver_data": None,
        "metadata": dict(row.get("metadata") or {}),
        "volume_attachment": list(attachments),
        **more,
    }


def _read(volume_id: str) -> Mapping[str, Any]:
    """Return a volume's row; as it was last, where it is gone."""
    try:
        _recent[volume_id] = volume_store.get(volume_id, None)
    except exception.VolumeNotFound:
        return _recent.get(volume_id, {})
    _recent.move_to_end(volume_id)
    if len(_recent) > _MAX_REMEMBERED:
        _recent.popitem(last=False)
    return _recent[volume_id]


def _attachments(rows: Iterable[AttachmentRow]) -> list[dict[str, Any]]:
    """Show those that clients know as attachments."""
    whole = states.AttachmentKind.ATTACHMENT
    return [_attachment(row) for row in rows if row.get("kind", whole) in states.VISIBLE_KINDS]


def _attachment(row: AttachmentRow) -> dict[str, Any]:
    shown = {key: _plain(row.get(name)) for key, name in _ATTACHMENT.items()}
    state = states.AttachmentState(row["state"])
    return {**shown, "attach_status": state.wire, "detach_time": None}


def _plain(value: Any) -> Any:
    return _time(value) if isinstance(value, datetime.datetime) else value


def _time(moment: datetime.datetime) -> str:
    return f"{moment.isoformat()}+00:00"
