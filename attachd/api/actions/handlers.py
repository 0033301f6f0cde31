# SPDX-License-Identifier: Apache-2.0
"""Setting a volume's status by hand."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attachd import exception
from attachd.api.actions import policy, schema
from attachd.api.endpoint import action
from attachd.api.volumes import load, telling
from attachd.context import RequestContext
from attachd.db import legacy, volumes

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
    with telling.of_change(volume, "reset_status"):
        if claims.get("status") == "attaching" and volume.status == "available":
            volumes.reset(volume.id, None, claims.get("attach_status"))  # a hold proves nothing
            # Nothing is attaching, but somebody is to come: as os-reserve has it.
            legacy.hold(volume.id, volume.project_id, ctx.user_id)
        volumes.reset(volume.id, claims.get("status"), claims.get("attach_status"))
