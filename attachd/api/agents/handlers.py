# SPDX-License-Identifier: Apache-2.0
"""Agents of hosts in attachd 1.0: list, show and delete them.

An operator registers hosts: attachd-manage agent add.
"""

from collections.abc import Mapping
import datetime
from typing import Any, Final, TypedDict

from attachd import exception
from attachd.api import microversions as mv
from attachd.api.agents import policy
from attachd.api.endpoint import EndpointDoc, endpoint
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
    doc=EndpointDoc({"agents": list[Agent]}),
)
def index() -> Body:
    """List all agents, sorted by the names of their hosts."""
    return {"agents": [agent_view(row) for row in agent_store.list_all()]}


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
