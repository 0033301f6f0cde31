# SPDX-License-Identifier: Apache-2.0
"""Protection of attachments that a server uses from deletion (OSSA-2023-003).

If a volume is disconnected while a server has its disk, a device remains on the host that may
later show the data of another project.  Users therefore detach through Nova, which calls the API
with a service token.  A user's own call passes only if Nova answers that the server does not have
the volume by this attachment, or in a deployment without Nova.

An administrator may override the check: see override.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from oslo_log import log
import webob

from attachd import exception
from attachd.api import identity, nova, override
from attachd.api.override import AttachmentRef
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db.attachments import attachment_queries
from attachd.db.row_types import AttachmentRow
from attachd.objects import Attachment
from attachd.states import INACTIVE, WITH_ACCESS, AttachmentState

LOG = log.getLogger(__name__)

AllowedStates = frozenset[AttachmentState] | None
"""The states in which the manager may delete an attachment; None: any state."""

HARMLESS: Final = INACTIVE | {AttachmentState.RESERVED}
"""States in which no host reaches the volume by the attachment."""

_NO_DEVICE: Final = frozenset(AttachmentState) - WITH_ACCESS


def check(ctx: RequestContext, request: webob.Request, attachment: Attachment) -> AllowedStates:
    """Check that an attachment may be deleted.

    :returns: ``allowed_states`` of manager_api.detach(), as the attachment may change after this
        check
    :raises AttachmentInUse: a server uses the volume by it
    :raises Unavailable: Nova cannot be asked
    """
    ref = AttachmentRef.from_attachment(attachment)
    if _may_be_in_use(ref):
        _check_in_use(ctx, request, [ref])
        return None
    is_unprotected = (
        ref.instance_uuid is None or identity.is_service(ctx) or _has_no_compute(ctx, request)
    )
    return None if is_unprotected else HARMLESS


def check_volume(
    ctx: RequestContext, request: webob.Request, volume_id: str, attachment_id: str | None
) -> Mapping[str, AllowedStates]:
    """Check that a legacy call may detach a volume; without an attachment id, the only one.

    :returns: as :func:`check`, by the id of the attachment; an id without an entry may be deleted
        in any state
    :raises AttachmentInUse: a server uses the volume, or may use one of several attachments
    :raises InvalidInput: the attachment is one of another volume
    :raises Unavailable: Nova cannot be asked
    """
    if identity.is_service(ctx) or _has_no_compute(ctx, request):
        return {}
    rows = attachment_queries.list_of_volumes([volume_id])[volume_id]
    refs = [_attachment_ref(row) for row in rows if attachment_id in {None, row["id"]}]
    if attachment_id is not None and not refs:
        _check_other_volume(ctx, volume_id, attachment_id)
    if any(map(_may_be_in_use, refs)):
        _check_in_use(ctx, request, refs)
        return {}
    return {ref.id: HARMLESS for ref in refs if ref.instance_uuid is not None}


def without_device(allowed_states: AllowedStates) -> AllowedStates:
    """Return those states in which no agent has a device: not yet, or no longer."""
    return _NO_DEVICE if allowed_states is None else allowed_states & _NO_DEVICE


def _has_no_compute(ctx: RequestContext, request: webob.Request) -> bool:
    try:
        return nova.find_compute(ctx, request.environ) is None
    except exception.Unavailable:
        return False  # Nova exists but cannot be asked; this matters only for a used volume.


def _attachment_ref(row: AttachmentRow) -> AttachmentRef:
    columns: Any = row
    return AttachmentRef(**{name: columns[name] for name in AttachmentRef._fields})


def _check_other_volume(ctx: RequestContext, volume_id: str, attachment_id: str) -> None:
    """Check that an attachment that the volume does not have is not one of another volume."""
    try:
        found = Attachment.get(ctx, attachment_id)
    except exception.AttachmentNotFound:
        return
    raise exception.InvalidInput(
        field="attachment_id",
        value=attachment_id,
        reason=f"It is an attachment of volume {found.volume_id}, not of {volume_id}.",
    )


def _may_be_in_use(ref: AttachmentRef) -> bool:
    """Return whether a server may have the disk.

    The state decides, not a stored connection: an interrupted connect may have granted access.
    """
    return ref.instance_uuid is not None and AttachmentState(ref.state) not in HARMLESS


def _check_in_use(
    ctx: RequestContext, request: webob.Request, refs: Sequence[AttachmentRef]
) -> None:
    if identity.is_service(ctx):
        return
    compute_api = nova.find_compute(ctx, request.environ)
    if compute_api is None or override.is_overridden(ctx, request, refs):
        return
    if len(refs) > 1:
        raise exception.AttachmentInUse(
            reason=f"Volume {refs[0].volume_id} has {len(refs)} attachments, some of them of "
            "servers: name the one to be deleted."
        )
    (ref,) = refs
    _check_nova_view(ctx, ref, compute_api.volume_use(str(ref.instance_uuid), ref.volume_id))


def _check_nova_view(ctx: RequestContext, ref: AttachmentRef, volume_use: nova.VolumeUse) -> None:
    """Compare the attachment with what Nova says.

    :raises AttachmentInUse: the server uses the volume by this attachment
    """
    if volume_use.attachment_id == ref.id:
        raise exception.AttachmentInUse(
            reason=f"Attachment {ref.id} is in use: server {ref.instance_uuid} has volume "
            f"{ref.volume_id}. Detach the volume from it through the Compute API."
        )
    is_creator = ref.user_id is not None and ref.user_id == ctx.user_id
    if CONF.nova.unknown_to_compute == "creator" and not is_creator:
        raise exception.AttachmentInUse(
            reason=f"Attachment {ref.id} is unknown to Compute. Only its creator, user "
            f"{ref.user_id}, may delete it."
        )
    other_attachment = f"has it by attachment {volume_use.attachment_id}"
    LOG.warning(
        "Attachment %s of volume %s is deleted for user %s: Nova says that server %s %s. Host %s "
        "may be left with a device",
        ref.id,
        ref.volume_id,
        ctx.user_id,
        ref.instance_uuid,
        other_attachment
        if volume_use.attachment_id
        else f"does not have it ({volume_use.message})",
        ref.host,
    )
