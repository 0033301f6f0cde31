# SPDX-License-Identifier: Apache-2.0
"""The pools of one backend: volume groups with thick volumes, and thin pools; for the lvm driver.

A volume is found by its id in any of the volume groups: the pool that it was created in may have
had another name, that of the backend, before the option lvm_pools was set.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from oslo_config import cfg

from attachd import exception
from attachd.drivers import base
from attachd.drivers.lvm.volumes import LogicalVolumes

TIMEOUT: Final = 60.0
"""Seconds that a command of lvm2 has; copying and overwriting data have no limit."""


class Pools:
    """The pools of one backend.

    :param options: of the backend
    """

    def __init__(self, options: cfg.ConfigOpts.GroupAttr) -> None:
        more = (options.lvm_wipe, TIMEOUT)
        self._pools = {
            name: LogicalVolumes(group, pool, *more, "lvm_pools", "lvm_pools")
            for name in options.lvm_pools
            for group, _slash, pool in [name.partition("/")]
        }
        self._reported = bool(self._pools)
        if not self._reported:
            group, pool = options.lvm_volume_group, options.lvm_thin_pool
            self._pools[""] = LogicalVolumes(group, pool, *more)
        self._first = next(iter(self._pools.values()))
        groups = {pool.group: pool for pool in reversed(self._pools.values())}
        self._groups: Mapping[str, LogicalVolumes] = groups

    def check(self) -> dict[str, str]:
        """Check commands, volume groups and thin pools.

        :returns: the UUIDs of the volume groups by the names of the pools, "" if none is named
        """
        return {name: pool.check() for name, pool in self._pools.items()}

    @property
    def has_thick(self) -> bool:
        """Whether volumes of a pool are thick, so that their data is copied."""
        return not all(pool.pool for pool in self._pools.values())

    def in_groups(self) -> Collection[LogicalVolumes]:
        """Return one pool of each volume group: it finds the volumes of all of them."""
        return self._groups.values()

    def find_name(self, group: str, thin_pool: str) -> str | None:
        """Return the name of the pool of a thin pool's LVs, or of thick ones; None: there is none.

        :returns: "" if the backend reports no pools
        """
        places = {(pool.group, pool.pool): name for name, pool in self._pools.items()}
        return places.get((group, thin_pool))

    def for_new(self, volume: base.VolumeRef) -> LogicalVolumes:
        """Return the pool in which a volume is to be created."""
        pool = self._pools.get(volume.pool) if self._reported else self._first
        if pool is None:
            raise exception.BackendError(
                f"Volume {volume.id} could not be created: lvm_pools has no {volume.pool!r}.",
                final=True,
            )
        return pool

    def holding(self, volume: base.VolumeRef) -> LogicalVolumes:
        """Return a pool of the volume group that has a volume, complete or not."""
        named = self._pools.get(volume.pool, self._first)
        if len(self._groups) > 1 and not named.has_part(volume.id):
            found = (pool for pool in self._groups.values() if pool.has_part(volume.id))
            return next(found, named)
        return named

    def path(self, volume_id: str) -> Path:
        """Return the path of a volume's device, whether it exists or not."""
        paths = [pool.path(volume_id) for pool in self._groups.values()]
        return next((path for path in paths if path.exists()), paths[0])

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all complete volumes in bytes, by id."""
        found = [pool.sizes() for pool in self._groups.values()]
        return {name: size for sizes in found for name, size in sizes.items()}

    def stats(self, protocol: str) -> base.BackendStats:
        """Return the capacity of the backend, or of each of its pools."""
        capabilities = {"multiattach": True, "online_clone": True}
        if not self._reported:
            capabilities["thin_provisioning"] = bool(self._first.pool)
            return base.BackendStats(protocol, *self._first.capacity(), capabilities)
        pools = [
            base.PoolStats(name, *pool.pool_capacity(), {"thin_provisioning": bool(pool.pool)})
            for name, pool in self._pools.items()
        ]
        return base.BackendStats.from_pools(protocol, pools, capabilities)
