# SPDX-License-Identifier: Apache-2.0
"""Stage the volumes of a host and publish them to its containers.

The records are in the journal of the host, in the entry that the agent has made for the
attachment.  Each step is recorded before it is taken, and can be repeated after a crash at any
line.  The lock of the volume keeps the agent, and other calls, from the same volume.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import enum
import os
from pathlib import Path
from typing import Final

from oslo_log import log

from attachd import exception
from attachd.agent.host import Host
from attachd.agent.journal import Entry, Owner, Step
from attachd.agent.mount import (
    binds,
    filesystems,
    format_and_mount,
    group_access,
    growth,
    mounts,
    open_handles,
)
from attachd.agent.mount.mount_rules import DEFAULTS, MountRules
from attachd.agent.staging import Publication, Staging
from attachd.linux import block_device, device_nodes, mountinfo

LOG = log.getLogger(__name__)

LOCK_TIMEOUT: Final = 2.0
"""Seconds to wait for other work on a volume: the agent reads its state now and then."""


class Problem(enum.Enum):
    """Why a call is refused, for programs."""

    NOT_STAGED = enum.auto()
    DIFFERS = enum.auto()
    """It is staged or published at the same path in another manner."""
    CONFLICTS = enum.auto()
    """What is staged or published elsewhere does not permit it."""
    UNCLEAN = enum.auto()
    """It failed, and something is left: only a repeated call, or its reversal, may follow."""


class Refused(exception.HostError):
    """A call is refused.

    :ivar problem: why
    """

    def __init__(self, problem: Problem, reason: str) -> None:
        super().__init__(reason=reason)
        self.problem = problem


@dataclasses.dataclass(frozen=True)
class Target:
    """An attached volume that is to be staged.

    :ivar mode: of the device, "rw" or "ro"
    """

    volume_id: str
    attachment_id: str
    device: str
    mode: str


class NodeVolumes:
    """The staged volumes of a host; used by any number of threads.

    All methods raise LocalConflict while other work on the volume is in progress, DeviceBusy if
    something is in use, and HostError if the host fails; then nothing is left of the call.

    :param host: whose agent attaches the volumes
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._journal = host.journal

    def stage(
        self,
        target: Target,
        staging: Staging,
        *,
        assume_empty: bool = False,
        group: int | None = None,
    ) -> None:
        """Make a volume ready for publications: mount its file system, if it is to have one.

        A file system is made on a device without data, and only there.  What is attached
        read-only is staged read-only.

        :param staging: without publications and uses
        :param assume_empty: as of a journal entry
        :param group: the number of a group that is to read and write all files, unless the volume
            is read-only or published; None: groups stay as they are
        :raises Refused: it is staged in another manner
        """
        with self._journal.volume_lock(target.volume_id, timeout=LOCK_TIMEOUT):
            entry = self._get_attached(target)
            if target.mode == "ro":
                staging = dataclasses.replace(staging, read_only=True)
            former = entry.staging
            if former is not None and _is_in_use(entry, former) and not former.is_like(staging):
                problem = Problem.DIFFERS if former.path == staging.path else Problem.CONFLICTS
                raise Refused(
                    problem,
                    f"Volume {target.volume_id} is staged at {former.path} already, in another "
                    "manner. Unstage it there first.",
                )
            if former is not None and former.is_like(staging):
                staging = former
            if staging is not former or not self._is_staged(entry):
                self._stage(entry, staging, assume_empty=assume_empty)
            # What a running container has changed stays.
            if not any(map(_is_mounted, staging.publications)):
                self._grant(staging, group)

    def _stage(self, entry: Entry, staging: Staging, *, assume_empty: bool) -> None:
        rules = MountRules(options=staging.options)
        makes_fs = staging.fs_type is not None and staging.mkfs and not staging.read_only
        if staging.fs_type is not None:
            rules.check_type(filesystems.blkid_name(staging.fs_type), "The volume")
        entry = self._journal.write(
            entry,
            staging=staging,
            mountpoint=None if staging.fs_type is None else staging.path,
            mkfs=staging.fs_type if makes_fs else None,
            assume_empty=assume_empty,
            mount_rules=rules,
        )
        if staging.fs_type is None:
            return
        mode = "ro" if staging.read_only else "rw"
        with self._undo(entry.id):
            format_and_mount.mount_volume(self._journal, entry, LOG.info, mode=mode)

    def _grant(self, staging: Staging, group: int | None) -> None:
        """Let a group read and write the files of a volume.

        :raises Refused: not all have the group yet
        """
        if group is None or staging.fs_type is None or staging.read_only:
            return
        lock = self._journal.held_lock()
        try:
            group_access.grant(staging.path, group, [] if lock is None else [lock])
        except exception.HostError as error:
            raise Refused(Problem.UNCLEAN, f"{error}") from error

    def unstage(self, volume_id: str, path: str) -> None:
        """Reverse a stage; success if the volume is not staged at a path.

        :raises Refused: it is published, or has uses; or something else is mounted there
        """
        with self._journal.volume_lock(volume_id, timeout=LOCK_TIMEOUT):
            entry = self._find(volume_id, path)
            if entry is not None and entry.staging is not None:
                published = [item.path for item in entry.staging.publications if _is_mounted(item)]
                if published:
                    raise Refused(
                        Problem.CONFLICTS,
                        f"Volume {volume_id} is published at {', '.join(published)}. Unpublish it "
                        "there first.",
                    )
                if entry.staging.uses:
                    raise Refused(
                        Problem.CONFLICTS,
                        f"Volume {volume_id} has uses by {len(entry.staging.uses)} containers. "
                        "Stop them first.",
                    )
                self._clear(entry)
            # Also a mount of a device that is gone, or of a lost journal; never another one.
            binds.check_no_link(Path(path))
            self._check_mount(volume_id, path)
            mounts.unmount(path)

    def publish(
        self,
        volume_id: str,
        use: Staging,
        publication: Publication,
        *,
        group: int | None = None,
    ) -> None:
        """Show a staged volume to a container.

        :param use: how it is expected to be staged
        :param group: as of stage(); a repeated call changes nothing
        :raises Refused: it is not staged, in another manner, or published elsewhere
        """
        with self._journal.volume_lock(volume_id, timeout=LOCK_TIMEOUT):
            entry = self._find(volume_id, use.path)
            if entry is None or not self._is_staged(entry):
                raise Refused(
                    Problem.NOT_STAGED, f"Volume {volume_id} is not staged at {use.path}."
                )
            assert entry.staging is not None
            staging = entry.staging
            _check_path(publication.path)
            _check_publication(volume_id, staging, use, publication)
            is_new = not _is_mounted(publication)
            if is_new:
                self._grant(staging, group)
            staging = _forget_unmounted(staging).with_publication(publication)
            entry = self._journal.write(entry, staging=staging)
            try:
                _bind(entry, staging, publication)
            except exception.HostError as error:
                if is_new:
                    self._undo_publication(entry, publication, error)
                raise

    def unpublish(self, volume_id: str, path: str) -> None:
        """Reverse a publication; success if the volume is not published at a path.

        :raises Refused: something else is mounted there
        """
        with self._journal.volume_lock(volume_id, timeout=LOCK_TIMEOUT):
            self._check_mount(volume_id, path)
            binds.unbind(path)
            for entry in self._journal.list_for_volume(volume_id):
                if entry.staging is not None and entry.staging.find(path) is not None:
                    staging = entry.staging.without_publication(path)
                    self._journal.write(entry, staging=staging)

    def _check_mount(self, volume_id: str, path: str) -> None:
        """Check that what is mounted at a path, if anything, can be a volume, and of no other id.

        :raises Refused: it is another volume, or no block device
        """
        mount = mountinfo.find_at(path)
        if mount is None:
            return
        entries = [entry for entry in self._journal.list_entries() if entry.device is not None]
        others = [entry for entry in entries if entry.volume_id != volume_id]
        for entry in others:
            if _is_shown_at(entry, path):
                raise Refused(
                    Problem.CONFLICTS,
                    f"Volume {entry.volume_id} is mounted at {path}, and not volume {volume_id}.",
                )
        if not os.major(mount.device) and device_nodes.statx(path).block_device is None:
            raise Refused(
                Problem.CONFLICTS,
                f"{mount.source} is mounted at {path}: {mount.fs_type}, which is no volume.",
            )

    def add_use(self, volume_id: str, path: str, use: str) -> None:
        """Record that a container uses the staging directory, until end_use() is called.

        :param use: its id; the same one again is no further use
        :raises Refused: the volume is not staged
        """
        with self._journal.volume_lock(volume_id, timeout=LOCK_TIMEOUT):
            entry = self._find(volume_id, path)
            if entry is None or entry.staging is None or not self._is_staged(entry):
                raise Refused(Problem.NOT_STAGED, f"Volume {volume_id} is not staged at {path}.")
            self._journal.write(entry, staging=entry.staging.with_use(use))

    def end_use(self, volume_id: str, path: str, use: str) -> tuple[str, ...]:
        """Reverse add_use(), and return the uses that remain; success if it is not used."""
        with self._journal.volume_lock(volume_id, timeout=LOCK_TIMEOUT):
            entry = self._find(volume_id, path)
            if entry is None or entry.staging is None:
                return ()
            staging = entry.staging.without_use(use)
            if staging != entry.staging:
                self._journal.write(entry, staging=staging)
            return staging.uses

    def list_staged(self, folder: str) -> list[Entry]:
        """Return the entries of the volumes that are staged in a directory, one level below it."""
        return [
            entry
            for entry in self._journal.list_entries()
            if entry.staging is not None and f"{Path(entry.staging.path).parent}" == folder
        ]

    def find(self, volume_id: str, path: str) -> Entry | None:
        """Return the entry of a volume that is staged or published at a path; None: it is not."""
        for entry in self._journal.list_for_volume(volume_id):
            staging = entry.staging
            if staging is not None and (staging.path == path or staging.find(path) is not None):
                return entry
        return None

    def grow(self, volume_id: str, path: str) -> None:
        """Let the file system of a staged volume have the size of its device.

        :param path: where it is staged or published
        :raises HostError: it has not grown
        """
        with self._journal.volume_lock(volume_id, timeout=LOCK_TIMEOUT):
            entry = self.find(volume_id, path)
            if entry is None or entry.staging is None or entry.device is None:
                raise Refused(Problem.NOT_STAGED, f"Volume {volume_id} is not staged at {path}.")
            if entry.staging.fs_type is None or entry.staging.read_only:
                return
            state = growth.update(self._journal, entry, types=growth.GROWABLE).filesystem
            if state is not None and state.error is not None:
                raise exception.HostError(reason=f"Volume {volume_id}: {state.describe()}")

    def _get_attached(self, target: Target) -> Entry:
        """Return the entry of an attachment, whose device the agent has made."""
        for entry in self._journal.list_for_volume(target.volume_id):
            if entry.owner is Owner.AGENT and entry.attachment_id == target.attachment_id:
                is_same = entry.device is not None and entry.device.path == target.device
                if is_same and entry.step is Step.ATTACHED and self._host.is_present(entry):
                    return entry
        raise exception.LocalConflict(
            reason=f"The agent of this host works on attachment {target.attachment_id} just now."
        )

    def _find(self, volume_id: str, path: str) -> Entry | None:
        """Return the entry of a volume that is staged at a path."""
        for entry in self._journal.list_for_volume(volume_id):
            if entry.staging is not None and entry.staging.path == path:
                return entry
        return None

    @staticmethod
    def _is_staged(entry: Entry) -> bool:
        if entry.staging is None or entry.device is None:
            return False
        if entry.staging.fs_type is None:
            return block_device.exists(entry.device.path)
        return mounts.is_mounted(entry.device.path, entry.staging.path)

    @contextlib.contextmanager
    def _undo(self, entry_id: str) -> Iterator[None]:
        """Remove what a failed stage has left.

        :raises Refused: something is left
        """
        try:
            yield
        except exception.HostError as error:
            entry = self._journal.get(entry_id)
            assert entry is not None
            if entry.staging is not None and _is_in_use(entry, entry.staging):
                raise  # It was staged before.
            try:
                self._clear(entry)
            except exception.HostError as left:
                raise Refused(Problem.UNCLEAN, f"{error} {left}") from error
            if entry.mountpoint is not None and mountinfo.find_at(entry.mountpoint) is not None:
                raise Refused(Problem.UNCLEAN, f"{error}") from error
            raise

    def _clear(self, entry: Entry) -> None:
        """Unmount a staged volume, remove the remnant of a file system, and forget the staging."""
        # Only then something is written to it: its path may be another disk after a reboot.
        present = entry.formatting is not None and self._host.is_present(entry)
        entry = format_and_mount.unmount_volume(self._journal, entry, LOG.info, present=present)
        self._journal.write(
            entry, staging=None, mkfs=None, assume_empty=False, mount_rules=DEFAULTS
        )

    def _undo_publication(
        self, entry: Entry, publication: Publication, error: exception.HostError
    ) -> None:
        """Remove what a failed publication has left; raises Refused if something is."""
        try:
            binds.unbind(publication.path)
        except exception.HostError as left:
            raise Refused(Problem.UNCLEAN, f"{error} {left}") from error
        assert entry.staging is not None
        staging = entry.staging.without_publication(publication.path)
        self._journal.write(entry, staging=staging)


def has_users(path: str) -> bool:
    """Return whether a staged file system is mounted elsewhere, or a file of it is open.

    Mounts and processes of all namespaces count, such as those of containers.

    :param path: the staging directory
    """
    mount = mountinfo.find_at(path)
    if mount is None:
        return False
    # A namespace may have a copy of the mount itself, as those of systemd's units.
    others = [
        other
        for other in open_handles.list_mount_paths(mount.device)
        if not other.endswith(mount.mountpoint)
    ]
    return bool(others or open_handles.list_filesystem_users(mount))


def _is_in_use(entry: Entry, staging: Staging) -> bool:
    """Return whether a record of a staging is more than that of one that was interrupted."""
    if staging.fs_type is None:
        return True
    is_mounted = entry.device is not None and mounts.is_mounted(entry.device.path, staging.path)
    return is_mounted or any(map(_is_mounted, staging.publications))


def _is_shown_at(entry: Entry, path: str) -> bool:
    """Return whether the device of an entry, or its file system, is mounted at a path."""
    assert entry.device is not None
    device = entry.device.path
    return mounts.is_mounted(device, path) or binds.is_device_at(device, path)


def _is_mounted(publication: Publication) -> bool:
    return mountinfo.find_at(publication.path) is not None


def _forget_unmounted(staging: Staging) -> Staging:
    """Return a staging without the publications that are gone, as after a reboot."""
    remaining = tuple(filter(_is_mounted, staging.publications))
    return dataclasses.replace(staging, publications=remaining)


def _check_publication(
    volume_id: str, staging: Staging, use: Staging, publication: Publication
) -> None:
    """Check that a publication fits to how a volume is staged and published; raises Refused."""
    expected = use if use.read_only else dataclasses.replace(use, read_only=staging.read_only)
    is_like = staging.is_like(expected)
    known = staging.find(publication.path)
    if known and _is_mounted(known) and not (known == publication and is_like):
        raise Refused(
            Problem.DIFFERS,
            f"Volume {volume_id} is published at {publication.path} already, in another manner. "
            "Unpublish it there first.",
        )
    if not is_like:
        raise Refused(
            Problem.CONFLICTS, f"Volume {volume_id} is staged at {use.path} in another manner."
        )
    if staging.read_only and not publication.read_only:
        raise Refused(
            Problem.CONFLICTS,
            f"Volume {volume_id} is attached read-only, and is to be published for writing.",
        )
    others = staging.without_publication(publication.path).publications
    published = [item.path for item in others if _is_mounted(item)]
    if staging.exclusive and published:
        raise Refused(
            Problem.CONFLICTS,
            f"Volume {volume_id} is published at {published[0]}, and its access mode permits one "
            "path only. Unpublish it there first.",
        )


def _check_path(path: str) -> None:
    binds.check_no_link(Path(path))
    parent = Path(path).parent
    if not Path(path).is_absolute() or os.path.normpath(path) != path.rstrip("/"):
        raise exception.HostError(reason=f"{path} is no absolute path without '..'.")
    if not parent.is_dir():
        raise exception.HostError(reason=f"There is no directory {parent}. Make it first.")


def _bind(entry: Entry, staging: Staging, publication: Publication) -> None:
    assert entry.device is not None
    if staging.fs_type is not None:
        binds.bind_directory(staging.path, publication.path, read_only=publication.read_only)
        return
    if publication.read_only and not block_device.is_read_only(entry.device.path):
        raise Refused(
            Problem.CONFLICTS,
            f"Volume {entry.volume_id} is attached for writing, and the kernel does not protect a "
            "device from the writes of one container. Attach it read-only.",
        )
    binds.bind_device(entry.device.path, publication.path)
