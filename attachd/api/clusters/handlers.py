# SPDX-License-Identifier: Apache-2.0
"""Clusters of managers, of which there are none, and the cleanup of unfinished work.

A manager continues its unfinished work when it starts, and old work at each report.  The cleanup
call therefore orders nothing: it returns the managers that finish their work, and those that have
to be started, because no other process can finish theirs.
"""

from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypedDict

from attachd import exception
from attachd.api import microversions as mv
from attachd.api import scheduler, validation
from attachd.api.clusters import policy
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.services import binaries
from attachd.api.validation import BOOLEAN, NAME, OPTIONAL_TEXT, Schema
from attachd.db.cluster import services
from attachd.db.row_types import ServiceRow
from attachd.db.volumes import volume_store

Body = dict[str, Any]
Query = Mapping[str, str]


ENABLE: Final[Schema] = validation.fields({"name": NAME, "binary": OPTIONAL_TEXT}, "name")
DISABLE: Final[Schema] = validation.fields(
    {"name": NAME, "binary": OPTIONAL_TEXT, "disabled_reason": OPTIONAL_TEXT}, "name"
)

_UUID: Final[Schema] = {"type": ["string", "null"], "format": "uuid"}
_NUMBER: Final[Schema] = {
    "type": ["integer", "string", "null"],
    "pattern": r"\A[0-9]{1,10}\Z",
    "minimum": 0,
    "description": "the number of a service",
}

CLEANUP: Final[Schema] = validation.fields(
    {
        "cluster_name": NAME,
        "service_id": _NUMBER,
        "host": NAME,
        "binary": {"enum": list(binaries.ALL)},
        "is_up": BOOLEAN,
        "disabled": BOOLEAN,
        "resource_id": _UUID,
        "resource_type": {"enum": ["Volume", "volume", "Snapshot", "snapshot", None]},
    }
)


FILTERS: Final = frozenset({"name", "binary", "is_up", "disabled", "num_hosts", "num_down_hosts"})
LATER_FILTERS: Final = frozenset({"replication_status", "frozen", "active_backend_id"})
"""Filters since 3.26."""

_DOC: Final = EndpointDoc(
    {"clusters": list[Any]},
    {name: validation.query_text(f"Those whose {name} is this.") for name in sorted(FILTERS)}
    | dict.fromkeys(("is_up", "disabled"), validation.query_flag("Those which are, or are not.")),
)


@endpoint("GET", "/clusters", since=mv.CLUSTER_SUPPORT, policy=policy.GET_ALL, doc=_DOC)
def index(query: Query, version: mv.Version) -> Body:
    """List clusters: there are none."""
    _check_filters(query, version)
    return {"clusters": []}


@endpoint("GET", "/clusters/detail", since=mv.CLUSTER_SUPPORT, policy=policy.GET_ALL, doc=_DOC)
def detail(query: Query, version: mv.Version) -> Body:
    """List clusters with details: there are none."""
    _check_filters(query, version)
    return {"clusters": []}


@endpoint("GET", "/clusters/{name}", since=mv.CLUSTER_SUPPORT, policy=policy.GET)
def show(name: str) -> NoReturn:
    """Show a cluster: it does not exist."""
    raise _not_found(name)


@endpoint(
    "PUT",
    "/clusters/enable",
    since=mv.CLUSTER_SUPPORT,
    policy=policy.UPDATE,
    body=ENABLE,
)
def enable(body: Body) -> NoReturn:
    """Enable a cluster: it does not exist."""
    raise _not_found(body["name"])


@endpoint(
    "PUT",
    "/clusters/disable",
    since=mv.CLUSTER_SUPPORT,
    policy=policy.UPDATE,
    body=DISABLE,
)
def disable(body: Body) -> NoReturn:
    """Disable a cluster: it does not exist."""
    raise _not_found(body["name"])


def _not_found(name: str) -> exception.NotFound:
    return exception.NotFound(f"Cluster {name} could not be found.")


def _check_filters(query: Query, version: mv.Version) -> None:
    known = FILTERS | LATER_FILTERS if version >= mv.REPLICATION_CLUSTER else FILTERS
    if unknown := sorted(query.keys() - known):
        listed = ", ".join(key[:100] for key in unknown)
        raise exception.BadRequest(reason=f"Invalid input received: Invalid filter keys: {listed}")
    for name in ("is_up", "disabled"):
        if name in query:
            validation.parse_bool(name, query[name])


class _ServiceRef(TypedDict):
    """A service."""

    id: int | str
    host: str
    binary: str
    cluster_name: None


@endpoint(
    "POST",
    "/workers/cleanup",
    since=mv.WORKERS_CLEANUP,
    policy=policy.CLEANUP,
    body=CLEANUP,
    status=202,
    doc=EndpointDoc({"cleaning": list[_ServiceRef], "unavailable": list[_ServiceRef]}),
)
def cleanup(body: Body) -> Body:
    """List the services that finish their work, and those that are down."""
    rows = [row for row in binaries.of_host(body.get("host")) if _matches(row, body)]
    if resource := body.get("resource_id"):
        backend = _backend_of(resource)
        rows = [row for row in rows if row["host"] == backend]
    return {
        "cleaning": [_service_ref(row) for row in rows if scheduler.is_up(row)],
        "unavailable": [_service_ref(row) for row in rows if not scheduler.is_up(row)],
    }


def _matches(row: ServiceRow, body: Body) -> bool:
    """Return whether a body means a service; without ``is_up``, it means those that are down."""
    requested_up = validation.parse_bool("is_up", body.get("is_up", False))
    binary = binaries.to_internal(body.get("binary") or services.BINARY)
    disabled = body.get("disabled")
    return (
        not body.get("cluster_name")
        and body.get("service_id") is None
        and binary == row["binary"]
        and scheduler.is_up(row) == requested_up
        and (disabled is None or validation.parse_bool("disabled", disabled) == row["disabled"])
    )


def _backend_of(volume_id: str) -> str:
    try:
        host: str = volume_store.get(volume_id, None)["host"] or ""
    except exception.NotFound:
        raise exception.BadRequest(
            reason=f"Invalid input received: There is no resource with UUID {volume_id} "
            "pending cleanup."
        ) from None
    return host.partition("#")[0]


def _service_ref(row: ServiceRow) -> Body:
    return {
        "id": row["id"],
        "host": row["host"],
        "binary": binaries.to_wire(row["binary"]),
        "cluster_name": None,
    }
