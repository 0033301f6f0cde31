# SPDX-License-Identifier: Apache-2.0
"""Detach a volume from this host: unmount, disconnect, delete; also to undo an attach."""

from collections.abc import Callable
import contextlib
import dataclasses
import logging
from typing import Final

from attachd import exception
from attachd.agent.host import Host
from attachd.agent.journal import Entry, Step
from attachd.agent.mount import format_and_mount, mounts
from attachd.client.service import FAILURES, ReservationRefused, Service

LOG = logging.getLogger(__name__)

_FORCED_FLUSH_TIMEOUT: Final = 10.0
"""Seconds without a write of a flush whose failure is accepted, or expected."""


def command(entry: Entry) -> str:
    """Return the command line that finishes the detach of an entry."""
    named = f" --attachment-id {entry.attachment_id}" if entry.attachment_id else ""
    return f"attachd local-detach{named} {entry.volume_id}"


class Detacher:
    """Detaches the volumes of entries; the caller holds the volume's lock."""

    def __init__(
        self, host: Host, service: Service, report_progress: Callable[[str], None]
    ) -> None:
        self._host = host
        self._journal = host.journal
        self._service = service
        self._report_progress = report_progress

    def resume(self, entry: Entry, *, force: bool = False) -> None:
        """Detach a volume from this host and remove its entry; stop at the first failed step.

        :param force: as in Host.disconnect()
        :raises DeviceBusy: the device is in use; it stays attached
        :raises HostError: it is still there; the entry has the last step
        :raises DetachFailed: only the deletion in the service failed
        """
        before = self._journal.get(entry.id)
        try:
            entry = self._cut(entry) if force else self._unmount(entry)
            entry = self._disconnect(entry, force=force)
        except exception.DeviceBusy:
            self._stay(entry, before)
            raise
        except exception.HostError as error:
            if force or type(error) is not exception.HostError or "--force" in f"{error}":
                raise
            raise exception.HostError(
                reason=f"{error} If that does not help, this loses what was not written: "
                f"{command(entry)} --force"
            ) from error
        try:
            entry = self._delete(entry)
        except FAILURES as error:
            self._journal.write(self._latest(entry), error=f"{error}")
            raise exception.DetachFailed(
                volume_id=entry.volume_id, cause=error, finish=command(entry)
            ) from error
        self._journal.remove(entry)

    def _stay(self, entry: Entry, before: Entry | None) -> None:
        if before is None:
            self._journal.remove(entry)  # It still belongs to another program.
        else:
            self._journal.write(self._latest(entry), step=before.step)

    def undo(self, entry: Entry) -> list[str]:
        """Undo an attempt; each step is tried, even if another failed.

        The attachment is kept while the device is in use: otherwise written data would be lost.

        :returns: what is left, and why; if nothing is, the entry is removed
        """
        left = []
        entry = self._latest(entry)
        parts = (
            (self._unmount, f"the mount at {entry.mountpoint}"),
            (self._disconnect, f"the device of volume {entry.volume_id}"),
            (self._delete, f"attachment {entry.attachment_id or 'of an unknown id'}"),
        )
        busy = False
        for step, part in parts:
            if busy and step == self._delete:
                left.append(f"{part} (the device is in use)")
                break
            try:
                entry = step(entry)
            except Exception as error:  # noqa: BLE001  the other steps are tried
                left.append(f"{part} ({error})")
                busy = busy or isinstance(error, exception.DeviceBusy)
                entry = self._latest(entry)
        if left:
            self._journal.write(entry, error="; ".join(left))
        else:
            self._journal.remove(entry)
        return left

    def _latest(self, entry: Entry) -> Entry:
        return self._journal.get(entry.id) or entry

    def _unmount(self, entry: Entry) -> Entry:
        if entry.mountpoint is None and entry.formatting is None:
            return entry
        if entry.mountpoint is not None:
            self._report_progress(f"Unmounting {entry.mountpoint}")
            format_and_mount.flush_volume(entry, self._flush_timeout(entry))
        return format_and_mount.unmount_volume(
            self._journal, entry, self._report_progress, present=self._host.is_present(entry)
        )

    def _flush_timeout(self, entry: Entry) -> float:
        """Return seconds to flush: without an attachment the backend may refuse all writes."""
        with contextlib.suppress(*FAILURES):
            if entry.attachment_id and self._service.attachment(entry.attachment_id) is None:
                return _FORCED_FLUSH_TIMEOUT
        return mounts.FLUSH_TIMEOUT

    def _cut(self, entry: Entry) -> Entry:
        """Unmount a volume also if it is in use, or data cannot be saved; log what is lost."""
        if entry.mountpoint is None or entry.device is None:
            return self._unmount(entry)
        self._report_progress(f"Unmounting {entry.mountpoint}")
        try:
            format_and_mount.flush_volume(entry, _FORCED_FLUSH_TIMEOUT)
        except exception.HostError as error:
            LOG.warning("Lost, as requested by --force: %s", error.__cause__ or error)
            self._host.cut(entry)
        try:
            return format_and_mount.unmount_volume(
                self._journal,
                entry,
                self._report_progress,
                present=self._host.is_present(entry),
            )
        except exception.DeviceBusy as error:
            LOG.warning(
                "Cut off from %s, as requested by --force: %s",
                entry.mountpoint,
                error.details["users"],
            )
            mounts.cut(entry.mountpoint, entry.device.path)
            return format_and_mount.forget_mountpoint(self._journal, self._latest(entry))

    def _disconnect(self, entry: Entry, *, force: bool = False) -> Entry:
        if entry.connection_info is None and entry.device is None:
            return entry
        self._report_progress(f"Disconnecting volume {entry.volume_id}")
        entry = self._host.disconnect(entry, force=force)
        # The remaining steps need no secrets.
        return dataclasses.replace(entry, connection_info=None)

    def _delete(self, entry: Entry) -> Entry:
        self._report_progress(f"Deleting the attachment of volume {entry.volume_id}")
        entry = self._journal.write(entry, step=Step.DELETING)
        attachment_id = entry.attachment_id or self._find(entry)
        if attachment_id is not None:
            self._service.delete(attachment_id)
        return entry

    def _find(self, entry: Entry) -> str | None:
        """Return the attachment of an interrupted reservation, if there is one."""
        try:
            return self._service.reserve(entry.volume_id, entry.mode, entry.id)
        except ReservationRefused:
            return None
