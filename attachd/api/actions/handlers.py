# SPDX-License-Identifier: Apache-2.0
"""Setting a volume's status by hand."""

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
from attachd.db import image_metadata, legacy, volume_changes, volumes

PATH = "/volumes/{volume_id}/action"

_ALLOWED_VALUES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        # What a manager is about to do is nothing that could be claimed.
        "status": frozenset(volumes.RESETTABLE) - {"deleting", "error_deleting", "detaching"},
        "attach_status": frozenset({"attached", "detached"}),
        "migration_status": frozenset({"none"}),
    }
)
"""What an administrator may claim; volumes do not migrate here."""


@action(PATH, "os-reset_status", policy=policy.RESET_STATUS, body=schema.RESET)
def reset_status(ctx: RequestContext, volume_id: str, body: Mapping[str, str | None]) -> None:
    """Set a volume's status by hand, unless its attachments prove the claim wrong."""
    volume = load.volume(ctx, volume_id, policy.RESET_STATUS)
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
            volumes.reset(volume.id, None, claims.get("attach_status"))  # a hold proves nothing
            # Nothing is attaching, but somebody is to come: as os-reserve has it.
            legacy.hold(volume.id, volume.project_id, ctx.user_id)
        volumes.reset(volume.id, claims.get("status"), claims.get("attach_status"))


@action(PATH, "os-force_delete", policy=policy.FORCE_DELETE, doc=EndpointDoc(faults=(409, 504)))
def force_delete(ctx: RequestContext, volume_id: str, request: webob.Request) -> None:
    """Have a volume deleted; whatever the action's name stands for is ignored."""
    volume_force_delete.delete(ctx, load.volume(ctx, volume_id, policy.FORCE_DELETE), request)


@action(
    PATH,
    "os-set_bootable",
    policy=volume_policy.UPDATE,
    body=schema.SET_BOOTABLE,
    status=200,
)
def set_bootable(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Note whether servers may boot from a volume."""
    volume = load.writable(ctx, volume_id, volume_policy.UPDATE)
    volumes.update(volume.id, {"bootable": fields.parse_bool("bootable", body["bootable"])})


@action(PATH, "os-update_readonly_flag", policy=policy.UPDATE_READONLY, body=schema.READONLY)
def update_readonly_flag(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Let later attachments of a volume only read it, or write again."""
    volume = load.volume(ctx, volume_id, policy.UPDATE_READONLY)
    if fields.parse_bool("readonly", body["readonly"]):
        volume_changes.forbid_writing(volume.id)
    else:
        volume_changes.allow_writing(volume.id)


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
    """Set some pairs, keep the others, and answer all."""
    volume = load.writable(ctx, volume_id, policy.SET_IMAGE_METADATA)
    return {"metadata": image_metadata.merge(volume.id, body["metadata"])}


@action(
    PATH,
    "os-unset_image_metadata",
    policy=policy.REMOVE_IMAGE_METADATA,
    body=schema.UNSET_IMAGE_METADATA,
    status=200,
)
def unset_image_metadata(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Remove one pair."""
    volume = load.writable(ctx, volume_id, policy.REMOVE_IMAGE_METADATA)
    image_metadata.delete(volume.id, body["key"])


@action(
    PATH,
    "os-show_image_metadata",
    policy=volume_policy.GET_METADATA,
    status=200,
    doc=_METADATA_DOC,
)
def show_image_metadata(ctx: RequestContext, volume_id: str) -> Body:
    """Answer all pairs; whatever the action's name stands for is ignored.

    :raises NotFound: there are none
    """
    volume = load.volume(ctx, volume_id, volume_policy.GET_METADATA)
    pairs = image_metadata.get(volume.id)
    if not pairs:
        raise exception.NotFound(f"Volume {volume.id} has no image metadata.")
    return {"metadata": pairs}
