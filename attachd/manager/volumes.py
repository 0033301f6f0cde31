# SPDX-License-Identifier: Apache-2.0
"""Create, copy, delete, extend, manage and unmanage volumes: the flow, and the row after it.

The API has stored the row, with the operation that is to be done, before it sent the message.  A
duplicate or late message finds the row in another state and does nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
from typing import Any, Final

from oslo_log import log
from oslo_utils import units
from taskflow.patterns.linear_flow import Flow

from attachd import exception
from attachd.db import models
from attachd.db.attachments import attachment_store
from attachd.db.audit import list_attachments_of_volume
from attachd.db.row_types import AttachmentRow, DriverVolumeRow, VolumeRow
from attachd.db.volumes import snapshot_store, volume_store, volume_updates
from attachd.drivers.abilities import ManageExisting, PersistentReservations
from attachd.manager import (
    backends,
    compute_events,
    copy_progress,
    flow_runner,
    notify,
    snapshots,
)
from attachd.manager.backends import Backend
from attachd.manager.flows import snapshot as snapshot_flows
from attachd.manager.flows import volume as volume_flows
from attachd.manager.ownership.volume_lease import VolumeLease
from attachd.rpc import manager_api
from attachd.states import Event, SnapshotState, VolumeState

LOG = log.getLogger(__name__)

FAILURES: Final = (
    *(flow_runner.FlowFailed, exception.Unavailable, exception.VolumeNotFound),
    *(exception.SnapshotNotFound, exception.AbilityMissing, exception.BackendError),
)
"""The errors that end an operation on a volume and are stored in its row."""

NO_ERROR: Final[Mapping[str, Any]] = {"error": None, "new_size_gib": None}
"""The values that are stored beside the result of an operation that succeeded."""


def copy(backend: Backend, volume_id: str) -> None:
    """Do as :func:`create` in a background task: copying a volume or image may take hours."""
    backend.background_tasks.submit(volume_id, lambda: create(backend, volume_id))


FlowBuilder = Callable[[Backend, DriverVolumeRow], Flow]


def create(backend: Backend, volume_id: str, build: FlowBuilder | None = None) -> None:
    """Create the volume; its row becomes ``ready``, or ``error`` with the reason.

    :param build: returns the flow; None: the one for the source or the image in the row
    """
    with ignore_missing(volume_id), backend.lock(volume_id) as volume_lease:
        row = get_in_state(volume_id, VolumeState.CREATING)
        if row is None:
            return
        notify.volume_event(backend, "create.start", row)
        try:
            backend.check_ready()
            with progress_scope(row):
                provided = flow_runner.run((build or _create_flow)(backend, row), {})
        except FAILURES as failure:
            record_failure(volume_lease, Event.CREATE_FAILED, failure, **_without_entry(row))
            return
        provider, secrets = backends.split_secrets(provided["answer"])
        values = {
            "provider": provider,
            **secrets,
            **without_progress(row),
            **_without_entry(row),
            "launched_at": models.now(),
            "shared_targets": backend.driver.SHARED_TARGETS,
        }
        if after := record_result(volume_lease, Event.CREATED, {**values, **NO_ERROR}):
            notify.volume_event(backend, "create.end", row, **after)


def _without_entry(row: DriverVolumeRow) -> dict[str, Any]:
    """Return the column that keeps an entry of the image cache while it is cloned, without it."""
    return {"source_volid": None} if row["image_id"] else {}


@contextlib.contextmanager
def progress_scope(row: DriverVolumeRow) -> Iterator[None]:
    """Store the progress that is reported in the block in the row of the volume."""
    volume_id = row["id"]
    admin_metadata = volume_updates.without_progress(row["admin_metadata"])

    def store(percent: int) -> None:
        volume_updates.set_progress(volume_id, admin_metadata, percent)

    with copy_progress.stored(f"Volume {volume_id}", store):
        yield


def without_progress(row: DriverVolumeRow) -> dict[str, Any]:
    """Return the column with the progress as it is when the work is over."""
    return {"admin_metadata": volume_updates.without_progress(row["admin_metadata"])}


def _create_flow(backend: Backend, row: DriverVolumeRow) -> Flow:
    """Return the flow that creates a volume, as a copy if it has a source or an image.

    :raises NotFound: the source, or the snapshot, does not exist any more
    """
    ref = backends.volume_ref(row)
    if row["image_id"]:
        return volume_flows.build_import(backend.driver, ref, row["image_id"])
    if row["snapshot_id"]:
        snapshot = snapshot_store.get(row["snapshot_id"], None)
        snapshotted = volume_store.get_for_driver(snapshot["volume_id"])
        source_ref = backends.snapshot_ref(snapshot, snapshotted)
        return snapshot_flows.build_volume(backend.driver, ref, source_ref)
    if not row["source_volid"]:
        return volume_flows.build_create(backend.driver, ref)
    source = volume_store.get_for_driver(row["source_volid"])
    return volume_flows.build_copy(backend.driver, ref, backends.volume_ref(source))


def delete(backend: Backend, volume_id: str) -> None:
    """Remove the volume and its row; or the row becomes ``error_deleting`` with the reason."""
    with ignore_missing(volume_id), backend.lock(volume_id) as volume_lease:
        if _delete(backend, volume_id, volume_lease):
            backend.delete_lock_files(volume_id)


def _delete(backend: Backend, volume_id: str, volume_lease: VolumeLease) -> bool:
    """Return whether the volume and its row were removed."""
    row = get_in_state(volume_id, VolumeState.DELETING)
    if row is None:
        return False
    notify.volume_event(backend, "delete.start", row)
    flow = volume_flows.build_delete(backend.driver, backends.volume_ref(row))
    try:
        backend.check_ready()
        if not snapshots.delete_all(backend, row):
            return False
        flow_runner.run(flow, {})
    except FAILURES as failure:
        record_failure(volume_lease, Event.DELETE_FAILED, failure)
        return False
    if record_result(volume_lease, Event.DELETED, {}) is None:
        return False
    notify.volume_event(backend, "delete.end", row, status="deleted")
    return True


def extend(backend: Backend, volume_id: str) -> None:
    """Extend the volume to its row's ``new_size_gib``; or it becomes ``error_extending``.

    After a failure with an unknown result the volume still has an owner, and recovery calls
    :func:`resolve_extend`.
    """
    with ignore_missing(volume_id), backend.lock(volume_id) as volume_lease:
        row = get_in_state(volume_id, VolumeState.EXTENDING)
        if row is None:
            return
        attachments = attachment_store.list_of_volumes([volume_id])
        notify.volume_event(backend, "resize.start", row, attachments)
        try:
            backend.check_ready()
            _run_extend(backend, row, attachments)
        except FAILURES as failure:
            cause = cause_of(failure)
            refused = isinstance(cause, exception.BackendError) and cause.final
            record_failure(
                volume_lease, Event.EXTEND_FAILED if refused else Event.EXTEND_LOST, failure
            )
            return
        _record_extended(backend, volume_lease, Event.EXTENDED, row, attachments)


def resolve_extend(backend: Backend, volume_id: str) -> None:
    """Finish an extend with an unknown result if the volume has grown; else the size stays.

    :raises AttachdError: its size is still not known
    """
    backend.check_ready()
    with ignore_missing(volume_id), backend.lock(volume_id) as volume_lease:
        row = get_in_state(volume_id, VolumeState.ERROR_EXTENDING)
        if row is None or row["owner"] is None:
            return
        size = backend.driver.find_size(backends.volume_ref(row))
        if size is None:
            raise exception.BackendError(f"Volume {volume_id} is missing.")
        if size <= row["size_gib"] * units.Gi:
            record_result(volume_lease, Event.EXTEND_RESOLVED, NO_ERROR)
            return
        attachments = attachment_store.list_of_volumes([volume_id])
        try:
            _run_extend(backend, row, attachments)  # Its exports may show the former size.
        except flow_runner.FlowFailed as failure:
            raise failure.cause from failure
        _record_extended(backend, volume_lease, Event.EXTEND_RESOLVED, row, attachments)


def _run_extend(
    backend: Backend, row: DriverVolumeRow, attachments: Sequence[AttachmentRow]
) -> None:
    ref, exports = backends.volume_ref(row), backends.live_exports(attachments)
    size_gib = row["new_size_gib"]
    assert size_gib is not None, "a volume that is extended has its new size"
    flow_runner.run(volume_flows.build_extend(backend.driver, ref, size_gib, exports), {})


def _record_extended(
    backend: Backend,
    volume_lease: VolumeLease,
    event: Event,
    row: DriverVolumeRow,
    attachments: Sequence[AttachmentRow],
) -> None:
    """Store the new size, with the events for the servers of the volume, and notify all."""
    values = {"size_gib": row["new_size_gib"], **NO_ERROR}
    notified = compute_events.recorder()
    if after := record_result(volume_lease, event, values, notified):
        notify.volume_event(backend, "resize.end", row, attachments, **after)
        notify.request_reconcile(attachments)
        if notified is not None:
            send = functools.partial(compute_events.send_due, row["id"])
            backend.background_tasks.submit(row["id"], send)


def manage(backend: Backend, volume_id: str) -> None:
    """Make a volume of an object; its row becomes ``ready``, or ``error_managing``.

    Until then the row has the reference of the object as ``provider``.  While the backend is away,
    it is left to recovery.
    """
    with ignore_missing(volume_id), backend.lock(volume_id) as volume_lease:
        row = get_in_state(volume_id, VolumeState.MANAGING)
        if row is None:
            return
        notify.volume_event(backend, "manage_existing.start", row)
        reference = row["provider"]
        new: DriverVolumeRow = {**row, "provider": {}}
        try:
            backend.check_ready()
            driver = _driver_to_manage(backend)
            flow = volume_flows.build_manage(driver, backends.volume_ref(new), reference)
            provided = flow_runner.run(flow, {})
        except FAILURES as failure:
            if not is_left_to_recovery(volume_id, failure):
                record_failure(volume_lease, Event.MANAGE_FAILED, failure, provider={})
            return
        provider, secrets = backends.split_secrets(provided["answer"])
        values = {
            "provider": provider,
            **secrets,
            "launched_at": models.now(),
            "shared_targets": backend.driver.SHARED_TARGETS,
        }
        if after := record_result(volume_lease, Event.MANAGED, {**values, **NO_ERROR}):
            notify.volume_event(backend, "manage_existing.end", row, **after)


def unmanage(backend: Backend, volume_id: str) -> None:
    """Remove the row and keep the data; or the row becomes ``error_unmanaging``.

    While the backend is away, it is left to recovery.
    """
    with ignore_missing(volume_id), backend.lock(volume_id) as volume_lease:
        row = get_in_state(volume_id, VolumeState.UNMANAGING)
        if row is None:
            return
        notify.volume_event(backend, "unmanage.start", row)
        try:
            backend.check_ready()
            driver = _driver_to_manage(backend)
            flow = volume_flows.build_unmanage(driver, backends.volume_ref(row))
            flow_runner.run(flow, {})
        except FAILURES as failure:
            if not is_left_to_recovery(volume_id, failure):
                record_failure(volume_lease, Event.UNMANAGE_FAILED, failure)
            return
        if record_result(volume_lease, Event.UNMANAGED, {}) is None:
            return
        notify.volume_event(backend, "unmanage.end", row, status="deleted")
        backend.delete_lock_files(volume_id)


def revert(backend: Backend, volume_id: str) -> None:
    """Do as :func:`run_revert` in a background task: many backends copy all data."""
    backend.background_tasks.submit(volume_id, lambda: run_revert(backend, volume_id))


def run_revert(backend: Backend, volume_id: str) -> None:
    """Give the volume the data of the snapshot that is being restored; or it is in ``error``.

    While the backend is away, it is left to recovery.
    """
    with ignore_missing(volume_id), backend.lock(volume_id) as volume_lease:
        row = get_in_state(volume_id, VolumeState.REVERTING)
        if row is None:
            return
        notify.volume_event(backend, "revert.start", row)
        try:
            backend.check_ready()
            flow_runner.run(_revert_flow(backend, row), {})
        except FAILURES as failure:
            if not is_left_to_recovery(volume_id, failure):
                record_failure(volume_lease, Event.REVERT_FAILED, failure)
            return
        if after := record_result(volume_lease, Event.REVERTED, NO_ERROR):
            notify.volume_event(backend, "revert.end", row, **after)


def _revert_flow(backend: Backend, row: DriverVolumeRow) -> Flow:
    for snapshot in snapshot_store.list_of_volume(row["id"]):
        if snapshot["state"] == SnapshotState.RESTORING:
            ref = backends.snapshot_ref(snapshot, row)
            return snapshot_flows.build_revert(backend.driver, ref)
    raise exception.BackendError("It has no snapshot that is being restored.", final=True)


def list_manageable(backend: Backend) -> list[dict[str, Any]]:
    """Return the volumes and the objects of a backend, as of manager_api.list_manageable()."""
    with _backend_answers(backend):
        found = _driver_to_manage(backend).list_manageable()
        return [dataclasses.asdict(item) for item in found]


def get_manageable(backend: Backend, reference: Mapping[str, str]) -> dict[str, Any]:
    """Return one of them, as of manager_api.get_manageable()."""
    with _backend_answers(backend):
        found = _driver_to_manage(backend).get_manageable(reference)
        return dataclasses.asdict(found)


def get_persistent_reservation(
    backend: Backend, volume_id: str
) -> manager_api.PersistentReservation | None:
    """Return which host reserves a volume, as of manager_api.get_persistent_reservation()."""
    driver = backend.driver
    if not isinstance(driver, PersistentReservations):
        raise exception.AbilityMissing(backend=backend.name, ability="persistent_reservations")
    volume = backends.volume_ref(volume_store.get_for_driver(volume_id))
    with _backend_answers(backend):
        found = driver.get_persistent_reservation(volume)
    if found is None:
        return None
    held: list[str] = []
    for row in list_attachments_of_volume(volume_id):
        if row["connector"] is not None:
            expected = driver.expected_exports(volume, [backends.export(row)])
            held += [row["id"] for item in expected if found.holder in item.holders]
    return {"holder": found.holder, "type": found.type, "attachment_ids": held}


def _driver_to_manage(backend: Backend) -> ManageExisting:
    """Return the driver.

    :raises AbilityMissing: it cannot manage objects
    """
    if not isinstance(backend.driver, ManageExisting):
        raise exception.AbilityMissing(backend=backend.name, ability="manage_existing")
    return backend.driver


@contextlib.contextmanager
def _backend_answers(backend: Backend) -> Iterator[None]:
    """Raise Unavailable while the backend does not answer."""
    backend.check_ready()
    try:
        yield
    except exception.BackendError as error:
        raise exception.Unavailable(
            reason=f"Backend {backend.name} does not answer: {flow_runner.public_reason(error)}"
        ) from error


@contextlib.contextmanager
def ignore_missing(volume_id: str) -> Iterator[None]:
    """Do nothing if the volume does not exist any more."""
    try:
        yield
    except exception.VolumeNotFound:
        LOG.info("Volume %s: does not exist any more, nothing to do", volume_id)


def get_in_state(volume_id: str, expected: VolumeState) -> DriverVolumeRow | None:
    """Return the row if it is in the expected state, or None."""
    try:
        row = volume_store.get_for_driver(volume_id)
    except exception.VolumeNotFound:
        LOG.info("Volume %s: does not exist any more, nothing to do", volume_id)
        return None
    if row["state"] != expected:
        LOG.info("Volume %s: is %s and not %s, nothing to do", volume_id, row["state"], expected)
        return None
    return row


def record_failure(
    volume_lease: VolumeLease,
    event: Event,
    failure: Exception,
    expected: Mapping[str, Any] | None = None,
    **values: Any,
) -> None:
    """Store the failure and a message to the user; unless another manager continues the work.

    :param expected: as of volume_store.transition()
    :param values: columns to store with it
    """
    if volume_lease.may_be_taken_over():
        return
    cause = cause_of(failure)
    stored = {"error": flow_runner.reason(cause), **values}
    if row := record_result(volume_lease, event, stored, expected=expected):
        notify.volume_message(row, event, cause)


def is_left_to_recovery(volume_id: str, failure: Exception) -> bool:
    """Return whether an operation failed because the backend is away: it is tried again."""
    cause = cause_of(failure)
    if not isinstance(cause, exception.BackendUnavailable | exception.BackendUnreachable):
        return False
    LOG.warning("Volume %s: left to recovery: %s", volume_id, flow_runner.reason(cause))
    return True


def cause_of(failure: Exception) -> Exception:
    """Return what the first failing task of a flow raised, or another error as it is."""
    return failure.cause if isinstance(failure, flow_runner.FlowFailed) else failure


def record_result(
    volume_lease: VolumeLease,
    event: Event,
    values: Mapping[str, Any],
    last: Callable[..., None] | None = None,
    expected: Mapping[str, Any] | None = None,
) -> VolumeRow | None:
    """Store the result and return the row; None if another process has changed the row.

    :param last: as of volume_store.transition()
    :param expected: as of volume_store.transition()
    """
    volume_id = volume_lease.token.volume_id
    if values.get("error"):
        step = event.name.lower().replace("_", " ")  # such as "create failed"
        LOG.warning("Volume %s: %s: %s", volume_id, step, values["error"])
    try:
        return volume_store.transition(
            *(volume_id, event, values, volume_lease.token, last), expected=expected
        )
    except (exception.InvalidTransition, exception.NotFound, exception.TakenOver):
        LOG.warning("Volume %s: changed by another process, left as it is", volume_id)
        return None
