# SPDX-License-Identifier: Apache-2.0
"""How the agent of a host looks on the wire; used by the handlers of agents."""

from collections.abc import Mapping
import datetime
from typing import Any, Final, TypedDict

from attachd.db import agents

Row = Mapping[str, Any]

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
"""What of a connector is no secret; of other keys nobody knows."""

_OF_A_DEVICE: Final = ("attachment_id", "volume_id", "path", "size_bytes", "mountpoint")


class Agent(TypedDict):
    """An agent.

    :ivar state: "up", "down" or, if it has never reported, "new"
    :ivar last_seen: when it has reported last; null: never
    :ivar connector_type: how it makes devices: "kernel" or "user-space"
    :ivar version: of attachd
    :ivar error: what is wrong there, such as attachments that hang, or null
    :ivar connector: what backends are told of its host, without secrets; null: nothing can be
        attached there at present
    :ivar devices: that it has, as of its last report
    """

    host: str
    state: str
    last_seen: datetime.datetime | None
    connector_type: str | None
    version: str | None
    error: str | None
    connector: dict[str, Any] | None
    devices: list[dict[str, Any]]


def agent(row: Row) -> Agent:
    """Show one agent.

    :param row: as of db.agents.get()
    """
    connector = row["connector"]
    return {
        "host": row["host"],
        "state": agents.state(row),
        "last_seen": row["seen_at"],
        "connector_type": row["connector_type"],
        "version": row["version"],
        "error": row["error"],
        "connector": connector
        and {key: connector[key] for key in connector if key in _PUBLIC_KEYS},
        "devices": [
            {name: device.get(name) for name in _OF_A_DEVICE} for device in row["devices"] or ()
        ],
    }
