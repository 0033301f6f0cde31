# SPDX-License-Identifier: Apache-2.0
"""Actions that attach volumes, as before the attachments API.

A caller reserves the volume (os-reserve), has its host connected (os-initialize_connection) and
reports that the volume is attached (os-attach); and back again (os-begin_detaching,
os-terminate_connection, os-detach).  Bare-metal services still do so.
"""

from collections.abc import Mapping
import contextlib
from typing import Any, TypedDict

import webob

from attachd import exception
from attachd.api.agents import device_check
from attachd.api.attachments import lifecycle
from attachd.api.attachments.policy import CONNECTION_INFO_AGAIN
from attachd.api.attachments.view import SecretVisibility
from attachd.api.endpoint import EndpointDoc, action
from attachd.api.legacy import policy, release, schema
from attachd.api.legacy.holders import DOC, PATH, VolumeHolders
from attachd.api.volumes import load
from attachd.context import RequestContext
from attachd.db.attachments import legacy
from attachd.db.row_types import AttachmentRow
from attachd.objects import Attachment, connection_data, redact
from attachd.rpc import manager_api

Body = Mapping[str, Any]


class Connection(TypedDict):
    """What os-brick's connect_volume() takes."""

    driver_volume_type: str
    data: dict[str, Any]
    enforce_multipath: bool


@action(PATH, "os-reserve", policy=policy.RESERVE)
def reserve(ctx: RequestContext, volume_id: str) -> None:
    """Hold a volume for an attachment that is to come."""
    volume = load.get(ctx, volume_id, policy.RESERVE)
    legacy.reserve(
        volume.id, volume.project_id, ctx.user_id, lifecycle.sharing_denied_rule(ctx, volume)
    )


@action(PATH, "os-unreserve", policy=policy.UNRESERVE, doc=EndpointDoc(faults=(429, 504)))
def unreserve(ctx: RequestContext, volume_id: str) -> None:
    """Release the caller's hold with the connections opened for it, if there is one."""
    volume = load.get(ctx, volume_id, policy.UNRESERVE)
    release.release_callers(ctx, volume, VolumeHolders.load(volume.id))


@action(PATH, "os-begin_detaching", policy=policy.BEGIN_DETACHING)
def begin_detaching(ctx: RequestContext, volume_id: str) -> None:
    """Show the volume as detaching; a service may also call it for what is detached already."""
    volume = load.get(ctx, volume_id, policy.BEGIN_DETACHING)
    legacy.begin_detaching(volume.id, by_service=ctx.by_service)


@action(PATH, "os-roll_detaching", policy=policy.ROLL_DETACHING)
def roll_detaching(ctx: RequestContext, volume_id: str) -> None:
    """Undo os-begin_detaching, if it was called."""
    legacy.roll_detaching(load.get(ctx, volume_id, policy.ROLL_DETACHING).id)


@action(
    PATH, "os-attach", policy=policy.ATTACH, body=schema.ATTACH, doc=EndpointDoc(faults=(409,))
)
def attach(ctx: RequestContext, volume_id: str, body: Body) -> None:
    """Record that a server, or else a host, uses a volume."""
    volume = load.get_writable(ctx, volume_id, policy.ATTACH)
    legacy.attach(
        volume.id,
        {
            "project_id": volume.project_id,
            "user_id": ctx.user_id,
            "instance_uuid": schema.instance_id(body),
            "host": body.get("host_name"),
            "mountpoint": body["mountpoint"],
            "mode": body.get("mode"),
        },
        lifecycle.sharing_denied_rule(ctx, volume),
    )
    lifecycle.notify_legacy_attach(volume)


@action(
    PATH,
    "os-detach",
    policy=policy.DETACH,
    body=schema.DETACH,
    doc=DOC,
)
def detach(ctx: RequestContext, volume_id: str, body: Body | None, request: webob.Request) -> None:
    """Remove an attachment and close its connections; the only one needs no name."""
    volume = load.get_writable(ctx, volume_id, policy.DETACH)
    attachment_id = schema.attachment_id(body)
    holders = VolumeHolders.checked(ctx, request, volume.id, attachment_id)
    chosen = _select_attachment(ctx, volume.id, holders, attachment_id)
    if chosen is not None:
        if chosen["host"] is None:
            own = [row for row in holders.connections if row["parent_id"] == chosen["id"]]
            device_check.check_connections(ctx, own)
        release.remove(ctx, request, volume, holders, chosen)
    elif attachment_id is None:
        release.release_callers(ctx, volume, holders)


@action(
    PATH,
    "os-force_detach",
    policy=policy.FORCE_DETACH,
    body=schema.FORCE_DETACH,
    doc=DOC,
)
def force_detach(ctx: RequestContext, volume_id: str, body: Body, request: webob.Request) -> None:
    """Remove one attachment in any state, with what is left of the host's connection."""
    volume = load.get_writable(ctx, volume_id, policy.FORCE_DETACH)
    attachment_id = schema.attachment_id(body)
    holders = VolumeHolders.checked(ctx, request, volume.id, attachment_id)
    chosen = _select_attachment(ctx, volume.id, holders, attachment_id)
    if chosen is not None:
        release.remove(ctx, request, volume, holders, chosen, release.force_delete)
        unused = holders.unused_by(chosen["user_id"])
        if unused and body.get("connector"):
            manager_api.terminate_connections(ctx, volume, body["connector"], (), unused)
    elif attachment_id is None:
        release.release_all(ctx, volume, holders)
    else:
        raise exception.AttachmentNotFound(attachment_id=attachment_id)


def _select_attachment(
    ctx: RequestContext, volume_id: str, holders: VolumeHolders, attachment_id: str | None
) -> AttachmentRow | None:
    """Return the attachment that is meant, or None if there is none or it is deleted.

    :raises InvalidVolume: there are several, and none was named
    :raises InvalidInput: the attachment is one of another volume
    """
    if attachment_id is None:
        if len(holders.used) > 1:
            raise exception.InvalidVolume(
                reason=f"Volume {volume_id} has {len(holders.used)} attachments: name the one to "
                f"be detached, with attachment_id. There are {holders.describe()}."
            )
        return next(iter(holders.used or holders.attachments), None)
    matching = [row for row in holders.attachments if row["id"] == attachment_id]
    if not matching:
        with contextlib.suppress(exception.AttachmentNotFound):
            other = Attachment.get(ctx, attachment_id)
            if other.volume_id != volume_id:
                raise exception.InvalidInput(
                    field="attachment_id",
                    value=attachment_id,
                    reason=f"It is an attachment of volume {other.volume_id}, not of {volume_id}.",
                )
    return next(iter(matching), None)


@action(
    PATH,
    "os-initialize_connection",
    policy=policy.INITIALIZE,
    body=schema.INITIALIZE,
    status=200,
    doc=EndpointDoc({"connection_info": Connection}, faults=(409, 429, 504)),
)
def initialize_connection(ctx: RequestContext, volume_id: str, body: Body) -> dict[str, Any]:
    """Give a host access to a volume, and return how to connect."""
    connector = body["connector"]
    schema.check_connector(connector)
    volume = load.get_writable(ctx, volume_id, policy.INITIALIZE)
    denied_rule = lifecycle.sharing_denied_rule(ctx, volume)
    answer = manager_api.initialize_connection(ctx, volume, connector, denied_rule)
    shown = show_connection(answer, connector)
    visibility = SecretVisibility(ctx, CONNECTION_INFO_AGAIN)
    if answer.get("is_repeated") and not visibility.may_see(volume.project_id, ctx.user_id):
        return dict(redact(shown))
    return shown


@action(
    PATH,
    "os-terminate_connection",
    policy=policy.TERMINATE,
    body=schema.TERMINATE,
    doc=DOC,
)
def terminate_connection(
    ctx: RequestContext, volume_id: str, body: Body, request: webob.Request
) -> None:
    """Remove a host's access, and release the volume if no attachment uses it."""
    volume = load.get(ctx, volume_id, policy.TERMINATE)
    holders = VolumeHolders.checked(ctx, request, volume.id)
    connector = body["connector"] or None
    several = len(holders.used) > 1 or (volume.multiattach and len(holders.connections) > 1)
    if connector is None and several:
        raise exception.InvalidInput(
            field="os-terminate_connection.connector",
            value=connector,
            reason="The volume has several attachments or connections: name the host.",
        )
    # Without connections the call is late or repeated: a hold may be another caller's by now.
    if holders.connections:
        device_check.check_connections(ctx, holders.connections)
        # A named host is disconnected even if an attachment uses the connection by then.
        ids = None if connector else [row["id"] for row in holders.attachments]
        manager_api.terminate_connections(ctx, volume, connector, ids)


def show_connection(answer: manager_api.Connected, connector: Mapping[str, Any]) -> dict[str, Any]:
    """Return what os-brick's connect_volume() takes.

    Some clients look for enforce_multipath beside the data, others in it.
    """
    multipath = {"enforce_multipath": connector.get("enforce_multipath", False)}
    data = connection_data(answer["connection_info"], answer["mode"])
    return {
        "connection_info": {
            "driver_volume_type": answer["connection_info"]["driver_volume_type"],
            "data": data | multipath,
            **multipath,
        }
    }
