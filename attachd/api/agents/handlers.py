# SPDX-License-Identifier: Apache-2.0
"""Agents of hosts: which there are, how they are, and forgetting one; attachd 1.0.

Hosts make themselves known by their first report, or an operator does: attachd-manage agent add.
"""

from typing import Any

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.agents import policy, view
from attachd.api.endpoint import endpoint
from attachd.db import agent_removal, agents

ITEM = "/agents/{host}"

Body = dict[str, Any]


@endpoint("GET", "/agents", policy=policy.GET)
def index(version: mv.Version, own: mv.Version | None) -> Body:
    """Answer all agents, by the names of their hosts."""
    _check(version, own)
    return {"agents": [view.agent(row) for row in agents.all_()]}


@endpoint("GET", ITEM, policy=policy.GET)
def show(host: str, version: mv.Version, own: mv.Version | None) -> Body:
    """Answer one agent."""
    _check(version, own)
    return {"agent": view.agent(agents.get(host))}


@endpoint("DELETE", ITEM, policy=policy.DELETE, status=204)
def delete(host: str, version: mv.Version, own: mv.Version | None) -> None:
    """Forget an agent whose host has nothing attached: whoever reports next may be another one."""
    _check(version, own)
    agent_removal.remove(host)


def _check(version: mv.Version, own: mv.Version | None) -> None:
    """Let those go on who have asked for attachd's own API.

    :raises VersionNotFound: it was not asked for
    """
    if own is None:
        raise exception.VersionNotFound(version=version)
