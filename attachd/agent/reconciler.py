# SPDX-License-Identifier: Apache-2.0
"""Bring the attachments of a host to their desired state, one at a time.

The desired state is read again after the volume is locked, so that no thread acts on an outdated
one.  Each step is stored in the journal before it is taken: after a crash or a reboot the next
call finds what may be there, and continues.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
import contextlib
import dataclasses
from typing import Any

from oslo_log import log

from attachd import exception
from attachd.agent.connectors.base import Options
from attachd.agent.host import Host
from attachd.agent.journal import TEARDOWN_STEPS, Entry, Journal, Owner, Step
from attachd.agent.libvirt_secrets import LibvirtSecrets
from attachd.agent.mount import growth
from attachd.agent.worker_pool import ConcurrencyLimiter, TimeboxedCall
from attachd.linux import block_device
from attachd.objects import redact
from attachd.rpc import agent_manager_api
from attachd.rpc.agent_manager_api import IN_LIBVIRT, AgentCredentials, DesiredState

LOG = log.getLogger(__name__)

CONNECTED = "connected"
DISCONNECTED = "disconnected"

_ATTEMPTS = 3
"""How often a reconciliation starts anew when the desired state changes meanwhile."""

_GIB = 2**30
_LOCK_TIMEOUT = 120.0


class _DetachRefused(exception.DeviceBusy):
    """The device is in use, and the managers know that it stays."""


class _NotExtended(exception.HostError):
    """The device of a complete attachment has not grown; the attachment stays complete."""


class Reconciler:
    """Makes and removes the devices of a host; used by any number of threads.

    :param options: how to connect
    :param slots: how many volumes are worked on at the same time
    :param lock_timeout: seconds to wait for the lock of a volume
    :param check_lease: raises HostError where no device may be made
    :param grow_filesystems: the types of file systems that grow with their volumes
    :param secrets: of libvirt, for the attachments of Compute; None: this host has none
    :ivar limiter: limits the concurrency
    """

    def __init__(
        self,
        host: Host,
        credentials: AgentCredentials,
        options: Options,
        slots: int,
        lock_timeout: float = _LOCK_TIMEOUT,
        check_lease: Callable[[], object] = lambda: None,
        grow_filesystems: Collection[str] = (),
        secrets: LibvirtSecrets | None = None,
    ) -> None:
        self._host = host
        self._journal = host.journal
        self._credentials = credentials
        self._options = options
        self._lock_timeout = lock_timeout
        self._check_lease = check_lease
        self._grow_filesystems = grow_filesystems
        self._secrets = secrets
        self._long_locked: set[str] = set()
        self._list_call: TimeboxedCall[list[str]] = TimeboxedCall()
        self.limiter = ConcurrencyLimiter(slots)

    def reconcile(self, attachment_id: str) -> None:
        """Bring an attachment to its desired state.

        Each failure is reported to the managers, unless they do not answer.

        :raises HostError: this host could not
        :raises Unavailable: no manager answers, or another process holds the lock of the volume
        """
        try:
            volume_id = _find_volume(self._journal, attachment_id)
        except exception.HostError as error:
            desired = agent_manager_api.desired_state(self._credentials, attachment_id)
            _report_failure(self._credentials, desired, error)
            raise
        if volume_id is None:
            desired = agent_manager_api.desired_state(self._credentials, attachment_id)
            if desired is None or desired["target_state"] == IN_LIBVIRT:
                if self._secrets is not None:
                    self._secrets.reconcile(attachment_id, desired)
                return
            volume_id = desired["volume_id"]
        self._reconcile_device(volume_id, attachment_id)

    def _reconcile_device(self, volume_id: str, attachment_id: str) -> None:
        timeout = 0.0 if volume_id in self._long_locked else self._lock_timeout
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._journal.volume_lock(volume_id, timeout=timeout))
            except exception.LocalConflict as error:
                # The caller has given up, and a process that hangs may have the lock for ever:
                # this thread is needed for others.
                self._long_locked.add(volume_id)
                raise exception.Unavailable(reason=f"{error}") from error
            self._long_locked.discard(volume_id)
            stack.enter_context(self.limiter.slot(attachment_id))
            try:
                self._reconcile_with_retry(volume_id, attachment_id)
            except exception.HostHangs:
                self._long_locked.add(volume_id)
                raise

    def list_pending(
        self, desired_states: Iterable[DesiredState], timeout: float | None = None
    ) -> list[str]:
        """Return the attachments that do not seem to be in their desired state.

        Used by one thread only.

        :param desired_states: all devices of this host
        :param timeout: seconds to wait for the host, if that is less than usual
        :raises HostError: the journal cannot be read, or a command of the host hangs
        """
        return self._list_call.run(lambda: self._list_pending(desired_states), timeout)

    def _list_pending(self, desired_states: Iterable[DesiredState]) -> list[str]:
        entries = {
            entry.attachment_id: entry
            for entry in self._journal.list_entries()
            if entry.owner is Owner.AGENT
        }
        desired = {state["attachment_id"]: state for state in desired_states}
        pending = [id_ for id_, state in desired.items() if not self._is_reached(state, entries)]
        return [*pending, *(id_ for id_ in entries if id_ and id_ not in desired)]

    def _is_reached(self, desired: DesiredState, entries: dict[str | None, Entry]) -> bool:
        entry = entries.get(desired["attachment_id"])
        if desired["target_state"] != CONNECTED or not desired["complete"] or entry is None:
            return False
        try:
            attached = entry.step is Step.ATTACHED and entry.error is None
            usable = attached and self._has_usable_device(entry) and _has_mode(desired, entry)
            return usable and not _is_too_small(desired, entry) and _is_grown(entry)
        except exception.HostError:
            return False

    def _reconcile_with_retry(self, volume_id: str, attachment_id: str) -> None:
        for _ in range(_ATTEMPTS - 1):
            try:
                self._reconcile_once(volume_id, attachment_id)
            except (exception.InvalidTransition, exception.AttachmentNotFound) as error:
                LOG.info("Attachment %s: the desired state has changed: %s", attachment_id, error)
            else:
                return
        self._reconcile_once(volume_id, attachment_id)

    def _reconcile_once(self, volume_id: str, attachment_id: str) -> None:
        desired = agent_manager_api.desired_state(self._credentials, attachment_id)
        try:
            self._bring_about(desired, volume_id, attachment_id)
        except (
            exception.AttachmentNotFound,
            exception.InvalidTransition,
            exception.Unavailable,
            _DetachRefused,
            _NotExtended,
        ):
            raise
        except Exception as error:
            _report_failure(self._credentials, desired, error)
            raise

    def _bring_about(
        self, desired: DesiredState | None, volume_id: str, attachment_id: str
    ) -> None:
        entries = self._journal.list_for_volume(volume_id)
        entry = next((entry for entry in entries if _is_of(entry, attachment_id)), None)
        others = [other for other in entries if other is not entry]
        if desired is None:
            if entry is not None:
                self._remove_orphan(entry, others)
        elif desired["target_state"] == DISCONNECTED:
            self._disconnect(desired, entry, others)
        else:
            self._connect(desired, entry, others)

    def _connect(self, desired: DesiredState, entry: Entry | None, others: list[Entry]) -> None:
        present = entry is not None and self._has_usable_device(entry)
        if entry is None or not (present and _has_mode(desired, entry)):
            entry = self._make_device(desired, entry, others)
        assert entry.device is not None
        too_small = present and _is_too_small(desired, entry)
        is_complete = desired["complete"] and entry.step is Step.ATTACHED
        if not is_complete or (entry.error is not None and not too_small):
            # Also if it was complete before: since a reboot its path may be another one.
            entry = self._journal.write(entry, step=Step.COMPLETING)
            assert entry.device is not None
            agent_manager_api.connected(
                self._credentials,
                desired["attachment_id"],
                desired["generation"],
                entry.device.path,
            )
            entry = self._journal.write(entry, step=Step.ATTACHED, error=None)
        if too_small:
            try:
                self._extend(desired, entry)
            except exception.HostHangs as error:
                # The lock of the volume stays with the process that hangs.  The service gets the
                # error, and a report that clears it when the device has grown.
                self._journal.write(entry, error=f"{error}")
                raise
            except exception.HostError as error:
                raise _NotExtended(f"{error}") from error
        _update_filesystem(self._journal, desired, entry, self._grow_filesystems)

    def _make_device(
        self, desired: DesiredState, entry: Entry | None, others: list[Entry]
    ) -> Entry:
        """Return an entry with a device."""
        self._check_lease()
        self._check_conflicts(desired, others)
        info = _with_secrets(self._credentials.host, desired, entry)
        self._host.check(info.get("driver_volume_type"))
        if entry is not None and entry.connection_info != info:
            # Its mode has changed; or a connect by other parameters was begun, and its progress is
            # unknown.
            entry = entry if self._is_shared(entry, others) else self._discard(entry)
        if desired["complete"] and (entry is None or _has_mode(desired, entry)):
            LOG.warning(
                "Volume %s, attachment %s: the device is missing, as after a reboot; it is "
                "made again",
                desired["volume_id"],
                desired["attachment_id"],
            )
        entry = self._host.connect(self._new_entry(desired, entry, info))
        LOG.info("Volume %s: device %s", desired["volume_id"], entry.device and entry.device.path)
        return entry

    def _new_entry(
        self, desired: DesiredState, entry: Entry | None, info: dict[str, Any]
    ) -> Entry:
        """Return an entry for a desired state; one that exists is updated."""
        base = entry or Entry(
            desired["volume_id"],
            owner=Owner.AGENT,
            attachment_id=desired["attachment_id"],
            connector_type=self._host.connector.TYPE,
        )
        return dataclasses.replace(
            base,
            mode=desired["mode"],
            options=self._options,
            connection_info=info,
        )

    def _check_conflicts(self, desired: DesiredState, others: list[Entry]) -> None:
        """Check that the volume is not attached by hand; remove orphans.

        :raises LocalConflict: it is attached by hand
        """
        for other in others:
            if other.owner is not Owner.AGENT:
                raise exception.LocalConflict(
                    reason=f"Volume {desired['volume_id']} is attached to host "
                    f"{self._credentials.host} by hand, by attachment {other.attachment_id}. "
                    "Detach it there: local-detach on that host."
                )
            assert other.attachment_id is not None
            if agent_manager_api.desired_state(self._credentials, other.attachment_id) is None:
                self._remove_orphan(other, [entry for entry in others if entry is not other])

    def _extend(self, desired: DesiredState, entry: Entry) -> None:
        size = self._host.extend(entry)
        if size < desired["size_gib"] * _GIB:
            raise exception.HostError(
                reason=f"Volume {desired['volume_id']} has {desired['size_gib']} GiB, and its "
                f"device on host {self._credentials.host} still {size} bytes."
            )
        LOG.info("Volume %s: the device has grown to %d bytes", desired["volume_id"], size)

    def _disconnect(self, desired: DesiredState, entry: Entry | None, others: list[Entry]) -> None:
        attachment = (self._credentials, desired["attachment_id"], desired["generation"])
        if entry is None:
            entry = self._untracked_entry(desired, others)
        if entry is not None:
            try:
                if not self._is_shared(entry, others):
                    entry = self._host.disconnect(entry)
            except exception.DeviceBusy as error:
                agent_manager_api.detach_refused(*attachment, f"{error}")
                raise _DetachRefused(f"{error}") from error
        agent_manager_api.disconnected(*attachment)
        if entry is not None:
            self._journal.remove(entry)

    def _untracked_entry(self, desired: DesiredState, others: list[Entry]) -> Entry | None:
        """Return an entry for an attachment that the journal does not know.

        A journal, or this entry of it, may have been lost.  So the host is searched for a device,
        unless none can exist because the tools are missing.  Where the volume has other
        attachments, that is done only if the agent owns them and each has a device, so that a
        shared device is recognized.
        """
        info = _connection_info(desired)
        if self._host.connector.missing_requirements(info.get("driver_volume_type")):
            return None
        if any(other.owner is not Owner.AGENT or other.device is None for other in others):
            return None
        return self._new_entry(desired, None, info) if desired["connection_info"] else None

    def _remove_orphan(self, entry: Entry, others: list[Entry]) -> None:
        """Remove an attachment that the service does not know, unless it is in use.

        After a forced delete the backend has revoked the host's access already.  But the service
        may as well have lost its database, or be another one: a device in use stays.

        :raises DeviceBusy: it is in use
        """
        if not self._is_shared(entry, others):
            if self._host.is_present(entry):
                LOG.warning(
                    "Volume %s, attachment %s: not attached to this host any more, because it was "
                    "deleted by force or moved. Its device is removed unless it is in use",
                    entry.volume_id,
                    entry.attachment_id,
                )
            entry = self._discard(entry)
        self._journal.remove(entry)

    def _discard(self, entry: Entry) -> Entry:
        """Remove a device also if data cannot be saved; raises DeviceBusy if it is in use."""
        self._host.check_unused(entry)
        return self._host.disconnect(entry, force=True)

    def _is_shared(self, entry: Entry, others: list[Entry]) -> bool:
        """Return whether another attachment of the volume has the same device, and keeps it."""
        staying = [other for other in others if other.step not in TEARDOWN_STEPS]
        return any(self._host.is_shared(entry, other) for other in staying)

    def _has_usable_device(self, entry: Entry) -> bool:
        """Return whether there is a complete device: after a failed disconnect it may not be."""
        return entry.step not in TEARDOWN_STEPS and self._host.is_present(entry)


def _report_failure(
    credentials: AgentCredentials, desired: DesiredState | None, error: Exception
) -> None:
    """Report why the desired state was not reached; None: the attachment does not exist."""
    if desired is None:
        return
    attachment_id, generation = desired["attachment_id"], desired["generation"]
    try:
        agent_manager_api.failed(credentials, attachment_id, generation, _reason(error))
    except exception.AttachdError as report_error:
        LOG.warning("Attachment %s: %s (not reported: %s)", attachment_id, error, report_error)


def _reason(error: Exception) -> str:
    """Return the reason of a failure as callers read it."""
    if isinstance(error, exception.AttachdError):
        return f"{error}"
    return f"Unexpected error in the agent: {type(error).__name__}. The log of the agent has it."


def _find_volume(journal: Journal, attachment_id: str) -> str | None:
    """Return the volume of an attachment in the journal; None: it is not there."""
    entries = (entry for entry in journal.list_entries() if _is_of(entry, attachment_id))
    return next((entry.volume_id for entry in entries), None)


def _is_of(entry: Entry, attachment_id: str) -> bool:
    return entry.owner is Owner.AGENT and entry.attachment_id == attachment_id


def _has_mode(desired: DesiredState, entry: Entry) -> bool:
    """Return whether a device was made for the present mode; the end of a move changes that."""
    return bool(entry.mode == desired["mode"])


def _is_too_small(desired: DesiredState, entry: Entry) -> bool:
    assert entry.device is not None
    return block_device.size(entry.device.path) < desired["size_gib"] * _GIB


def _is_grown(entry: Entry) -> bool:
    """Return whether the file system on a device needs no attention."""
    state = entry.filesystem
    return growth.is_read(entry) and (state is None or state.error is None)


def _update_filesystem(
    journal: Journal, desired: DesiredState, entry: Entry, types: Collection[str]
) -> None:
    """Read the size of the file system, and let it grow if that is configured.

    The report has the result.

    :raises _NotExtended: it could not be read, or has its former size
    """
    before = entry.filesystem
    try:
        entry = growth.update(
            journal, entry, types=types, check_growable=lambda: _check_not_shared(desired)
        )
    except exception.HostError as error:
        raise _NotExtended(f"{error}") from error
    state = entry.filesystem
    if state is not None and state.error is not None:
        raise _NotExtended(f"Volume {desired['volume_id']}: {state.describe()}")
    if before is not None and state is not None and state.size > before.size > 0:
        LOG.info("Volume %s: its %s has %d bytes", entry.volume_id, state.type, state.size)


def _check_not_shared(desired: DesiredState) -> None:
    """Check that no other host may have mounted the volume; raises HostError."""
    if desired.get("shared", True):
        raise exception.HostError(
            reason="another host has the volume too, and one that has mounted it would destroy a "
            "file system that grows here. It grows when the volume is detached there."
        )


def _connection_info(desired: DesiredState) -> dict[str, Any]:
    """Return the connection with the keys of os-brick's guard for shared targets."""
    guard_keys = {key: desired[key] for key in ("shared_targets", "service_uuid")}
    return {**desired["connection_info"], **(guard_keys if desired["service_uuid"] else {})}


def _mode_of(info: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if name == "access_mode"}


def _with_secrets(host: str, desired: DesiredState, entry: Entry | None) -> dict[str, Any]:
    """Return the connection with its secrets, which the service gives to a host once.

    :raises HostError: the journal does not have them
    """
    info = _connection_info(desired)
    if not desired["secrets_withheld"]:
        return info
    stored = entry and entry.connection_info
    if stored and {**redact(stored), **_mode_of(info)} == info:
        return {**stored, **_mode_of(info)}
    raise exception.HostError(
        reason=f"The journal of host {host} does not have the secrets of the connection of volume "
        f"{desired['volume_id']}, and a host gets them once. Detach the volume and attach it "
        "again."
    )
