# SPDX-License-Identifier: Apache-2.0
"""The shares of a backend, each of which is a pool, and their files that can become volumes."""

from collections.abc import Iterable, Mapping
import dataclasses
from pathlib import Path
import re
from typing import Any, Final

from oslo_config import cfg

from attachd import exception
from attachd.drivers import base, existing
from attachd.drivers.abilities import ManageableObject
from attachd.drivers.nfs.file_worker import Kind
from attachd.drivers.nfs.share import Share

_SHARE: Final = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+):/\S*")
_POOL: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*")


class Pools:
    """The shares by the names of their pools; the first has the name of the backend.

    :param backend: the name of the backend
    :param options: those of NfsDriver
    :ivar shares: by pool
    """

    def __init__(self, backend: str, options: cfg.ConfigOpts.GroupAttr) -> None:
        self.backend = backend
        self._more_shares = dict(options.nfs_pools)
        self._points = dict(options.nfs_pool_mount_points)
        names = {**self._more_shares, backend: options.nfs_share}
        points = {**self._points, backend: options.nfs_mount_point}
        base_folder = Path(options.nfs_mount_point_base).absolute()
        self.shares = {
            pool: Share(
                names[pool],
                Path(points[pool]).absolute() if points.get(pool) else None,
                base_folder,
                options.nfs_mount_options,
                options.nfs_timeout,
            )
            for pool in (backend, *sorted(self._more_shares))
        }

    def check(self) -> None:
        """Check the options; raises BackendError."""
        for pool, share in self.shares.items():
            if not _SHARE.fullmatch(share.name):
                option = "nfs_share" if pool == self.backend else f"nfs_pools, {pool},"
                raise self._error(
                    f"{option} of backend {self.backend} is {share.name!r}: set it to "
                    "SERVER:/PATH, such as 192.0.2.5:/export/volumes."
                )
        for pool in self._more_shares:
            if not _POOL.fullmatch(pool) or pool == self.backend:
                raise self._error(
                    f"nfs_pools of backend {self.backend} has the pool {pool!r}: take letters, "
                    "digits, dots, dashes and underscores, and not the name of the backend, which "
                    "is that of the pool of nfs_share."
                )
        if len({share.name for share in self.shares.values()}) < len(self.shares):
            raise self._error(
                f"nfs_pools of backend {self.backend} names a share twice, or that of nfs_share."
            )
        if unknown := self._points.keys() - self._more_shares.keys():
            raise self._error(
                f"nfs_pool_mount_points of backend {self.backend} has {min(unknown)}, which is "
                "not in nfs_pools."
            )

    def share_of(self, volume: base.VolumeRef) -> Share:
        """Return the share of a volume.

        :raises BackendError: final, there is no such pool
        """
        share = self.shares.get(volume.pool or self.backend)
        if share is None:
            raise self._error(
                f"Volume {volume.id} is in pool {volume.pool} of backend {self.backend}, which "
                "nfs_pools does not name."
            )
        return share

    def call_each(self, method: str, *arguments: Any) -> Iterable[Any]:
        """Call a method in all shares, one after the other."""
        return [share.call(method, *arguments) for share in self.shares.values()]

    def close(self) -> None:
        """End the processes of all shares, and unmount those that the manager has mounted."""
        for share in self.shares.values():
            share.close()

    def stats(self, capabilities: Mapping[str, Any]) -> base.BackendStats:
        """Return the sizes of the file systems; a single share is no pool."""
        found = [
            base.PoolStats(pool, **share.call("stats")) for pool, share in self.shares.items()
        ]
        stats = base.BackendStats.from_pools("nfs", found, capabilities)
        return stats if len(found) > 1 else dataclasses.replace(stats, pools=())

    @staticmethod
    def _error(reason: str) -> exception.BackendError:
        return exception.BackendError(reason, final=True)


class ExistingFiles(existing.ExistingObjects):
    """The files of all shares that can become volumes, or snapshots.

    Names of files in further pools begin with the pool: "POOL/FILE".

    :param kind: what they can become
    """

    def __init__(self, pools: Pools, kind: Kind = "volume") -> None:
        self._pools = pools
        self._kind = kind

    def list(self) -> Iterable[ManageableObject]:
        """List the volumes, and the files in the directories ``manageable``."""
        for pool, share in self._pools.shares.items():
            for found in share.call("list_manageable", self._kind):
                yield self._describe(pool, found)

    def get(self, reference: Mapping[str, str]) -> ManageableObject:
        """Return one of them, by the names of pool and file; see ExistingObjects.get()."""
        pool, plain = self._split(reference)
        share = self._pools.shares.get(pool)
        if share is None:
            raise existing.invalid(reference, f"The backend has no pool {pool!r}.")
        return self._describe(pool, share.call("get_manageable", self._kind, plain))

    def manage(self, volume: base.VolumeRef, reference: Mapping[str, str]) -> None:
        """Rename a file to a volume of its pool.

        One that a host has open without a lock is not detected.
        """
        pool, plain = self._split(reference)
        share = self._pools.share_of(volume)
        if share is not self._pools.shares.get(pool):
            raise exception.BackendError(
                f"The {self._kind} {volume.id} is in another pool than its file, {pool}.",
                final=True,
            )
        share.call("manage", self._kind, volume.id, volume.size_gib, plain)

    def unmanage(self, volume: base.VolumeRef) -> None:
        """Move a volume's file to the directory ``manageable``; refused while exported."""
        self._pools.share_of(volume).call("unmanage", self._kind, volume.id)

    def _split(self, reference: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Return the pool of a reference, and the reference in that pool."""
        pool, slash, name = f"{reference.get(existing.KEY, '')}".rpartition("/")
        if slash:
            return pool, {**reference, existing.KEY: name}
        return self._pools.backend, dict(reference)

    def _describe(self, pool: str, found: Mapping[str, Any]) -> ManageableObject:
        item = ManageableObject(**found)
        if len(self._pools.shares) == 1:
            return item
        if pool != self._pools.backend:
            name = f"{pool}/{item.reference[existing.KEY]}"
            item = dataclasses.replace(item, reference={existing.KEY: name})
        return dataclasses.replace(item, pool=pool)
