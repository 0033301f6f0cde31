# SPDX-License-Identifier: Apache-2.0
"""Letting hosts reach volumes, and shutting them out again, by actions of the volume."""

from collections.abc import Mapping
from typing import Any

import webob

from attachd import exception
from attachd.api.attachments import several
from attachd.api.endpoint import EndpointDoc, action
from attachd.api.legacy import policy, schema, view
from attachd.api.legacy.there import DOC, PATH, There
from attachd.api.volumes import load
from attachd.context import RequestContext
from attachd.rpc import manager_api

Body = Mapping[str, Any]


@action(
    PATH,
    "os-initialize_connection",
    policy=policy.INITIALIZE,
    body=schema.INITIALIZE,
    status=200,
    doc=EndpointDoc({"connection_info": view.Connection}, faults=(409, 504)),
)
def initialize_connection(ctx: RequestContext, volume_id: str, body: Body) -> dict[str, Any]:
    """Let a host reach a volume, and tell how."""
    connector = body["connector"]
    schema.check_connector(connector)
    volume = load.writable(ctx, volume_id, policy.INITIALIZE)
    denied = several.denied(ctx, volume)
    return view.connection(manager_api.open_connection(ctx, volume, connector, denied), connector)


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
    """Take a host's access away, and give the volume back if that was not used."""
    volume = load.volume(ctx, volume_id, policy.TERMINATE)
    there = There.unguarded(ctx, request, volume.id)
    connector = body["connector"] or None
    several = len(there.used) > 1 or (volume.multiattach and len(there.connections) > 1)
    if connector is None and several:
        raise exception.InvalidInput(
            field="os-terminate_connection.connector",
            value=connector,
            reason="The volume has several attachments or connections: name the host.",
        )
    # Without any, the call has come late, or twice: a hold may be somebody else's by now.
    if there.connections:
        # Whoever names a host means it, whatever the connection may be used for by then.
        ids = None if connector else [row["id"] for row in there.attachments]
        manager_api.close_connections(ctx, volume, connector, ids)
