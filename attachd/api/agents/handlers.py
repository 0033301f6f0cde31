# SPDX-License-Identifier: Apache-2.0
"""Agents of hosts in attachd 1.0: list, show and delete them.

An operator registers hosts: attachd-manage agent add.
"""

from collections.abc import Mapping
import datetime
from types import MappingProxyType
from typing import Any, Final, NotRequired, TypedDict

from attachd import exception
from attachd.api import microversions as mv
from attachd.api import paging, validation
from attachd.api.agents import policy
from attachd.api.endpoint import EndpointDoc, Link, Links, endpoint
from attachd.db import models
from attachd.db.agents import agent_store, machines, observed_devices
from attachd.db.row_types import AgentRow

ITEM = "/agents/{host}"
Body = dict[str, Any]


_PUBLIC_KEYS: Final = frozenset(
    {
        "host",
        "ip",
        "initiator",
        "wwpns",
        "wwnns",
        "nqn",
        "nvme_hostid",
        "system uuid",
        "multipath",
        "enforce_multipath",
        "do_local_attach",
        "os_type",
        "platform",
    }
)
"""The keys of a connector that are no secrets; an unknown key may be one."""

_DEVICE_KEYS: Final = ("attachment_id", "volume_id", "path", "size_bytes", "mountpoint")


_FILTERS: Final[Mapping[str, validation.Schema]] = MappingProxyType(
    {
        "state": {"enum": [*agent_store.STATES], "description": "The state of the agent."},
        "host~": {"type": "string", "description": "A part of the name of the host."},
        "in_trouble": validation.query_flag(
            "Only agents that are down or in conflict, or report an error."
        ),
    }
)


class Lease(TypedDict):
    """The right of a host to write, which each report of its agent renews.

    :ivar renewed_at: by the last report
    :ivar seconds: how long it lasts; null: it has no end, and the host counts as lost by
        [agent]down_time alone
    :ivar expires_at: when it ends unless it is renewed; null: it has no end
    :ivar lost_at: since when the host counts as lost; null: it does not
    :ivar lost_action: what was done then: "mark" or "fence"; null: nothing
    """

    renewed_at: datetime.datetime
    seconds: int | None
    expires_at: datetime.datetime | None
    lost_at: datetime.datetime | None
    lost_action: str | None


class OtherMachine(TypedDict):
    """A machine that reports for a host beside the one that is its agent.

    :ivar since: when it has done so first
    """

    boot_id: str | None
    machine_id: str | None
    since: str


class Agent(TypedDict):
    """An agent.

    :ivar state: "up", "down", "new" if it has never reported, or "conflict" if two machines report
        as the agent of the host
    :ivar last_seen: time of its last report; null: never
    :ivar connector_type: how it makes devices: "kernel" or "user-space"
    :ivar version: of attachd
    :ivar error: what is wrong at the host, such as stuck attachments, or null
    :ivar boot_id: of the machine whose reports are accepted; null: not known
    :ivar machine_id: of that machine, of its firmware or operating system; null: not known
    :ivar conflict: the other machine that reports for the host; null: there is none
    :ivar max_attachments: how many attachments the host can take; null: any number
    :ivar lease: the lease of the host; null: its agent has never reported
    :ivar connector: the connector of the host, without secrets; null: nothing can be attached
        there at present
    :ivar devices: those of its last report
    :ivar other_devices: those that the agent has not made; null: it does not report them
    """

    host: str
    state: str
    last_seen: datetime.datetime | None
    connector_type: str | None
    version: str | None
    error: str | None
    boot_id: str | None
    machine_id: str | None
    conflict: OtherMachine | None
    max_attachments: int | None
    lease: Lease | None
    connector: dict[str, Any] | None
    devices: list[dict[str, Any]]
    other_devices: list[dict[str, Any]] | None


def agent_view(row: AgentRow) -> Agent:
    """Return the representation of one agent.

    :param row: as of db.agents.get()
    """
    connector, conflict = row["connector"], row["conflict"]
    return {
        "host": row["host"],
        "state": agent_store.state(row),
        "last_seen": row["seen_at"],
        "connector_type": row["connector_type"],
        "version": row["version"],
        "error": _find_error(row),
        "boot_id": row["boot_id"],
        "machine_id": row["machine_id"],
        "conflict": None
        if conflict is None
        else {
            "boot_id": conflict["boot_id"],
            "machine_id": conflict["machine_id"],
            "since": conflict["since"],
        },
        "max_attachments": row["max_attachments"],
        "lease": _show_lease(row),
        "connector": connector
        and {key: connector[key] for key in connector if key in _PUBLIC_KEYS},
        "devices": [_show_device(device) for device in row["devices"] or ()],
        "other_devices": None
        if row["observed"] is None
        else [
            {**_show_device(device), "target": device["target"]}
            for device in observed_devices.list_devices(row)
        ],
    }


def _show_lease(row: AgentRow) -> Lease | None:
    renewed, seconds = row["heartbeat_at"], row["lease"]
    if renewed is None:
        return None
    ends = None if seconds is None else renewed + datetime.timedelta(seconds=seconds)
    return {
        "renewed_at": renewed,
        "seconds": seconds,
        "expires_at": ends,
        "lost_at": row["lost_at"],
        "lost_action": row["lost_action"],
    }


def _find_error(row: AgentRow) -> str | None:
    try:
        machines.check_single(row)
    except exception.AgentConflict as error:
        return str(error)
    return row["error"] and str(row["error"])


def _show_device(device: Mapping[str, Any]) -> Body:
    """Return a reported device; the name of a mountpoint can have any character."""
    shown = {name: device.get(name) for name in _DEVICE_KEYS}
    return {**shown, "mountpoint": shown["mountpoint"] and models.printable(shown["mountpoint"])}


@endpoint(
    "GET",
    "/agents",
    attachd_since=mv.ATTACHD_1_0,
    policy=policy.GET,
    doc=EndpointDoc(
        {
            "agents": list[Agent],
            "agents_links": NotRequired[list[Link]],
            "count": NotRequired[int],
        },
        {**paging.NAME_PAGE_PARAMETERS, **_FILTERS},
    ),
)
def index(query: Mapping[str, str], version: mv.Version, links: Links) -> Body:
    """List a page of the agents, sorted by the names of their hosts."""
    parameters = dict(query)
    counted = paging.pop_with_count(parameters, version)
    page = paging.read_by_name(parameters)
    filters = _parse_filters(parameters)
    shown = [agent_view(row) for row in agent_store.page(filters, page)]
    answer: Body = {"agents": shown}
    if more := paging.next_link(links, "/agents", query, page, shown, "host"):
        answer["agents_links"] = more
    if counted:
        answer["count"] = agent_store.count(filters)
    return answer


def _parse_filters(query: Mapping[str, str]) -> agent_store.Filters:
    """Parse the filters of a list; other parameters are ignored.

    :raises InvalidInput: there is no such state
    """
    filters: agent_store.Filters = {}
    if "host~" in query:
        filters["name"] = query["host~"]
    if "state" in query:
        if query["state"] not in agent_store.STATES:
            raise exception.InvalidInput(
                field="state",
                value=query["state"],
                reason=f"It is none of {', '.join(agent_store.STATES)}.",
            )
        filters["state"] = query["state"]
    if validation.parse_bool("in_trouble", query.get("in_trouble", "false")):
        filters["in_trouble"] = True
    return filters


@endpoint(
    "GET", ITEM, attachd_since=mv.ATTACHD_1_0, policy=policy.GET, doc=EndpointDoc({"agent": Agent})
)
def show(host: str) -> Body:
    """Show one agent."""
    return {"agent": agent_view(agent_store.get(host))}


@endpoint(
    "DELETE",
    ITEM,
    attachd_since=mv.ATTACHD_1_0,
    policy=policy.DELETE,
    status=204,
    doc=EndpointDoc(faults=(409,)),
)
def delete(host: str) -> None:
    """Delete an agent whose host has nothing attached; its key is not accepted any more."""
    agent_store.delete(host)
