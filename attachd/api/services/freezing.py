# SPDX-License-Identifier: Apache-2.0
"""Backends are frozen and thawed; failing over to another one is refused, as none replicates."""

from typing import Any, NoReturn

from attachd import exception, scheduler
from attachd.api import microversions as mv
from attachd.api.endpoint import endpoint
from attachd.api.services import policy, schema
from attachd.context import RequestContext
from attachd.db import services

Body = dict[str, Any]


@endpoint("PUT", "/os-services/freeze", policy=policy.UPDATE, body=schema.BACKEND)
def freeze(ctx: RequestContext, body: Body, version: mv.Version) -> None:
    """Have a backend create, delete and extend nothing; attaching and detaching go on."""
    ctx.authorize(policy.FREEZE)
    backend = _known(body, version)
    services.freeze(scheduler.BINARY, backend)


@endpoint("PUT", "/os-services/thaw", policy=policy.UPDATE, body=schema.BACKEND)
def thaw(ctx: RequestContext, body: Body, version: mv.Version) -> None:
    """Let a backend do everything again."""
    ctx.authorize(policy.THAW)
    backend = _known(body, version)
    services.thaw(scheduler.BINARY, backend)


@endpoint("PUT", "/os-services/failover_host", policy=policy.UPDATE, body=schema.FAILOVER)
def failover_host(ctx: RequestContext, body: Body, version: mv.Version) -> NoReturn:
    """Refuse, because no backend replicates."""
    _refuse_failover(ctx, body, version)


@endpoint(
    "PUT",
    "/os-services/failover",
    since=mv.REPLICATION_CLUSTER,
    policy=policy.UPDATE,
    body=schema.FAILOVER,
)
def failover(ctx: RequestContext, body: Body, version: mv.Version) -> NoReturn:
    """Refuse, because no backend replicates."""
    _refuse_failover(ctx, body, version)


def _refuse_failover(ctx: RequestContext, body: Body, version: mv.Version) -> NoReturn:
    ctx.authorize(policy.FAILOVER)
    backend = _known(body, version)
    raise exception.BadRequest(
        reason=f"Backend {backend} cannot fail over: this service replicates nothing."
    )


def _known(body: Body, version: mv.Version) -> str:
    """Return the backend that a body names.

    :raises BadRequest: it names none, or a cluster, or one that never reported
    """
    host, cluster = body.get("host"), body.get("cluster")
    if version < mv.REPLICATION_CLUSTER:
        cluster = None
        problem = "Host field is missing."
    else:
        problem = "One and only one of cluster and host must be set."
    if bool(host) == bool(cluster):
        raise exception.BadRequest(reason=f"Invalid input received: {problem}")
    if not host or not services.page({"binary": scheduler.BINARY, "host": host}):
        named = f"host={host}" if host else f"cluster={cluster}"
        raise exception.BadRequest(reason=f"Invalid input received: No service found with {named}")
    return str(host)
