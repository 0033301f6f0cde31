# SPDX-License-Identifier: Apache-2.0
"""Notifications of changes to attachments that the API makes without the manager.

The manager itself notifies of the start of an attach and of detaches.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attachd import notifications
from attachd.objects import Attachment, Volume
from attachd.states import AttachmentState


def attach_completed(attachment: Attachment, before: str) -> None:
    """Notify that a volume is attached.

    :param before: the attachment's state until now
    """
    if before == AttachmentState.ATTACHED:
        return  # The notification was sent when it became attached.
    if before == AttachmentState.RESERVED:  # the manager has sent no attach.start
        notifications.volume("attach.start", attachment.volume_id)
    notifications.volume("attach.end", attachment.volume_id)


def legacy_attach(volume: Volume) -> None:
    """Notify that a caller reports a volume as attached, by the older calls.

    :param volume: as it was before; a repeated report is not notified
    """
    if volume.multiattach or volume.status != "in-use":
        notifications.volume("attach.start", volume.id, {"status": volume.status})
        notifications.volume("attach.end", volume.id)


def reservation_cancelled(attachment: Attachment, remaining: Sequence[Mapping[str, Any]]) -> None:
    """Notify that a reservation was cancelled.

    :param remaining: the rows of the volume's other attachments
    """
    before = {"status": attachment.volume_status}
    given_up = {name: getattr(attachment, name) for name in notifications.ATTACHMENT_COLUMNS}
    notifications.volume("detach.start", attachment.volume_id, before, [given_up, *remaining])
    notifications.volume("detach.end", attachment.volume_id, attachments=remaining)
