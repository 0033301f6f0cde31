# SPDX-License-Identifier: Apache-2.0
"""What is done to volumes by POST /volumes/{volume_id}/action."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from attachd import exception, placement
from attachd.api import microversions as mv
from attachd.api.actions import policy, schema
from attachd.api.endpoint import action
from attachd.api.volumes import load, work
from attachd.context import RequestContext
from attachd.db import volumes

PATH = "/volumes/{volume_id}/action"

_CLAIMS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        # What a manager is about to do is nothing that could be claimed.
        "status": frozenset(volumes.RESETTABLE) - {"deleting", "error_deleting", "detaching"},
        "attach_status": frozenset({"attached", "detached"}),
        "migration_status": frozenset({"none"}),
    }
)
"""What an administrator may claim; volumes do not migrate here."""


@action(PATH, "os-extend", policy=policy.EXTEND, body=schema.EXTEND)
def extend(
    ctx: RequestContext, volume_id: str, body: Mapping[str, Any], version: mv.Version
) -> None:
    """Mark a volume and have its backend let it grow; from 3.42 on also while it is in use."""
    volume = load.volume(ctx, volume_id, policy.EXTEND)
    size = int(body["new_size"])
    if size <= volume.size_gib:
        raise exception.InvalidInput(
            field="os-extend.new_size",
            value=size,
            reason="New size for extend must be greater than current size. "
            f"(current: {volume.size_gib}, extended: {size}).",
        )
    allowed = ["available", "in-use"] if version >= mv.VOLUME_EXTEND_INUSE else ["available"]
    refusal = exception.InvalidVolume(
        reason=f"Volume {volume.id} status must be {' or '.join(allowed)} to extend, "
        f"currently {volume.status}."
    )
    if volume.status not in allowed:
        raise refusal
    if volume.status == "in-use":
        ctx.authorize(policy.EXTEND_ATTACHED, volume)
    placement.check_room(volume.host, size - volume.size_gib)
    try:
        work.extend(ctx, volume, size)
    except exception.InvalidTransition as error:
        raise refusal from error


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
        if claim not in _CLAIMS[field]:
            raise exception.InvalidInput(
                field=f"os-reset_status.{field}",
                value=claim,
                reason=f"It can be reset to {', '.join(sorted(_CLAIMS[field]))}.",
            )
    volumes.reset(volume.id, claims.get("status"), claims.get("attach_status"))
