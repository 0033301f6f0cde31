# SPDX-License-Identifier: Apache-2.0
"""The interface of host connectors, and their values; host.py chooses a connector by its type.

A connector makes a block device of what the API calls ``connection_info``, and removes it.  There
are two: os-brick with the kernel's initiators (brick.py), and QEMU's storage daemon for hosts
whose kernel has none (qemu/).
"""

import abc
from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, ClassVar

ConnectorProperties = dict[str, Any]
"""What a backend needs to know of a host, as os-brick's get_connector_properties() returns it."""

ConnectionInfo = Mapping[str, Any]
"""As an attachment of the API shows it: flat, with ``driver_volume_type``, ``access_mode`` (rw or
ro) and the keys of the protocol.  It holds secrets."""


@dataclasses.dataclass(frozen=True)
class Options:
    """How a host connects.

    :ivar multipath: use all paths to a volume
    :ivar enforce_multipath: where multipathd does not run, fail rather than use one path
    :ivar nic: the network interface whose address backends get; None: the kernel's routes decide
    """

    multipath: bool = False
    enforce_multipath: bool = False
    nic: str | None = None


IDENTITY = "identity"
"""The key of Device.info with the disk's own identifier, which is the same at every path."""


@dataclasses.dataclass(frozen=True)
class Device:
    """A block device of this host that is a volume.

    :ivar path: of the device
    :ivar info: what the connector needs to disconnect it; can be stored as JSON
    """

    path: str
    info: dict[str, Any]


class HostConnector(abc.ABC):
    """Makes devices of volumes on this host.

    Every method can be repeated, also after a process that was killed during the same call.

    :cvar TYPE: the connector type, as options name it
    """

    TYPE: ClassVar[str]

    def load(self) -> None:  # noqa: B027
        """Import what the other methods need; raises HostError."""

    @abc.abstractmethod
    def missing_requirements(self, protocol: str | None = None) -> Sequence[str]:
        """List what this host needs and does not have, each with its package.

        :param protocol: ``driver_volume_type``; None: check what every protocol needs
        :returns: such as ``iscsiadm (package open-iscsi)``; empty if nothing is missing
        """

    @abc.abstractmethod
    def get_connector_properties(self, host: str, options: Options) -> ConnectorProperties:
        """Return what a backend needs to know of this host.

        :param host: its name
        :raises HostError: the properties are unknown, such as for lack of an initiator name
        """

    @abc.abstractmethod
    def connect(self, info: ConnectionInfo, options: Options) -> Device:
        """Make a device of a volume, or return the one that exists.

        A device of an ``access_mode`` "ro" refuses writes.

        :raises HostError: there is no device, and as far as the host knows, nothing remains
        """

    @abc.abstractmethod
    def disconnect(
        self, info: ConnectionInfo, options: Options, device: Device | None, *, force: bool = False
    ) -> None:
        """Remove the device of a volume; success if there is none.

        What was written is on the backend when this returns.  The caller checks before that the
        device is not in use, see mount/open_handles.py.

        :param device: as connect() has returned it; None: it is unknown whether there is one
        :param force: also if data that was written cannot be saved
        :raises HostError: the device is still there
        """

    @abc.abstractmethod
    def extend(self, info: ConnectionInfo, options: Options, device: Device) -> int:
        """Let the device grow to the present size of the volume.

        :returns: its size in bytes
        :raises HostError: it has its former size
        """

    @abc.abstractmethod
    def is_present(self, info: ConnectionInfo, device: Device) -> bool:
        """Return whether the device is there, and is this volume."""

    def cut(self, info: ConnectionInfo) -> None:  # noqa: ARG002
        """Let users of a device get errors instead of waiting for its backend; or do nothing.

        :raises HostError: it could not be done
        """
        return

    def stop_writers(
        self,
        info: ConnectionInfo,
        options: Options,  # noqa: ARG002
        device: Device | None,  # noqa: ARG002
    ) -> None:
        """Keep all that was not written yet from reaching the backend; users get errors.

        Nothing is flushed that can be dropped.  The device may stay, and is_present() does not
        return it then.  It is called without a lock, while other methods may be in progress, and
        again if it is over.

        :param device: as connect() has returned it; None: it is unknown whether there is one
        :raises HostError: something may still be written
        """
        self.cut(info)

    def find_device_paths(self, info: ConnectionInfo) -> Sequence[str]:  # noqa: ARG002
        """Return the paths of the devices of a connection, also of one that has lost its volume.

        Needed where the kernel lets a device be removed, or lose its volume, while it is in use.

        :raises HostError: the host cannot determine it
        """
        return []
