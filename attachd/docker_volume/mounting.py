# SPDX-License-Identifier: Apache-2.0
"""Volumes at this host: attached and mounted for the first container, given back by the last.

The uses are in the journal of the host, in the entry that the agent has made for the attachment.
The directory of a volume has its name, so that uses are ended without the API.
"""

from collections.abc import Callable, Iterator
import contextlib
import functools
import logging
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from attachd import exception
from attachd.agent.host import Host, Identity
from attachd.agent.journal import Entry
from attachd.agent.staging import Staging
from attachd.docker_volume.engines import Engines
from attachd.docker_volume.named_volumes import NamedVolumes, is_adopted, name_of
from attachd.docker_volume.new_volume import Options
from attachd.node.agent_client import AgentClient
from attachd.node.volumes import NodeVolumes, Target, has_users
from attachd.platforms import calls, waiting
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.publication import HeldElsewhere, Publication, Publisher
from attachd.platforms.storage import StoredVolume
from attachd.platforms.volume_locks import VolumeLocks

LOG = logging.getLogger(__name__)

T = TypeVar("T")

_MARGIN: Final = 1.0
"""Seconds of the time limit of a call that remain when the device is there."""
_LOST_AND_FOUND: Final = "lost+found"


class Settings(NamedTuple):
    """Settings of mounts.

    :ivar folder: with the directories of the volumes
    :ivar assume_empty: whether to look only for signatures on a device before a file system is
        made on it
    """

    folder: Path
    assume_empty: bool = False


class Mounter:
    """Mounts volumes at this host; its methods raise CallError and HostError.

    :ivar engines: those that have asked for uses
    """

    def __init__(
        self, named: NamedVolumes, publisher: Publisher, agent: AgentClient, settings: Settings
    ) -> None:
        self._named = named
        self._publisher = publisher
        self._agent = agent
        self._settings = settings
        self._locks = VolumeLocks()
        self.engines = Engines()

    @functools.cached_property
    def host(self) -> Host:
        """This host, as the agent knows it."""
        host = self._agent.get_host()
        return Host(Identity(host.name, host.initiator), host.state_path)

    @functools.cached_property
    def volumes(self) -> NodeVolumes:
        """The staged volumes of this host."""
        return NodeVolumes(self.host)

    def path(self, name: str) -> str:
        """Return the directory of a volume."""
        return f"{self._settings.folder / name}"

    def find_staged(self, name: str) -> Entry | None:
        """Return the entry of a volume that is mounted here, or was when the host ended."""
        path = self.path(name)
        return next((entry for entry in self.list_staged() if path_of(entry) == path), None)

    def list_staged(self) -> list[Entry]:
        """Return the entries of all volumes that this plugin has mounted here."""
        return self.volumes.list_staged(f"{self._settings.folder}")

    def mount(self, name: str, use: str, engine: int) -> str:
        """Attach and mount a volume, unless it is; record the use, and return the directory.

        :param use: its id
        :param engine: the process that asks
        :raises CallError: NOT_FOUND; FAILED_PRECONDITION: other hosts have it
        """
        volume, path = self._named.get(name), self.path(name)
        with self._locks.hold(volume.id):
            attachment_id = self._attach(volume)
            device = self._agent.get_device(
                attachment_id, max(calls.current().remaining - _MARGIN, 0.0)
            )
            with self._undo(volume.id, path):
                target = Target(volume.id, attachment_id, device.path, device.mode)
                self._stage(volume, target, path)
            # One that has given up will not end a use that it does not know.
            calls.current().check_caller()
            if not calls.current().remaining:
                raise waiting.aborted(f"Volume {name} is mounted now")
            _repeat(lambda: self.volumes.add_use(volume.id, path, use))
            self.engines.add(volume.id, use, engine)
        return path

    def _attach(self, volume: StoredVolume) -> str:
        """Return the id of the attachment at this host."""
        mode, host = Options.read(volume).mode, self.host.identity.name
        wanted = Publication(volume, host, mode, is_multi_node=mode == "ro", has_one_writer=True)
        try:
            return self._publisher.publish(wanted)
        except HeldElsewhere as error:
            if not error.nodes:
                raise
            names = " and ".join(error.nodes)
            raise CallError(
                ErrorCode.FAILED_PRECONDITION,
                f"Volume {name_of(volume)} ({volume.id}) is attached to host {names}. "
                "Stop the containers that use it there. If that host is dead, fence it: attachd "
                f"host-fence {error.nodes[0]}",
            ) from error

    def _stage(self, volume: StoredVolume, target: Target, path: str) -> None:
        """Mount the file system of a device."""
        options = Options.read(volume)
        staging = Staging(
            path,
            options.fs_type,
            read_only=options.mode == "ro",
            mkfs=options.makes_filesystem(is_adopted=is_adopted(volume)),
        )
        assume_empty = self._settings.assume_empty
        _repeat(lambda: self.volumes.stage(target, staging, assume_empty=assume_empty))
        _remove_lost_and_found(path)

    @contextlib.contextmanager
    def _undo(self, volume_id: str, path: str) -> Iterator[None]:
        """Give back a volume that cannot be mounted, so that another host can have it."""
        try:
            yield
        except exception.HostError:
            try:
                self._give_back(volume_id, path)
            except (CallError, exception.HostError) as left:
                LOG.warning("Volume %s stays attached for now: %s", volume_id, left)
            raise

    def unmount(self, name: str, use: str) -> None:
        """End a use; the last one unmounts and detaches the volume.

        A use that is not recorded is a success.
        """
        entry = self.find_staged(name)
        if entry is None:
            volume = self._named.find(name)
            if volume is not None:
                self.give_back(volume.id, self.path(name))
            return
        self.engines.discard(entry.volume_id, use)
        if not _repeat(lambda: self.volumes.end_use(entry.volume_id, self.path(name), use)):
            self.give_back(entry.volume_id, self.path(name))

    def give_back(self, volume_id: str, path: str) -> None:
        """Unmount and detach a volume, unless it has uses.

        :param path: its directory
        """
        with self._locks.hold(volume_id):
            self._give_back(volume_id, path)

    def _give_back(self, volume_id: str, path: str) -> None:
        entry = self.volumes.find(volume_id, path)
        if entry is not None and entry.staging is not None and entry.staging.uses:
            return
        _repeat(lambda: self.volumes.unstage(volume_id, path))
        self._publisher.unpublish(volume_id, self.host.identity.name)
        LOG.info("Volume %s: detached", volume_id)

    def is_used(self, entry: Entry) -> bool:
        """Return whether a volume has uses that count.

        Those do that a living engine will end; the others count while a container has the volume.
        """
        assert entry.staging is not None
        uses = entry.staging.uses
        if any(self.engines.will_end(entry.volume_id, use) for use in uses):
            return True
        return bool(uses) and has_users(entry.staging.path)

    def forget_uses(self, volume_id: str, path: str) -> None:
        """Forget the uses of a volume, unless they count; one that is mounted now has a new use.

        :param path: its directory
        """
        with self._locks.hold(volume_id):
            entry = self.volumes.find(volume_id, path)
            if entry is None or entry.staging is None or self.is_used(entry):
                return
            for use in entry.staging.uses:
                LOG.warning(
                    "Volume %s: use %s is forgotten: its engine has ended, and no container has "
                    "the volume",
                    volume_id,
                    use,
                )
                self.volumes.end_use(volume_id, path, use)

    def remove(self, name: str) -> None:
        """Remove a volume; one that Docker does not have is a success.

        :raises CallError: FAILED_PRECONDITION: it is attached; the message names the hosts
        """
        volume = self._named.find(name)
        if volume is None:
            return
        self.give_back(volume.id, self.path(name))
        self._named.remove(volume)


def path_of(entry: Entry) -> str:
    """Return the directory of a volume that is staged."""
    assert entry.staging is not None
    return entry.staging.path


def _repeat(step: Callable[[], T]) -> T:
    """Take a step, again while other work on the volume is in progress.

    :raises CallError: ABORTED: the caller does not wait so long
    """
    pauses = waiting.Pauses()
    while True:
        try:
            return step()
        except exception.LocalConflict as error:
            pauses.take(f"{error}".removesuffix("."))


def _remove_lost_and_found(path: str) -> None:
    """Leave a new ext file system empty: then Docker copies into it what the image has there.

    e2fsck makes the directory again if it needs it.
    """
    with contextlib.suppress(OSError):
        if [item.name for item in Path(path).iterdir()] == [_LOST_AND_FOUND]:
            (Path(path) / _LOST_AND_FOUND).rmdir()
