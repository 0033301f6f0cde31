# SPDX-License-Identifier: Apache-2.0
"""Notifications, messages to users and requests to agents about the manager's work.

A notification is for other services (oslo.messaging).  A message is for the user: it names the
action and the kind of failure of a request that had been accepted; the reason, in the words of the
backend, is in the row and in the log.  A request to an agent only saves time: without it, the
agent finds the change at its next report.  No failure here affects the work.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from oslo_context import context as oslo_context
from oslo_log import log

from attachd import context, exception, notifications
from attachd.conf import CONF
from attachd.db import messages
from attachd.db.attachments.attachment_rows import Transitioned
from attachd.db.row_types import AttachmentRow, DriverVolumeRow, SnapshotRow, VolumeRow
from attachd.manager.backends import Backend
from attachd.rpc import agent_api
from attachd.states import VISIBLE_KINDS, WITH_ACCESS, AttachmentState, Event

LOG = log.getLogger(__name__)

_ACTIONS: Final[Mapping[Event, tuple[str, str]]] = MappingProxyType(
    {
        Event.CREATE_FAILED: (messages.CREATE, messages.NOT_CREATED),
        Event.DELETE_FAILED: (messages.DELETE, messages.NOT_DELETED),
        Event.EXTEND_FAILED: (messages.EXTEND, messages.NOT_EXTENDED),
        Event.EXTEND_LOST: (messages.EXTEND, messages.NOT_EXTENDED),
        Event.MANAGE_FAILED: (messages.MANAGE, messages.NOT_MANAGED),
        Event.UNMANAGE_FAILED: (messages.UNMANAGE, messages.NOT_UNMANAGED),
        Event.REVERT_FAILED: (messages.REVERT, messages.NOT_REVERTED),
        Event.REIMAGE_FAILED: (messages.REIMAGE, messages.NOT_REIMAGED),
        Event.UPLOAD_FAILED: (messages.UPLOAD, messages.NOT_UPLOADED),
        Event.CONNECT_FAILED: (messages.CONNECT, messages.NOT_ATTACHED),
        Event.CONNECT_LOST: (messages.CONNECT, messages.NOT_ATTACHED),
        Event.DISCONNECT_FAILED: (messages.DISCONNECT, messages.NOT_DETACHED),
    }
)
"""The action and the detail of the message about each failure."""

_SNAPSHOT_ACTIONS: Final[Mapping[Event, tuple[str, str]]] = MappingProxyType(
    {
        Event.CREATE_FAILED: (messages.SNAPSHOT, messages.NOT_TAKEN),
        Event.DELETE_FAILED: (messages.DELETE_SNAPSHOT, messages.SNAPSHOT_NOT_DELETED),
        Event.UNMANAGE_FAILED: (messages.UNMANAGE, messages.NOT_UNMANAGED),
    }
)


def volume_event(
    backend: Backend,
    event: str,
    row: DriverVolumeRow,
    attachments: Iterable[AttachmentRow] = (),
    **changed: Any,
) -> None:
    """Send a notification about a volume.

    :param changed: columns whose values have changed since
    """
    # The host of a new volume includes the pool.
    is_new = event.startswith(("create.", "manage_existing."))
    host = row["host"] if is_new else backend.host
    notifications.volume(event, row["id"], {**row, **changed}, attachments, host=host)


def snapshot_event(
    backend: Backend, event: str, row: SnapshotRow, volume: DriverVolumeRow, **changed: Any
) -> None:
    """Send a notification about a snapshot.

    :param volume: the row of its volume
    :param changed: fields of the payload that differ
    """
    zone = volume["availability_zone"]
    notifications.snapshot(event, row, zone, host=backend.host, **changed)


def snapshot_message(row: SnapshotRow, event: Event, cause: Exception) -> None:
    """Store a message to the user of a snapshot about a failed operation."""
    action, detail = _SNAPSHOT_ACTIONS[event]
    if isinstance(cause, exception.Unavailable | exception.BackendUnreachable):
        detail = messages.BACKEND_DOWN
    news = messages.NewMessage(
        *(row["id"], row["project_id"], action, detail, _request_id()),
        resource_type=messages.VOLUME_SNAPSHOT,
    )
    messages.try_create(news, CONF.manager.message_ttl)


def attachment_event(backend: Backend, event: str, transitioned: Transitioned) -> None:
    """Send a notification about a volume and one of its attachments, which still exists."""
    _attachment_event(
        backend, event, transitioned, [transitioned.attachment, *transitioned.others]
    )


def attachment_removed_event(backend: Backend, event: str, transitioned: Transitioned) -> None:
    """Send a notification about a volume and an attachment that was removed."""
    _attachment_event(backend, event, transitioned, transitioned.others)


def _attachment_event(
    backend: Backend, event: str, transitioned: Transitioned, attachments: Iterable[AttachmentRow]
) -> None:
    # A row of another kind belongs to an attachment, which has notifications of its own.
    if transitioned.attachment["kind"] in VISIBLE_KINDS:
        volume = transitioned.volume
        notifications.volume(event, volume["id"], volume, attachments, host=backend.host)


def flush() -> None:
    """Wait a moment until the notifications are sent: the API sends the one about the end."""
    notifications.flush()


def volume_message(row: VolumeRow, event: Event, cause: Exception) -> None:
    """Store a message to the user of a volume about a failed operation."""
    _failure_message(row["id"], row["project_id"], event, cause)


def attachment_message(row: AttachmentRow, event: Event, cause: Exception) -> None:
    """Store a message to the user of an attachment about a failed operation."""
    _failure_message(row["volume_id"], row["project_id"], event, cause)


def force_detach_message(row: AttachmentRow, user_id: str | None) -> None:
    """Store a message to the user of an attachment that another user deletes it by force."""
    news = messages.forced(row, user_id, _request_id())
    messages.try_create(news, CONF.manager.message_ttl)


def expiry_message(row: AttachmentRow) -> None:
    """Store a message to the user of a reservation that it has expired."""
    details = {"attachment_id": row["id"]}
    action, detail = messages.RESERVE, messages.EXPIRED
    _store_message(row["volume_id"], row["project_id"], action, detail, details)


def unannounced_growth_message(
    volume_id: str, project_id: str, server_id: str, reason: str
) -> None:
    """Store a message to the user of a volume that Compute does not notify a server of its size.

    :param reason: part of a sentence, without names of the deployment
    """
    details = {"server_id": server_id, "reason": reason}
    _store_message(volume_id, project_id, messages.EXTEND, messages.NOT_NOTIFIED, details)


def _failure_message(volume_id: str, project_id: str, event: Event, cause: Exception) -> None:
    action, detail = _ACTIONS[event]
    if isinstance(cause, exception.ImageServiceUnavailable):
        detail = messages.IMAGE_SERVICE_DOWN
    elif isinstance(cause, exception.Unavailable | exception.BackendUnreachable):
        detail = messages.BACKEND_DOWN
    elif isinstance(cause, exception.ImageUnacceptable):
        detail = messages.UNFIT_IMAGE
    _store_message(volume_id, project_id, action, detail)


def _store_message(
    volume_id: str,
    project_id: str,
    action: str,
    detail: str,
    details: Mapping[str, str | None] | None = None,
) -> None:
    news = messages.NewMessage(volume_id, project_id, action, detail, _request_id(), details)
    messages.try_create(news, CONF.manager.message_ttl)


def _request_id() -> str | None:
    request = oslo_context.get_current()
    return request.request_id if request else None


def request_reconcile(rows: Iterable[AttachmentRow]) -> None:
    """Ask the agents of these attachments to reconcile those that may have a device."""
    for row in rows:
        if row["agent"] is not None and AttachmentState(row["state"]) in WITH_ACCESS:
            _request_reconcile(row["agent"], row["id"])


def _request_reconcile(host: str, attachment_id: str) -> None:
    try:
        agent_api.reconcile(context.get_admin_context(), host, attachment_id)
    except exception.AttachdError as error:
        LOG.info("Attachment %s: agent of host %s not notified: %s", attachment_id, host, error)
    except Exception:
        LOG.exception("Attachment %s: agent of host %s not notified", attachment_id, host)
