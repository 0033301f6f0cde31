# SPDX-License-Identifier: Apache-2.0
"""What a way of attaching has to offer, and the values it deals in; see ways.py for which exist.

A *way* makes a block device of what the API calls ``connection_info``, and takes it away again.
There are two: os-brick with the kernel's initiators (brick.py), and QEMU's storage daemon where
the kernel has none (qemu/connector.py).
"""

import abc
from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, ClassVar

Connector = dict[str, Any]
"""What a host says of itself, as os-brick's get_connector_properties() has it."""

ConnectionInfo = Mapping[str, Any]
"""As an attachment of the API shows it: flat, with ``driver_volume_type``, ``access_mode`` (rw or
ro) and what the protocol needs.  It holds secrets."""


@dataclasses.dataclass(frozen=True)
class Options:
    """How a host connects.

    :ivar multipath: use all paths there are
    :ivar enforce_multipath: fail, rather than use one path, where multipathd does not run
    :ivar nic: the network interface whose address the connector tells; None: the host decides
    """

    multipath: bool = False
    enforce_multipath: bool = False
    nic: str | None = None


IDENTITY = "identity"
"""Where in Device.info a way notes what the disk is known by, wherever it shows up."""


@dataclasses.dataclass(frozen=True)
class Device:
    """A block device of this host that is a volume.

    :ivar path: of the device
    :ivar info: whatever the way wants to be told when it disconnects; can be kept as JSON
    """

    path: str
    info: dict[str, Any]


class Way(abc.ABC):
    """A way of attaching; every verb can be repeated, whatever a killed process left behind.

    :cvar NAME: as people choose it
    """

    NAME: ClassVar[str]

    @abc.abstractmethod
    def lacks(self, protocol: str | None = None) -> Sequence[str]:
        """Name what this host has not and would need, each with where it comes from.

        :param protocol: ``driver_volume_type``; None: what any protocol needs
        :returns: such as ``iscsiadm (package open-iscsi)``; empty if it can be done
        """

    @abc.abstractmethod
    def connector(self, host: str, options: Options) -> Connector:
        """Tell what this host is to a backend.

        :param host: its name
        :raises HostError: the host does not know, such as of an initiator name
        """

    @abc.abstractmethod
    def connect(self, info: ConnectionInfo, options: Options) -> Device:
        """Make a device of a volume, or return the one that is there already.

        A device of an ``access_mode`` "ro" refuses writes.

        :raises HostError: there is none, and nothing is left of the attempt as far as can be told
        """

    @abc.abstractmethod
    def disconnect(
        self, info: ConnectionInfo, options: Options, device: Device | None, *, force: bool = False
    ) -> None:
        """Take the device of a volume away; one that is not there is a success.

        What was written is on the backend when this returns.  Whether somebody uses the device
        is asked before, by mounts.py.

        :param device: as connect() has returned it; None: nobody knows whether there is one
        :param force: although not everything that was written can be saved
        :raises HostError: it is still there
        """

    @abc.abstractmethod
    def extend(self, info: ConnectionInfo, options: Options, device: Device) -> int:
        """Let the device be as large as the volume is by now.

        :returns: its size in bytes
        :raises HostError: it is as large as before
        """

    @abc.abstractmethod
    def is_present(self, info: ConnectionInfo, device: Device) -> bool:
        """Tell whether the device is there, and is this volume."""

    def unnoted(self, info: ConnectionInfo) -> Sequence[str]:  # noqa: ARG002
        """Tell the paths of what a connection leads to, for whoever has no note of a device.

        Asked where taking a device away is not refused by the kernel while it is used.

        :raises HostError: nobody can tell
        """
        return []
