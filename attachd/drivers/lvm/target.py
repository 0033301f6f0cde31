# SPDX-License-Identifier: Apache-2.0
"""What the driver needs of a target of the kernel; lio.py and nvmet.py implement it."""

import abc
from collections.abc import Collection, Iterable, Sequence
import dataclasses
from pathlib import Path
import re
from typing import ClassVar

from attachd.drivers import base
from attachd.drivers.lvm import configfs
from attachd.drivers.lvm.host_keys import HostKeys

_UNSAFE = re.compile("[^a-z0-9.-]")


class Target(abc.ABC):
    """The exports of one backend by one kind of target.

    Errors of the operating system pass through; the driver converts them.

    :param tree: configfs
    :param backend: the name of the backend: it becomes part of the names of all objects
    :ivar portals: where to listen; known from the driver's ``setup`` on
    :ivar host_keys: of hosts that have to have one
    :ivar immediate_data: whether iSCSI hosts may send data in the message of a command
    :cvar PROTOCOL: as in base.BackendStats
    :cvar PROMISES: what it enforces without keys of hosts
    """

    PROTOCOL: ClassVar[str]
    PROMISES: ClassVar[base.Promises]

    def __init__(self, tree: configfs.Tree, backend: str) -> None:
        self.tree = tree
        self.backend = _UNSAFE.sub("-", backend.lower())
        self.portals: Sequence[configfs.Portal] = ()
        self.host_keys = HostKeys()
        self.immediate_data = False

    @property
    def promises(self) -> base.Promises:
        """Return what it enforces: with keys, hosts are who they claim to be."""
        if not self.host_keys.are_required:
            return self.PROMISES
        return dataclasses.replace(self.PROMISES, per_host_access=True)

    @abc.abstractmethod
    def setup(self) -> None:
        """Check that the kernel has it, and that it can listen at the portals."""

    @abc.abstractmethod
    def check_connector(self, connector: base.Connector) -> None:
        """Refuse a host without the name that the target needs."""

    @abc.abstractmethod
    def host(self, export: base.Export) -> str:
        """Return the name of the host of an export, or "" if there is no valid one."""

    @abc.abstractmethod
    def connection_key(self, volume: base.VolumeRef, export: base.Export) -> str:
        """Return what ``base.Driver.connection_key`` does."""

    @abc.abstractmethod
    def grant(
        self, volume: base.VolumeRef, export: base.Export, device: Path
    ) -> base.ConnectionInfo:
        """Give a host access to the device of a volume."""

    @abc.abstractmethod
    def revoke(
        self, volume: base.VolumeRef, export: base.Export, others: Sequence[base.Export]
    ) -> None:
        """Revoke a host's access and end its sessions."""

    @abc.abstractmethod
    def revoke_all_except(self, volume: base.VolumeRef, staying: Sequence[base.Export]) -> None:
        """Revoke all access but that of some exports."""

    @abc.abstractmethod
    def notify_size(self, volume: base.VolumeRef) -> None:
        """Notify hosts that the volume was extended, where the target can."""

    @abc.abstractmethod
    def list_volume_ids(self) -> Collection[str]:
        """List the volumes of which any object is left."""

    @abc.abstractmethod
    def list_exports(self, volume_id: str, device: Path) -> Iterable[base.BackendExport]:
        """List the exports of a volume.

        :param device: that its exports have to show
        """

    @abc.abstractmethod
    def expected_exports(
        self, volume: base.VolumeRef, exports: Sequence[base.Export]
    ) -> Iterable[base.BackendExport]:
        """Return what :meth:`list_exports` should return."""
