# SPDX-License-Identifier: Apache-2.0
"""Agents of hosts: which there are, how they are, and forgetting one; attachd 1.0.

Hosts make themselves known by their first report, or an operator does: attachd-manage agent add.
"""

from typing import Any

from attachd.api import microversions as mv
from attachd.api.agents import policy, view
from attachd.api.endpoint import EndpointDoc, endpoint
from attachd.db import agent_removal, agents

ITEM = "/agents/{host}"

Body = dict[str, Any]


@endpoint(
    "GET",
    "/agents",
    ext_since=mv.EXT_BASE,
    policy=policy.GET,
    doc=EndpointDoc({"agents": list[view.Agent]}),
)
def index() -> Body:
    """Answer all agents, by the names of their hosts."""
    return {"agents": [view.agent(row) for row in agents.all_()]}


@endpoint(
    "GET", ITEM, ext_since=mv.EXT_BASE, policy=policy.GET, doc=EndpointDoc({"agent": view.Agent})
)
def show(host: str) -> Body:
    """Answer one agent."""
    return {"agent": view.agent(agents.get(host))}


@endpoint(
    "DELETE",
    ITEM,
    ext_since=mv.EXT_BASE,
    policy=policy.DELETE,
    status=204,
    doc=EndpointDoc(faults=(409,)),
)
def delete(host: str) -> None:
    """Forget an agent whose host has nothing attached: whoever reports next may be another one."""
    agent_removal.remove(host)
