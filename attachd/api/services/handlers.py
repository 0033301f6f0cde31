# SPDX-License-Identifier: Apache-2.0
"""Services and their backends: list, enable, disable, freeze, thaw, pools, capabilities.

Failover is refused, because no backend replicates.
"""

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from attachd import exception
from attachd.api import filter_register, scheduler, validation
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.services import binaries, policy, view
from attachd.api.types import lookup
from attachd.api.validation import NAME, OPTIONAL_TEXT, Schema
from attachd.context import RequestContext
from attachd.db.cluster import services
from attachd.db.row_types import ServiceRow

Body = dict[str, Any]
Query = Mapping[str, str]

_SERVICE: Final = {
    "host": NAME,
    "binary": NAME,
    # the old name of "binary"
    "service": NAME,
    "cluster": OPTIONAL_TEXT,
}
_NAMED: Final[Schema] = {
    "anyOf": [{"required": ["binary"]}, {"required": ["service"]}],
    "description": "a service, which is named by its host and its binary",
}

SWITCH: Final[Schema] = {**validation.fields(_SERVICE, "host"), **_NAMED}
SWITCH_WITH_REASON: Final[Schema] = {
    **validation.fields({**_SERVICE, "disabled_reason": NAME}, "host"),
    **_NAMED,
}

BACKEND: Final[Schema] = validation.fields({"host": NAME, "cluster": OPTIONAL_TEXT})
FAILOVER: Final[Schema] = validation.fields(
    {"host": NAME, "cluster": OPTIONAL_TEXT, "backend_id": OPTIONAL_TEXT}
)

_DOC = EndpointDoc(
    {"services": list[view.Service]},
    {
        "host": validation.query_text("Those of this host, or backend."),
        "binary": validation.query_text("Those of this program."),
    },
)


@endpoint("GET", "/os-services", policy=policy.GET_ALL, doc=_DOC)
def index(query: Query, version: mv.Version) -> Body:
    """List services; a host without ``@`` selects all its backends."""
    binary = query.get("binary")
    conditions: services.Filters = {"binary": binaries.to_internal(binary)} if binary else {}
    rows = [row for row in services.page(conditions) if binaries.is_at(row, query.get("host"))]
    return {"services": [view.service(row, version) for row in rows]}


@endpoint(
    "PUT",
    "/os-services/enable",
    policy=policy.UPDATE,
    body=SWITCH,
    doc=EndpointDoc(view.Switched),
)
def enable(body: Body) -> Body:
    """Enable a backend: it gets new volumes again."""
    services.enable(_binary(body), body["host"])
    return _switched(body, disabled=False)


@endpoint(
    "PUT",
    "/os-services/disable",
    policy=policy.UPDATE,
    body=SWITCH,
    doc=EndpointDoc(view.Switched),
)
def disable(body: Body) -> Body:
    """Disable a backend: it gets no new volumes."""
    services.disable(_binary(body), body["host"], None)
    return _switched(body, disabled=True)


@endpoint(
    "PUT",
    "/os-services/disable-log-reason",
    policy=policy.UPDATE,
    body=SWITCH_WITH_REASON,
    doc=EndpointDoc(view.Switched),
)
def disable_with_reason(body: Body) -> Body:
    """Disable a backend, with a reason."""
    reason = body.get("disabled_reason")
    services.disable(_binary(body), body["host"], reason)
    return {**_switched(body, disabled=True), "disabled_reason": reason}


def _binary(body: Body) -> str:
    return binaries.to_internal(body.get("binary") or body["service"])


def _switched(body: Body, *, disabled: bool) -> Body:
    return {
        "host": body["host"],
        "service": body.get("service", ""),
        "binary": body.get("binary", ""),
        "status": "disabled" if disabled else "enabled",
        "disabled": disabled,
    }


@endpoint("PUT", "/os-services/freeze", policy=policy.UPDATE, body=BACKEND)
def freeze(ctx: RequestContext, body: Body, version: mv.Version) -> None:
    """Freeze a backend: create, delete and extend fail, attach and detach continue."""
    ctx.authorize(policy.FREEZE)
    backend = _named_backend(body, version)
    services.freeze(services.BINARY, backend)


@endpoint("PUT", "/os-services/thaw", policy=policy.UPDATE, body=BACKEND)
def thaw(ctx: RequestContext, body: Body, version: mv.Version) -> None:
    """Thaw a frozen backend."""
    ctx.authorize(policy.THAW)
    backend = _named_backend(body, version)
    services.thaw(services.BINARY, backend)


@endpoint(
    "PUT",
    "/os-services/failover",
    since=mv.REPLICATION_CLUSTER,
    policy=policy.UPDATE,
    body=FAILOVER,
)
@endpoint("PUT", "/os-services/failover_host", policy=policy.UPDATE, body=FAILOVER)
def failover(ctx: RequestContext, body: Body, version: mv.Version) -> NoReturn:
    """Refuse a failover, because no backend replicates."""
    ctx.authorize(policy.FAILOVER)
    backend = _named_backend(body, version)
    raise exception.BadRequest(
        reason=f"Backend {backend} cannot fail over: this service replicates nothing."
    )


def _named_backend(body: Body, version: mv.Version) -> str:
    """Return the backend that a body names.

    :raises BadRequest: it names none, or a cluster, or a backend that never reported
    """
    host, cluster = body.get("host"), body.get("cluster")
    if version < mv.REPLICATION_CLUSTER:
        cluster = None
        problem = "Host field is missing."
    else:
        problem = "One and only one of cluster and host must be set."
    if bool(host) == bool(cluster):
        raise exception.BadRequest(reason=f"Invalid input received: {problem}")
    if not host or not services.page({"binary": services.BINARY, "host": host}):
        named = f"host={host}" if host else f"cluster={cluster}"
        raise exception.BadRequest(reason=f"Invalid input received: No service found with {named}")
    return str(host)


@endpoint(
    "GET", "/capabilities/{host}", policy=policy.CAPABILITIES, doc=EndpointDoc(view.Capabilities)
)
def show_capabilities(host: str) -> dict[str, Any]:
    """Show the capabilities of the backend ``host@backend``, by its last report."""
    backend = host.partition("#")[0]
    rows = services.page({"binary": services.BINARY, "host": backend})
    if not rows:
        raise exception.NotFound(f"Can't find service: {host}")
    return view.capabilities(rows[0])


_POOLS_DOC = EndpointDoc(
    {"pools": list[view.Pool]},
    {
        "detail": validation.query_flag("With capabilities and capacity."),
        **filter_register.POOL.parameters,
    },
)


@endpoint("GET", "/scheduler-stats/get_pools", policy=policy.GET_POOLS, doc=_POOLS_DOC)
def get_pools(ctx: RequestContext, query: Query, version: mv.Version) -> Body:
    """List the pools of all backends that are up, by their last reports."""
    detailed = validation.parse_bool("detail", query.get("detail", "false"))
    rows = [
        pool
        for row in services.page({"binary": services.BINARY})
        if _offers(row)
        for pool in scheduler.split_by_pool(row)
    ]
    if version >= mv.POOL_FILTER:
        rows = _filtered(ctx, rows, query, version)
    show = view.pool_detail if detailed else view.pool
    return {"pools": [show(row) for row in rows]}


def _offers(row: ServiceRow) -> bool:
    return scheduler.is_up(row) and row["report"] is not None


def _filtered(
    ctx: RequestContext, rows: list[ServiceRow], query: Query, version: mv.Version
) -> list[ServiceRow]:
    plain = {name: text for name, text in query.items() if name != "detail"}
    asked = filter_register.requested(ctx, filter_register.POOL, plain, version)
    if name := asked.get("name"):
        rows = [row for row in rows if view.pool(row)["name"] == name]
    conditions = asked.get("volume_type")
    if conditions and version >= mv.POOL_TYPE_FILTER:
        specs = lookup.get_by_id_or_name(ctx, conditions)["extra_specs"]
        rows = [
            row
            for row in rows
            if scheduler.has_capabilities(scheduler.capabilities_of(row), specs)
        ]
    return rows
