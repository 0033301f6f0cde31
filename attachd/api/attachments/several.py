# SPDX-License-Identifier: Apache-2.0
"""Who may be one of several that have a volume, and in which mode; used by whatever attaches."""

from attachd.api import policy as rules
from attachd.api.attachments import policy
from attachd.api.volumes import policy as volume_policy
from attachd.context import RequestContext
from attachd.db import sharing_rules, types
from attachd.objects import Volume


def denied(ctx: RequestContext, volume: Volume) -> str:
    """Name the rule that keeps the caller from joining others at a volume; "" if none does.

    Whether there are others is looked up later, where nobody can come in between.
    """
    if not volume.multiattach:
        return ""
    asked = [volume_policy.MULTIATTACH, *([policy.BOOTABLE] if volume.bootable else [])]
    owner = {"project_id": volume.project_id, "user_id": volume.user_id}
    return next((rule for rule in asked if not rules.allows(ctx, rule, owner)), "")


def check_mode(volume: Volume, asked: str | None) -> None:
    """Refuse to let a volume be written that nobody may write, whoever else has it.

    :param asked: "rw", "ro", or None: as much as is allowed
    :raises ModeNotAllowed: naming what forbids it
    """
    if asked != "rw":
        return
    specs = types.get(volume.volume_type_id)["extra_specs"] if volume.volume_type_id else {}
    row = {"id": volume.id, "admin_metadata": volume.admin_metadata, "type_specs": specs}
    sharing_rules.mode(row, {}, (), asked)
