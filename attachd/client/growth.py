# SPDX-License-Identifier: Apache-2.0
"""Let a volume of this host have its present size: its device, and the file system on it."""

from collections.abc import Callable
import logging

from attachd import exception, host_identity
from attachd.agent.host import Host
from attachd.agent.journal import Entry, Owner, Step
from attachd.agent.mount import growth
from attachd.client.service import FAILURES, Service, Volume
from attachd.linux import block_device

LOG = logging.getLogger(__name__)

_GIB = 2**30


class VolumeGrowth:
    """Lets what the commands have attached to this host grow; the caller holds the volume's lock.

    Each call can be repeated, also after a process that was killed in one.
    """

    def __init__(
        self, host: Host, service: Service, report_progress: Callable[[str], None]
    ) -> None:
        self._host = host
        self._service = service
        self._report_progress = report_progress
        self._logged: dict[str, str] = {}

    def grow(self, entry: Entry, volume: Volume, *, grow_fs: bool) -> Entry:
        """Let the device have the size of the volume, and let the file system grow if it may.

        :param grow_fs: also if the attach did not say so
        :raises HostError: the device or the file system has its former size
        """
        self.extend(entry, volume)
        entry = self._update(entry, volume, grow_fs=grow_fs)
        state = entry.filesystem
        if state is not None and state.error:
            raise exception.HostError(reason=f"Volume {volume.id}: {state.describe()}")
        return entry

    def extend(self, entry: Entry, volume: Volume) -> None:
        """Let the device have the size of the volume; raises HostError."""
        assert entry.device is not None
        expected = volume.size_gib * _GIB
        if block_device.size(entry.device.path) >= expected:
            return
        self._report_progress(f"Resizing {entry.device.path} to {volume.size_gib} GiB")
        size = self._host.extend(entry)
        if size < expected:
            raise exception.HostError(
                reason=f"Volume {volume.id} has {volume.size_gib} GiB, and its device "
                f"{entry.device.path} still {size} bytes. Repeat the command; if that does not "
                "help, detach the volume, and attach it again."
            )

    def update(self, entry: Entry, volume: Volume) -> Entry:
        """Read the size of the file system, and let it grow if the attach said so.

        A failure is reported, and kept in the entry; the volume stays attached.
        """
        try:
            entry = self._update(entry, volume, grow_fs=False)
        except exception.HostError as error:
            self._report_progress(f"The size of the file system is not known: {error}")
            return entry
        text = entry.filesystem and entry.filesystem.describe()
        if text is not None:
            self._report_progress(f"Volume {volume.id}: {text}{advice(entry)}")
        return entry

    def follow(self, *, ask: bool) -> None:
        """Let grow what commands have attached here, as far as it is not as large as it may be.

        Errors are logged once, and kept in the journal as those of update().  It takes the locks
        itself, and leaves out what another process works on.

        :param ask: ask the service for the sizes of the volumes as well, and try again what has
            failed; otherwise only devices whose size has changed are read
        :raises HostError: the journal cannot be read
        """
        for entry in self._host.journal.list_entries():
            if entry.owner is not Owner.LOCAL or entry.step is not Step.ATTACHED:
                continue
            try:
                self._follow_one(entry, ask=ask)
            except (exception.LocalConflict, *FAILURES) as error:
                LOG.debug("Volume %s: its size is not compared: %s", entry.volume_id, error)
            except exception.HostError as error:
                self._log_once(entry, f"{error}")
            else:
                self._logged.pop(entry.id, None)

    def _follow_one(self, entry: Entry, *, ask: bool) -> None:
        if entry.device is None or not self._host.is_present(entry):
            return
        volume = Volume(entry.volume_id)
        if ask and entry.cloud in {None, self._service.cloud}:
            volume = self._service.find(entry.volume_id)
        failed = ask and entry.filesystem is not None and entry.filesystem.error is not None
        is_short = block_device.size(entry.device.path) < volume.size_gib * _GIB
        if not is_short and not failed and growth.is_read(entry):
            return
        with self._host.journal.volume_lock(entry.volume_id):
            latest = self._host.journal.get(entry.id)
            if latest is None or latest.step is not Step.ATTACHED:
                return
            self.extend(latest, volume)
            latest = self._update(latest, volume, grow_fs=False)
        if latest.filesystem is not None and latest.filesystem.error:
            raise exception.HostError(reason=f"{latest.filesystem.describe()}")

    def _log_once(self, entry: Entry, error: str) -> None:
        if self._logged.get(entry.id) != error:
            LOG.warning("Volume %s has not grown: %s", entry.volume_id, error)
        self._logged[entry.id] = error

    def _update(self, entry: Entry, volume: Volume, *, grow_fs: bool) -> Entry:
        if entry.device is None:
            return entry
        return growth.update(
            self._host.journal,
            entry,
            types=growth.GROWABLE if entry.grow_fs or grow_fs else (),
            check_growable=lambda: self._check_growable(entry, volume),
        )

    def _check_growable(self, entry: Entry, volume: Volume) -> None:
        """Check that no other host may have mounted the volume; raises HostError."""
        try:
            attachments = self._service.attachments(volume)
        except FAILURES as error:
            raise exception.HostError(
                reason=f"the service does not say whether another host has the volume: {error}"
            ) from error
        own = self._host.identity.name
        others = [
            attachment.host or f"attachment {attachment.id}"
            for attachment in attachments
            if attachment.id != entry.attachment_id
            and not (attachment.host and host_identity.is_same_name(attachment.host, own))
        ]
        if others:
            raise exception.HostError(
                reason=f"the volume is attached to {', '.join(sorted(others))} too, and a host "
                "that has mounted it would destroy a file system that grows on another one. "
                "Detach it there, then repeat the command: attachd local-grow --grow-fs "
                f"{entry.volume_id}"
            )
        self._report_progress(f"Growing the file system of volume {entry.volume_id}")


def advice(entry: Entry) -> str:
    """Return the command that lets a file system grow; "": it has, or its error names one."""
    state = entry.filesystem
    if state is None or not state.is_smaller or state.error:
        return ""
    return f". Let it grow: attachd local-grow --grow-fs {entry.volume_id}"
