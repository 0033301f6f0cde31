# SPDX-License-Identifier: Apache-2.0
"""Actions that change a volume's record: status, flags, image metadata, and deletion by force."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import webob

from attachd import exception
from attachd.api import fields
from attachd.api.actions import policy, schema
from attachd.api.endpoint import EndpointDoc, action
from attachd.api.volumes import force_delete as volume_force_delete
from attachd.api.volumes import load, notify
from attachd.api.volumes import policy as volume_policy
from attachd.context import RequestContext
from attachd.db.attachments import legacy
from attachd.db.volumes import metadata as volume_metadata
from attachd.db.volumes import store as volumes
from attachd.db.volumes import updates as volume_updates

PATH = "/volumes/{volume_id}/action"

_ALLOWED_VALUES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        # A manager sets the states of its pending work.
        "status": frozenset(volumes.RESET_STATES) - {"deleting", "error_deleting", "detaching"},
        "attach_status": frozenset({"attached", "detached"}),
        "migration_status": frozenset({"none"}),
    }
)
"""The values that an administrator may set; volumes do not migrate here."""


@action(PATH, "os-reset_status", policy=policy.RESET_STATUS, body=schema.RESET)
def reset_status(ctx: RequestContext, volume_id: str, body: Mapping[str, str | None]) -> None:
    """Set a volume's status, unless its attachments contradict it."""
    volume = load.get(ctx, volume_id, policy.RESET_STATUS)
    claims = {field: text.lower() for field, text in body.items() if text}
    if not claims:
        raise exception.BadRequest(
            reason="Must specify 'status', 'attach_status' or 'migration_status' for update."
        )
    for field, claim in claims.items():
        if claim not in _ALLOWED_VALUES[field]:
            raise exception.InvalidInput(
                field=f"os-reset_status.{field}",
                value=claim,
                reason=f"It can be reset to {', '.join(sorted(_ALLOWED_VALUES[field]))}.",
            )
    with notify.change(volume, "reset_status"):
        if claims.get("status") == "attaching" and volume.status == "available":
            volumes.reset(
                volume.id, None, claims.get("attach_status")
            )  # a hold contradicts nothing
            # The status "attaching" without an attachment is that of a hold, as of os-reserve.
            legacy.reserve(volume.id, volume.project_id, ctx.user_id)
        volumes.reset(volume.id, claims.get("status"), claims.get("attach_status"))


@action(PATH, "os-force_delete", policy=policy.FORCE_DELETE, doc=EndpointDoc(faults=(409, 504)))
def force_delete(ctx: RequestContext, volume_id: str, request: webob.Request) -> None:
    """Delete a volume by force; the value under the action's name is ignored."""
    volume_force_delete.delete(ctx, load.get(ctx, volume_id, policy.FORCE_DELETE), request)


@action(
    PATH,
    "os-set_bootable",
    policy=volume_policy.UPDATE,
    body=schema.SET_BOOTABLE,
    status=200,
)
def set_bootable(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Record whether servers may boot from a volume."""
    volume = load.get_writable(ctx, volume_id, volume_policy.UPDATE)
    volumes.update(volume.id, {"bootable": fields.parse_bool("bootable", body["bootable"])})


@action(PATH, "os-update_readonly_flag", policy=policy.UPDATE_READONLY, body=schema.READONLY)
def update_readonly_flag(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Make later attachments of a volume read-only, or writable again."""
    volume = load.get(ctx, volume_id, policy.UPDATE_READONLY)
    if fields.parse_bool("readonly", body["readonly"]):
        volume_updates.set_read_only(volume.id)
    else:
        volume_updates.set_writable(volume.id)


Body = dict[str, Any]

_METADATA_DOC = EndpointDoc({"metadata": dict[str, str]})


@action(
    PATH,
    "os-set_image_metadata",
    policy=policy.SET_IMAGE_METADATA,
    body=schema.SET_IMAGE_METADATA,
    status=200,
    doc=_METADATA_DOC,
)
def set_image_metadata(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> Body:
    """Set some pairs, keep the others, and return all."""
    volume = load.get_writable(ctx, volume_id, policy.SET_IMAGE_METADATA)
    return {"metadata": volume_metadata.merge_image_metadata(volume.id, body["metadata"])}


@action(
    PATH,
    "os-unset_image_metadata",
    policy=policy.REMOVE_IMAGE_METADATA,
    body=schema.UNSET_IMAGE_METADATA,
    status=200,
)
def unset_image_metadata(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Remove one pair."""
    volume = load.get_writable(ctx, volume_id, policy.REMOVE_IMAGE_METADATA)
    volume_metadata.delete_image_metadata(volume.id, body["key"])


@action(
    PATH,
    "os-show_image_metadata",
    policy=volume_policy.GET_METADATA,
    status=200,
    doc=_METADATA_DOC,
)
def show_image_metadata(ctx: RequestContext, volume_id: str) -> Body:
    """Return all pairs; the value under the action's name is ignored.

    :raises NotFound: there are none
    """
    volume = load.get(ctx, volume_id, volume_policy.GET_METADATA)
    pairs = volume_metadata.get_image_metadata(volume.id)
    if not pairs:
        raise exception.NotFound(f"Volume {volume.id} has no image metadata.")
    return {"metadata": pairs}
