# SPDX-License-Identifier: Apache-2.0
"""Clusters of managers, of which there are none: each backend has one manager."""

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from attachd import exception
from attachd.api import fields
from attachd.api import microversions as mv
from attachd.api.clusters import policy, schema
from attachd.api.endpoint import EndpointDoc, endpoint

FILTERS: Final = frozenset({"name", "binary", "is_up", "disabled", "num_hosts", "num_down_hosts"})
LATER_FILTERS: Final = frozenset({"replication_status", "frozen", "active_backend_id"})
"""Filters that came with 3.26."""

_DOC: Final = EndpointDoc(
    {"clusters": list[Any]},
    {name: fields.query_text(f"Those whose {name} is this.") for name in sorted(FILTERS)}
    | dict.fromkeys(("is_up", "disabled"), fields.query_flag("Those which are, or are not.")),
)

Body = dict[str, Any]
Query = Mapping[str, str]


@endpoint("GET", "/clusters", since=mv.CLUSTER_SUPPORT, policy=policy.GET_ALL, doc=_DOC)
def index(query: Query, version: mv.Version) -> Body:
    """Answer that there are none."""
    _check_filters(query, version)
    return {"clusters": []}


@endpoint("GET", "/clusters/detail", since=mv.CLUSTER_SUPPORT, policy=policy.GET_ALL, doc=_DOC)
def detail(query: Query, version: mv.Version) -> Body:
    """Answer that there are none."""
    _check_filters(query, version)
    return {"clusters": []}


@endpoint("GET", "/clusters/{name}", since=mv.CLUSTER_SUPPORT, policy=policy.GET)
def show(name: str) -> NoReturn:
    """Answer that it is not there."""
    raise _unknown(name)


@endpoint(
    "PUT",
    "/clusters/enable",
    since=mv.CLUSTER_SUPPORT,
    policy=policy.UPDATE,
    body=schema.ENABLE,
)
def enable(body: Body) -> NoReturn:
    """Answer that it is not there."""
    raise _unknown(body["name"])


@endpoint(
    "PUT",
    "/clusters/disable",
    since=mv.CLUSTER_SUPPORT,
    policy=policy.UPDATE,
    body=schema.DISABLE,
)
def disable(body: Body) -> NoReturn:
    """Answer that it is not there."""
    raise _unknown(body["name"])


def _unknown(name: str) -> exception.NotFound:
    return exception.NotFound(f"Cluster {name} could not be found.")


def _check_filters(query: Query, version: mv.Version) -> None:
    known = FILTERS | LATER_FILTERS if version >= mv.REPLICATION_CLUSTER else FILTERS
    if unknown := sorted(query.keys() - known):
        listed = ", ".join(key[:100] for key in unknown)
        raise exception.BadRequest(reason=f"Invalid input received: Invalid filter keys: {listed}")
    for name in ("is_up", "disabled"):
        if name in query:
            fields.parse_bool(name, query[name])
