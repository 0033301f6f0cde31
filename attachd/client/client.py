# SPDX-License-Identifier: Apache-2.0
"""The Python API: volumes of a Block Storage API on the host that this runs on; for programs."""

from collections.abc import Callable
import dataclasses
import os
from typing import Any, Final, Literal

from openstack import connection as sdk

from attachd import exception
from attachd.agent.connectors.base import ConnectorProperties, Options
from attachd.agent.host import Host
from attachd.agent.journal import Entry
from attachd.client import listing, restoring
from attachd.client.attaching import Attaching, Wanted, mode_of
from attachd.client.choosing import Asked, Choice
from attachd.client.detaching import Detaching
from attachd.client.service import Service

DEFAULTS: Final = Options()
"""How a host connects where nobody says otherwise."""


@dataclasses.dataclass(frozen=True)
class Attached:
    """A volume that is attached to this host.

    :ivar path: of its block device
    :ivar device: as os-brick's connect_volume() returns it, with ``path``
    :ivar mountpoint: None: it is not mounted
    :ivar mode: "rw" or "ro"
    """

    volume_id: str
    attachment_id: str
    path: str
    device: dict[str, Any]
    mountpoint: str | None
    mode: str


class Client:
    """Attaches volumes to this host, and takes them away again.

    What it does is in the host's journal before it is done: a call that was killed can be
    repeated, and goes on.  Errors are those of :mod:`attachd.exception` for what this host cannot
    do, and those of openstacksdk and keystoneauth for what the service says.

    :ivar connection: openstacksdk's, as it was given: whatever else is to be asked, ask it
    :ivar host: what is known of this host
    """

    def __init__(
        self,
        connection: sdk.Connection,
        host: Host | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.connection = connection
        self.host = host or Host()
        self._tell = progress or _say_nothing

    def get_connector(self, options: Options = DEFAULTS) -> ConnectorProperties:
        """Return what this host tells a backend of itself; raises HostError."""
        return self.host.get_connector_properties(options)

    def attach(
        self,
        volume: str,
        *,
        mode: Literal["rw", "ro"] = "rw",
        mountpoint: str | None = None,
        mkfs: str | None = None,
        options: Options = DEFAULTS,
    ) -> Attached:
        """Attach a volume to this host; what fails is undone.

        The same call again gives the same answer, also where the one before was killed.

        :param volume: name or id
        :param mountpoint: an empty folder, to mount it at
        :param mkfs: the file system to make if the volume is empty, such as "ext4"
        :raises HostError: this host cannot, or has it already
        :raises AttachFailed: something could not be undone; it tells what, and what to do
        :raises SDKException, ClientException: as openstacksdk has them; all is undone
        """
        if mode not in {"rw", "ro"} or (mode == "ro" and mkfs):
            raise exception.HostError(reason="The mode is rw or ro; ro goes without a new mkfs.")
        folder = None if mountpoint is None else os.path.realpath(mountpoint)
        wanted = Wanted(mode, folder, mkfs, options)
        self.host.check(tools=wanted.tools())
        service = Service(self.connection)
        found = service.find(volume)
        with self.host.journal.held(found.id):
            steps = Attaching(self.host, service, self._detaching(service), self._tell)
            return _shown(steps.attach(found, wanted))

    def detach(
        self,
        volume: str,
        *,
        attachment_id: str | None = None,
        device_info: dict[str, Any] | None = None,
        options: Options | None = None,
        force: bool = False,
    ) -> None:
        """Take a volume away from this host.

        The same call again goes on where the one before has failed, or was killed.

        :param volume: name or id
        :param attachment_id: which one; needed where the volume has several on this host
        :param device_info: the device, of what another program has attached, as os-brick's
            connect_volume() returned it
        :param options: how another program has connected it
        :param force: although somebody uses it, and what was written may be lost
        :raises DeviceBusy: somebody uses it; it stays attached
        :raises LocalConflict: it is not attached to this host, or several times
        :raises DetachFailed: it is gone from this host, but not from the service
        """
        service = Service(self.connection)
        choice = Choice(self.host, service)
        found = choice.volume(volume)
        with self.host.journal.held(found.id):
            entry = choice.entry(found, Asked(attachment_id, device_info, options))
            self.host.check()
            self._detaching(service).go_back(entry, force=force)

    def attached(self) -> list[listing.LocalAttachment]:
        """Return what is attached to this host, and what the service says of it.

        :raises HostError: the journal cannot be read
        """
        return listing.listed(self.host, Service(self.connection))

    def restore(self) -> list[listing.LocalAttachment]:
        """Have on this host what its journal says, as after a reboot; it can be repeated.

        What was attached is connected and mounted again if the service says that it still is
        this host's; what was left half-way is finished or taken back, and what the service has
        deleted goes.  What the agent looks after is left to the agent.

        :returns: as attached(), and what has gone; ``error`` tells why one is not restored
        :raises HostError: this host cannot attach anything
        """
        self.host.check()
        service = Service(self.connection)
        steps = Attaching(self.host, service, self._detaching(service), self._tell)
        done = restoring.restore(self.host, service, steps, self._tell)
        gone = [listing.gone(each) for each in done.gone]
        return gone + listing.listed(self.host, service, done.errors)

    def _detaching(self, service: Service) -> Detaching:
        return Detaching(self.host, service, self._tell)


def _shown(entry: Entry) -> Attached:
    assert entry.attachment_id is not None
    assert entry.device is not None
    return Attached(
        volume_id=entry.volume_id,
        attachment_id=entry.attachment_id,
        path=entry.device.path,
        device={**entry.device.info, "path": entry.device.path},
        mountpoint=entry.mountpoint,
        mode=mode_of(entry),
    )


def _say_nothing(_text: str) -> None:
    pass
