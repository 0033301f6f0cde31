# SPDX-License-Identifier: Apache-2.0
"""What may be done with a volume: whether servers may boot from it, and hosts write to it."""

from collections.abc import Mapping
from typing import Any

from attachd.api import fields
from attachd.api.actions import policy, schema
from attachd.api.endpoint import action
from attachd.api.volumes import load
from attachd.api.volumes import policy as volume_policy
from attachd.context import RequestContext
from attachd.db import volume_changes, volumes

PATH = "/volumes/{volume_id}/action"


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
    volumes.update(volume.id, {"bootable": fields.truth("bootable", body["bootable"])})


@action(PATH, "os-update_readonly_flag", policy=policy.UPDATE_READONLY, body=schema.READONLY)
def update_readonly_flag(ctx: RequestContext, volume_id: str, body: Mapping[str, Any]) -> None:
    """Let later attachments of a volume only read it, or write again."""
    volume = load.volume(ctx, volume_id, policy.UPDATE_READONLY)
    if fields.truth("readonly", body["readonly"]):
        volume_changes.forbid_writing(volume.id)
    else:
        volume_changes.allow_writing(volume.id)
