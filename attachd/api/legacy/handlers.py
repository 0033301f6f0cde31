# SPDX-License-Identifier: Apache-2.0
"""Attaching by actions of a volume, as it was done before there were attachments in the API.

A caller takes the volume (os-reserve), has its host let in (os-initialize_connection) and says
that the volume is attached (os-attach); and back again (os-begin_detaching,
os-terminate_connection, os-detach).  Bare-metal services do it like this to the present day.
"""

from collections.abc import Mapping
from typing import Any

from attachd.api.attachments import several, telling
from attachd.api.endpoint import EndpointDoc, action
from attachd.api.legacy import giving_back, policy, schema
from attachd.api.legacy.there import PATH, There
from attachd.api.volumes import load
from attachd.context import RequestContext
from attachd.db import legacy

Body = Mapping[str, Any]


@action(PATH, "os-reserve", policy=policy.RESERVE)
def reserve(ctx: RequestContext, volume_id: str) -> None:
    """Take a volume for an attachment that is to come."""
    volume = load.volume(ctx, volume_id, policy.RESERVE)
    legacy.hold(volume.id, volume.project_id, ctx.user_id, several.denied(ctx, volume))


@action(PATH, "os-unreserve", policy=policy.UNRESERVE, doc=EndpointDoc(faults=(504,)))
def unreserve(ctx: RequestContext, volume_id: str) -> None:
    """Give a volume back, and what was opened in the meantime with it; or do nothing."""
    volume = load.volume(ctx, volume_id, policy.UNRESERVE)
    giving_back.as_begun(ctx, volume, There.of(volume.id))


@action(PATH, "os-begin_detaching", policy=policy.BEGIN_DETACHING)
def begin_detaching(ctx: RequestContext, volume_id: str) -> None:
    """Let everybody see that a volume is about to be detached."""
    legacy.begin_detaching(load.volume(ctx, volume_id, policy.BEGIN_DETACHING).id)


@action(PATH, "os-roll_detaching", policy=policy.ROLL_DETACHING)
def roll_detaching(ctx: RequestContext, volume_id: str) -> None:
    """Take that back; or do nothing."""
    legacy.roll_detaching(load.volume(ctx, volume_id, policy.ROLL_DETACHING).id)


@action(
    PATH, "os-attach", policy=policy.ATTACH, body=schema.ATTACH, doc=EndpointDoc(faults=(409,))
)
def attach(ctx: RequestContext, volume_id: str, body: Body) -> None:
    """Note that a server, or else a host, uses a volume now."""
    volume = load.writable(ctx, volume_id, policy.ATTACH)
    legacy.attach(
        volume.id,
        {
            "project_id": volume.project_id,
            "user_id": ctx.user_id,
            "instance_uuid": schema.server(body),
            "host": body.get("host_name"),
            "mountpoint": body["mountpoint"],
            "mode": body.get("mode"),
        },
        several.denied(ctx, volume),
    )
    telling.of_claim(volume)
