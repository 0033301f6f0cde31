# SPDX-License-Identifier: Apache-2.0
"""Making attachments: reserved, and connected at once if there is a connector.

A reservation is committed before the manager is asked to connect, and the manager alone writes
after that.  To a host by its name: see by_host.py.
"""

from typing import Any

from attachd.api import microversions as mv
from attachd.api.attachments import (
    by_host,
    connecting,
    policy,
    repetition,
    reservation,
    schema,
)
from attachd.api.endpoint import endpoint
from attachd.context import RequestContext
from attachd.objects import Volume


@endpoint(
    "POST",
    "/attachments",
    since=mv.NEW_ATTACH,
    policy=policy.CREATE,
    body=schema.CREATE,
    idempotent=repetition.RECIPE,
    doc=connecting.DOC,
)
def create(
    ctx: RequestContext,
    body: dict[str, Any],
    ext_version: mv.Version | None,
    idempotency_claim: repetition.IdempotencyClaim | None = None,
    async_response: connecting.AsyncPreference | None = None,
) -> connecting.Shown:
    """Reserve a volume, and connect it at once when a connector is given, or attach it to a host.

    The answer tells the state before the connection, as the API has always done.  That of a host
    which attaches by itself tells the state after it.
    """
    wanted = body["attachment"]
    host = wanted.get("connector")
    if by_host.FIELD in wanted:
        by_host.check_fields(wanted, ext_version)
    elif host:
        schema.check_connector(host)
    volume = Volume.get(ctx, schema.identity(wanted, "volume_uuid"))
    ctx.authorize(policy.CREATE, volume)
    if by_host.FIELD in wanted:
        ctx.authorize(policy.CREATE_ON_HOST, volume)
        return by_host.attach(ctx, volume, wanted, ext_version, idempotency_claim, async_response)
    attachment = reservation.make(ctx, volume, wanted, ext_version, idempotency_claim)
    if not host:
        return connecting.shown(ctx, attachment, ext_version)
    try:
        return connecting.beside_others(ctx, attachment, host, ext_version, async_response)
    except Exception:
        # The caller never learns of a reservation that no manager has taken up.
        reservation.give_up(attachment, idempotency_claim)
        raise
