# SPDX-License-Identifier: Apache-2.0
"""Services: list, switch on and off; pools.py has what their backends offer."""

from collections.abc import Mapping
from typing import Any

from attachd.api import fields
from attachd.api import microversions as mv
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.api.services import binaries, managers, policy, schema, view
from attachd.db import services

Body = dict[str, Any]
Query = Mapping[str, str]

_DOC = EndpointDoc(
    {"services": list[view.Service]},
    {
        "host": fields.query_text("Those of this host, or backend."),
        "binary": fields.query_text("Those of this program."),
    },
)


@endpoint("GET", "/os-services", policy=policy.GET_ALL, doc=_DOC)
def index(query: Query, version: mv.Version) -> Body:
    """Answer the services; a host without ``@`` stands for all its backends."""
    binary = query.get("binary")
    wanted: services.Filters = {"binary": binaries.own(binary)} if binary else {}
    rows = [row for row in services.page(wanted) if managers.is_of(row, query.get("host"))]
    return {"services": [view.service(row, version) for row in rows]}


@endpoint(
    "PUT",
    "/os-services/enable",
    policy=policy.UPDATE,
    body=schema.SWITCH,
    doc=EndpointDoc(view.Switched),
)
def enable(body: Body) -> Body:
    """Let a backend get new volumes again."""
    services.enable(_binary(body), body["host"])
    return _switched(body, disabled=False)


@endpoint(
    "PUT",
    "/os-services/disable",
    policy=policy.UPDATE,
    body=schema.SWITCH,
    doc=EndpointDoc(view.Switched),
)
def disable(body: Body) -> Body:
    """Keep new volumes away from a backend."""
    services.disable(_binary(body), body["host"], None)
    return _switched(body, disabled=True)


@endpoint(
    "PUT",
    "/os-services/disable-log-reason",
    policy=policy.UPDATE,
    body=schema.SWITCH_WITH_REASON,
    doc=EndpointDoc(view.Switched),
)
def disable_with_reason(body: Body) -> Body:
    """Keep new volumes away from a backend, and note why."""
    reason = body.get("disabled_reason")
    services.disable(_binary(body), body["host"], reason)
    return {**_switched(body, disabled=True), "disabled_reason": reason}


def _binary(body: Body) -> str:
    return binaries.own(body.get("binary") or body["service"])


def _switched(body: Body, *, disabled: bool) -> Body:
    return {
        "host": body["host"],
        "service": body.get("service", ""),
        "binary": body.get("binary", ""),
        "status": "disabled" if disabled else "enabled",
        "disabled": disabled,
    }
