# SPDX-License-Identifier: Apache-2.0
"""Devices that the agents of hosts report and have not made, and the attachments they are of.

They are those of Compute, and those that were made by hand.  What a host reports is a claim: it
counts for attachments of that host alone.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import sqlalchemy as sa

from attachd.db import models
from attachd.db.agents import agent_store
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import AgentRow
from attachd.host_identity import HostIdentity, HostIndex

_AGENTS = models.agents
_IDENTITIES = models.host_identities
_VOLUMES = models.volumes

Device = Mapping[str, Any]
"""As agent_manager_api.ObservedDevice."""

KERNEL: Final = "kernel"


class AgentIndex:
    """Finds the agent of the host that a connector or a name means.

    :param rows: of agents
    """

    def __init__(self, rows: Iterable[AgentRow]) -> None:
        self._index = HostIndex((_identity(row), row) for row in rows)

    def find(self, identity: HostIdentity) -> AgentRow | None:
        """Return the agent of a host; None: it has none, or several may be meant."""
        found = {row["host"]: row for row in self._index.list_same(identity)}
        return next(iter(found.values())) if len(found) == 1 else None


def _identity(row: AgentRow) -> HostIdentity:
    return HostIdentity(row["host"], frozenset(row["initiators"] or ()))


@retried
def find_agent(identity: HostIdentity) -> AgentRow | None:
    """Return the agent of a host if it reports what others have made; by one statement.

    :returns: as agent_store.get(); None: the host has no such agent, or several may be meant
    """
    return read_index([identity]).find(identity)


@retried
def read_index(identities: Collection[HostIdentity]) -> AgentIndex:
    """Return an index of the agents of some hosts that report what others have made.

    By one statement.
    """
    identifiers = frozenset[str]().union(*(identity.identifiers for identity in identities))
    keys = {identity.key for identity in identities}
    hosts = sa.union(
        sa.select(_AGENTS.c.host).where(
            _AGENTS.c.host.in_(sorted({identity.name for identity in identities}))
        ),
        sa.select(_IDENTITIES.c.host).where(_IDENTITIES.c.host_key.in_(sorted(keys))),
        sa.select(_IDENTITIES.c.host).where(_IDENTITIES.c.identifier.in_(sorted(identifiers))),
    ).subquery()
    statement = sa.select(_AGENTS).join(hosts, hosts.c.host == _AGENTS.c.host)
    rows = session.fetch_all(statement.where(_AGENTS.c.observed.is_not(None)), AgentRow)
    return AgentIndex(map(agent_store.to_row, rows))


@retried
def has_agents() -> bool:
    """Return whether the agent of any host reports what others have made."""
    statement = sa.select(_AGENTS.c.host).where(_AGENTS.c.observed.is_not(None)).limit(1)
    with session.reader() as connection:
        return connection.execute(statement).first() is not None


def find_device(row: AgentRow, volume_id: str, attachment_ids: Collection[str]) -> Device | None:
    """Return a device of some attachments of a volume in the last report of their host.

    :param row: of the agent of the host
    """
    found = [
        device
        for device in list_devices(row)
        if device["volume_id"] == volume_id
        and (device["attachment_id"] is None or device["attachment_id"] in attachment_ids)
    ]
    # A session without a disk is of no use if another one has it.
    return min(found, key=lambda device: device["path"] is None, default=None)


def list_devices(row: AgentRow) -> list[Device]:
    """Return the devices in the last report of a host that its agent has not made."""
    devices: list[Device] = (row["observed"] or {}).get("devices", [])
    return devices


def shows_all(row: AgentRow, volume_id: str) -> bool:
    """Return whether a volume without a device in the report of a host has none there.

    It may have one of QEMU where the agent does without the kernel; and a device that the agent
    has made may serve other attachments, too.
    """
    own = any(device["volume_id"] == volume_id for device in row["devices"] or ())
    return row["observed"] is not None and row["connector_type"] == KERNEL and not own


@retried
def has_known_volume(volume_ids: Collection[str]) -> bool:
    """Return whether one of some volumes is one of this service."""
    if not volume_ids:
        return False
    statement = sa.select(_VOLUMES.c.id).where(_VOLUMES.c.id.in_(volume_ids)).limit(1)
    with session.reader() as connection:
        return connection.execute(statement).first() is not None
