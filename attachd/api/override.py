# SPDX-License-Identifier: Apache-2.0
"""Administrators' override of the check with Nova: ``?override_reason=...`` under attachd 1.0.

endpoint.py refuses the parameter without it.
User and reason are logged and sent as a notification.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

from oslo_log import log
import webob

from attachd import notifications
from attachd.api import serialization, validation
from attachd.api.attachments import policy
from attachd.api.validation import Validator
from attachd.context import RequestContext
from attachd.objects import Attachment

LOG = log.getLogger(__name__)

PARAMETER: Final = "override_reason"

QUERY_PARAMETERS: Final[Mapping[str, validation.Schema]] = {
    PARAMETER: validation.query_text(
        "attachd 1.0. Why Nova is not asked, for administrators: it is recorded."
    )
}
"""The documentation of the parameter."""

_REASON: Final = Validator(validation.REASON)


class AttachmentRef(NamedTuple):
    """The attributes of an attachment that the checks need."""

    id: str
    volume_id: str
    project_id: str
    user_id: str | None
    instance_uuid: str | None
    state: str
    host: str | None

    @classmethod
    def from_attachment(cls, attachment: Attachment) -> Self:
        """Return those of an attachment."""
        return cls(**{name: getattr(attachment, name) for name in cls._fields})


def is_overridden(
    ctx: RequestContext, request: webob.Request, refs: Sequence[AttachmentRef]
) -> bool:
    """Return whether the request overrides the check, and record user and reason.

    :raises Forbidden: the caller is not allowed to
    :raises InvalidInput: the reason is blank or too long
    """
    override_reason = reason(request)
    if override_reason is None:
        return False
    for ref in refs:
        ctx.authorize(policy.OVERRIDE, ref)
    for ref in refs:
        _record(ctx, ref, override_reason)
    return True


def reason(request: webob.Request) -> str | None:
    """Return the reason that a request gives, or None.

    :raises InvalidInput: the reason is blank or too long
    """
    given = serialization.read_query(request.query_string).get(PARAMETER)
    if given is not None:
        _REASON.check(given, PARAMETER)
    return given


def details(
    ctx: RequestContext, ref: AttachmentRef, override_reason: str | None
) -> dict[str, str | None]:
    """Return the content of a notification: the attachment, the caller and the reason."""
    return {
        "attachment_id": ref.id,
        "instance_uuid": ref.instance_uuid,
        "attached_host": ref.host,
        "user_id": ctx.user_id,
        "project_id": ctx.project_id,
        "reason": override_reason,
    }


def _record(ctx: RequestContext, ref: AttachmentRef, override_reason: str) -> None:
    LOG.warning(
        "Attachment %s of volume %s, of server %s on host %s, is deleted without asking Compute, "
        "by override of user %s of project %s. Reason: %s",
        ref.id,
        ref.volume_id,
        ref.instance_uuid,
        ref.host,
        ctx.user_id,
        ctx.project_id,
        override_reason,
    )
    body = details(ctx, ref, override_reason)
    notifications.urgent_volume("detach.override", ref.volume_id, override=body)
