# SPDX-License-Identifier: Apache-2.0
"""The clients that the hosts of attachments had, recorded in each pool; for the rbd driver.

A client that hangs is forgotten: its watch by the OSD after half a minute, its session by the
monitors after five.  Its connections to OSDs stay, and it goes on writing when it wakes up.

The record is the omap of an object, "PREFIXclients", with a key for each client, so that several
managers can add clients at the same time.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
import contextlib
import time
from typing import Any, Final, NamedTuple

from attachd.ceph import bindings
from attachd.drivers import abilities, base
from attachd.drivers.rbd import objects
from attachd.drivers.rbd.cluster import Cluster, blocklist_each
from attachd.drivers.rbd.images import Pools
from attachd.drivers.rbd.users import Naming

MAX_FORMER_CLIENTS: Final = 16
"""How many clients of an attachment are kept at least."""


class Client(NamedTuple):
    """A client of an attachment, as the record names it.

    :ivar address: with its nonce, as in a blocklist
    """

    attachment_id: str
    address: str


class RememberByRecord(abilities.RememberClients):
    """The ability to end clients by their records.

    :ivar clients: the records
    """

    clients: "ClientRecords"

    def remember_clients(self) -> None:
        """Record the clients that have a session with a monitor, and drop those of no user."""
        self.clients.update()

    def end_remembered_clients(self, volume: base.VolumeRef, export: base.Export) -> None:
        """Blocklist the recorded clients of the attachment."""
        self.clients.end(volume, export.attachment_id)


class ClientRecords:
    """The records of all pools of a backend."""

    def __init__(self, cluster: Cluster, naming: Naming, pools: Pools) -> None:
        self._cluster = cluster
        self._naming = naming
        self._pools = pools
        name = f"{naming.prefix}clients"
        self._records = {pool: ClientRecord(cluster, pool, name) for pool in naming.pools}

    def update(self) -> None:
        """Record the clients that have a session with a monitor, and drop those of no user."""
        recorded = {pool: record.read() for pool, record in self._records.items()}
        every, sessions = self._cluster.users(), self._cluster.sessions()
        ids = {id_ for entity in every if (id_ := self._naming.attachment_id(entity))}
        users = [self._naming.user(entity, caps) for entity, caps in every.items()]
        for pool, record in self._records.items():
            owners = {it.entity: it.attachment_id for it in users if it and it.pool == pool}
            present = {
                Client(owners[session.entity], address)
                for session in sessions
                if session.entity in owners
                for address in session.addresses
            }
            record.update(recorded[pool], present, ids)

    def end(self, volume: base.VolumeRef, attachment_id: str) -> None:
        """Blocklist the recorded clients of an attachment, unless they are blocklisted."""
        recorded = self._records[self._pools.find(volume).pool].read(attachment_id)
        blocklisted = self._cluster.blocklisted() if recorded else frozenset()
        blocklist_each(self._cluster, {client.address for client in recorded} - blocklisted)


class ClientRecord:
    """The recorded clients of the attachments whose images are in one pool.

    :param name: of the object
    :ivar pool: its name
    """

    def __init__(self, cluster: Cluster, pool: str, name: str) -> None:
        self._cluster = cluster
        self.pool = pool
        self._name = name

    def read(self, attachment_id: str = "") -> dict[Client, int]:
        """Return when clients were seen first, in seconds since 1970.

        :param attachment_id: whose clients; "": those of all
        """
        with self._open("read") as pool:
            items = list(objects.read_omap(pool, self._name, attachment_id))
        return {Client(*key.split(" ", 1)): int(value) for key, value in items}

    def update(
        self,
        recorded: Mapping[Client, int],
        present: AbstractSet[Client],
        attachment_ids: Collection[str],
    ) -> None:
        """Record clients, and drop those of other attachments and old ones.

        :param recorded: as it was read before the clients and users of the cluster
        :param present: the clients that are connected
        :param attachment_ids: of the users that exist
        """
        now = int(time.time())
        clients = {client: recorded.get(client, now) for client in {*recorded, *present}}
        kept = _select(clients, present, attachment_ids)
        new, old = kept - recorded.keys(), recorded.keys() - kept
        if recorded and not kept:
            self._remove()
        elif new or old:
            self._write({client: clients[client] for client in new}, old)

    def _remove(self) -> None:
        with self._open("removed") as pool:
            base.check_still_owner()
            with contextlib.suppress(bindings.load().rados.ObjectNotFound):
                pool.remove_object(self._name)

    def _write(self, new: Mapping[Client, int], old: AbstractSet[Client]) -> None:
        with self._open("written") as pool, bindings.load().rados.WriteOpCtx() as change:
            values = tuple(f"{seen_at}".encode() for seen_at in new.values())
            pool.set_omap(change, tuple(map(" ".join, new)), values)
            pool.remove_omap_keys(change, tuple(map(" ".join, old)))
            base.check_still_owner()
            pool.operate_write_op(change, self._name)

    @contextlib.contextmanager
    def _open(self, done: str) -> Iterator[Any]:
        doing = f"Object {self._name} of pool {self.pool} could not be {done}"
        with self._cluster.pool(self.pool) as pool, self._cluster.errors(doing):
            yield pool


def _select(
    clients: Mapping[Client, int], present: AbstractSet[Client], attachment_ids: Collection[str]
) -> set[Client]:
    """Return the clients that are connected, and the newest ones of each attachment."""
    kept, numbers = set(present), Counter[str]()
    for client in sorted(clients, key=clients.__getitem__, reverse=True):
        numbers[client.attachment_id] += 1
        if numbers[client.attachment_id] <= MAX_FORMER_CLIENTS:
            kept.add(client)
    return {client for client in kept if client.attachment_id in attachment_ids}
