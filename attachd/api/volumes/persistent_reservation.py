# SPDX-License-Identifier: Apache-2.0
"""The endpoint that shows who holds a persistent reservation of a volume."""

from typing import Any, TypedDict

from attachd.api import microversions as mv
from attachd.api import scheduler
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.volumes import load, policy
from attachd.context import RequestContext
from attachd.rpc import manager_api


class PersistentReservation(TypedDict):
    """A persistent reservation.

    :ivar holder: name of the host, as the backend knows it; null unless the caller may see the
        hosts of attachments
    :ivar type: as the backend calls it
    :ivar attachment_ids: of the attachments to that host; none: the backend knows it by a name
        that no attachment has
    """

    holder: str | None
    type: str
    attachment_ids: list[str]


@endpoint(
    "GET",
    "/volumes/{volume_id}/persistent_reservation",
    attachd_since=mv.ATTACHD_1_0,
    policy=policy.GET_PERSISTENT_RESERVATION,
    doc=EndpointDoc(
        {"persistent_reservation": PersistentReservation | None}, faults=(400, 429, 503, 504)
    ),
)
def show(ctx: RequestContext, volume_id: str) -> dict[str, Any]:
    """Return the persistent reservation of a volume, as its backend has it now; null: none."""
    volume = load.get(ctx, volume_id, policy.GET_PERSISTENT_RESERVATION)
    if not volume.host:
        return {"persistent_reservation": None}
    scheduler.check_reporting(volume.backend)
    found = manager_api.get_persistent_reservation(ctx, volume)
    if found and not (ctx.is_admin or "service" in ctx.roles):
        return {"persistent_reservation": {**found, "holder": None}}
    return {"persistent_reservation": found}
