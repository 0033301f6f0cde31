# SPDX-License-Identifier: Apache-2.0
"""Tells what requests do to attachments by themselves; called by handlers, legacy ones too.

What a manager does for them is told by the manager: the beginning of an attach, and a detach.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attachd import notifications
from attachd.objects import Attachment, Volume
from attachd.states import AttachmentState


def attach_completed(attachment: Attachment, before: str) -> None:
    """Tell that a volume is attached.

    :param before: the attachment's inner state until now
    """
    if before == AttachmentState.ATTACHED:
        return  # It was told.
    if before == AttachmentState.RESERVED:  # no manager has
        notifications.volume("attach.start", attachment.volume_id)
    notifications.volume("attach.end", attachment.volume_id)


def legacy_attach(volume: Volume) -> None:
    """Tell that somebody says a volume is attached, by the older calls.

    :param volume: as it was before; who only says it again is not told of
    """
    if volume.multiattach or volume.status != "in-use":
        notifications.volume("attach.start", volume.id, {"status": volume.status})
        notifications.volume("attach.end", volume.id)


def reservation_cancelled(attachment: Attachment, remaining: Sequence[Mapping[str, Any]]) -> None:
    """Tell that a reservation was given up.

    :param remaining: the rows of the volume's other attachments
    """
    before = {"status": attachment.volume_status}
    given_up = {name: getattr(attachment, name) for name in notifications.ATTACHMENT_COLUMNS}
    notifications.volume("detach.start", attachment.volume_id, before, [given_up, *remaining])
    notifications.volume("detach.end", attachment.volume_id, attachments=remaining)
