# SPDX-License-Identifier: Apache-2.0
"""This host as whoever attaches to it sees it: a name, a way, a journal; and its part of the work.

The commands that people type (client/) and the agent (service.py) both go through it.
"""

from collections.abc import Sequence
import dataclasses
import os
from pathlib import Path
import socket

from attachd import exception
from attachd.agent import block_device, ways
from attachd.agent.connectors.base import IDENTITY, Connector, Options, Way
from attachd.agent.journal import FOLDER, Entry, Journal, Step
from attachd.agent.mount import mounts


@dataclasses.dataclass(frozen=True)
class Identity:
    """What makes this host another one than its neighbours.

    :ivar name: as attachments call it
    :ivar initiator: its iSCSI name; None: that of the machine, or one of the journal's own
    """

    name: str = dataclasses.field(default_factory=socket.gethostname)
    initiator: str | None = None


class Host:
    """A host with what is attached to it.

    :param way: as ways.choose() takes it
    :ivar way: the one that is used for what is attached from now on
    """

    def __init__(
        self, identity: Identity | None = None, folder: Path = FOLDER, way: str = ways.AUTO
    ) -> None:
        self.identity = identity or Identity()
        self.journal = Journal(folder)
        self.way = ways.choose(way, folder, self.identity.initiator)

    def check(self, protocol: str | None = None, *, tools: Sequence[str] = ()) -> None:
        """Find out whether this host can attach, before anything is begun.

        :param protocol: of the volume, once it is known
        :param tools: commands that are needed besides, such as mkfs.ext4
        :raises HostLacks: it cannot, and what would help
        """
        lacking = [] if os.geteuid() == 0 else ["the rights of root (run it with sudo)"]
        lacking += self.way.lacks(protocol)
        lacking += mounts.lacks(tools)
        if lacking:
            what = ", ".join(dict.fromkeys(lacking))
            raise exception.HostLacks(host=self.identity.name, what=what)

    def connector(self, options: Options) -> Connector:
        """Tell what this host is to a backend; raises HostError."""
        return self.way.connector(self.identity.name, options)

    def connect(self, entry: Entry) -> Entry:
        """Make a device of what an entry tells of a connection.

        :returns: the entry with the device, as it is in the journal
        :raises HostError: there is none; the entry says why
        """
        info = entry.connection_info
        assert info is not None
        entry = self.journal.write(entry, step=Step.CONNECTING, way=entry.way or self.way.NAME)
        try:
            device = self._way(entry).connect(info, entry.options)
        except exception.HostError as error:
            self.journal.write(entry, error=f"{error}")
            raise
        return self.journal.write(entry, device=device, error=None)

    def disconnect(self, entry: Entry, *, force: bool = False) -> Entry:
        """Take the device of an entry away.

        :param force: although somebody uses it, or what was written cannot be saved
        :returns: the entry without the device, as it is in the journal
        :raises DeviceBusy: somebody uses the device, and nothing was done
        :raises HostError: it is still there; the entry says why
        """
        device = entry.device if self._may_be_present(entry) else None
        if not force:
            self.check_unused(entry)
        entry = self.journal.write(entry, step=Step.DISCONNECTING)
        if entry.connection_info is not None:
            way = self._way(entry)
            try:
                way.disconnect(entry.connection_info, entry.options, device, force=force)
            except exception.HostError as error:
                self.journal.write(entry, error=f"{error}")
                raise
        return self.journal.write(entry, device=None, error=None)

    def extend(self, entry: Entry) -> int:
        """Let a device grow with its volume; returns its size in bytes; raises HostError."""
        assert entry.connection_info is not None
        assert entry.device is not None
        return self._way(entry).extend(entry.connection_info, entry.options, entry.device)

    def is_present(self, entry: Entry) -> bool:
        """Tell whether the device of an entry is there."""
        if entry.device is None or entry.connection_info is None:
            return False
        return self._way(entry).is_present(entry.connection_info, entry.device)

    def check_unused(self, entry: Entry) -> None:
        """Find out that nobody uses the device of an entry, be it noted there or not.

        :raises DeviceBusy: who does
        :raises HostError: nobody can tell
        """
        if entry.device is not None and self._may_be_present(entry):
            mounts.check_unused(entry.device.path)
        elif entry.connection_info is not None:
            for path in (*self._way(entry).unnoted(entry.connection_info), *_recognized(entry)):
                mounts.check_unused(path)

    def is_shared(self, entry: Entry, other: Entry) -> bool:
        """Tell whether the device of another entry, which is there, is that of this one as well.

        Paths alone do not say it: after a reboot what is known of one may be the other's.

        :param entry: it may know of no device, such as after a crash
        :raises HostError: nobody can tell
        """
        if not self.is_present(other):
            return False
        return self.is_present(dataclasses.replace(entry, device=other.device))

    def _may_be_present(self, entry: Entry) -> bool:
        """Tell whether a path can still be believed: after a reboot it may be another disk's."""
        try:
            return self.is_present(entry)
        except exception.HostError:
            return entry.device is not None

    def _way(self, entry: Entry) -> Way:
        """Return the way that an entry was attached by, whichever is used now."""
        if not entry.way or entry.way == self.way.NAME:
            return self.way
        return ways.choose(entry.way, self.journal.folder, self.identity.initiator)


def _recognized(entry: Entry) -> list[str]:
    """Return the path of a device that is the noted disk, though the way does not find it.

    A way may look in the wrong place, such as under the address of a portal that has a name.
    """
    if entry.device is None:
        return []
    noted = entry.device.info.get(IDENTITY)
    return (
        [entry.device.path] if noted and noted == block_device.identity(entry.device.path) else []
    )
