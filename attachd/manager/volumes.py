# SPDX-License-Identifier: Apache-2.0
"""Create, copy, delete and extend volumes: the flow, and the row after.

The API has written the row and named its owner before it sent the message.  A message that
comes twice, or late, finds the row in another state and does nothing.
"""

from oslo_utils import timeutils
from taskflow.patterns.linear_flow import Flow

from attachd.db import attachments as attachments_db
from attachd.manager import driver_args, flow_runner, notify, outcomes
from attachd.manager.backends import Backend, Turn
from attachd.manager.flows import create as create_flow
from attachd.manager.flows import delete as delete_flow
from attachd.manager.flows import extend as extend_flow
from attachd.states import Event, VolumeState


def copy(backend: Backend, volume_id: str) -> None:
    """Do as :func:`create`, soon and for as long as it takes: the volume is a copy of another."""
    backend.long_work.begin(volume_id, lambda: create(backend, volume_id))


def create(backend: Backend, volume_id: str) -> None:
    """Make the volume; its row becomes ``ready``, or ``error`` with the reason."""
    with outcomes.unless_gone(volume_id), backend.lock(volume_id) as turn:
        row = outcomes.due(volume_id, VolumeState.CREATING)
        if row is None:
            return
        notify.of_volume(backend, "create.start", row)
        try:
            backend.check_ready()
            made = flow_runner.run(_making(backend, row), {})
        except outcomes.FAILURES as failed:
            outcomes.fail(turn, Event.CREATE_FAILED, failed)
            return
        values = {
            "provider": made["provider"],
            "launched_at": timeutils.utcnow(),
            "shared_targets": backend.driver.SHARED_TARGETS,
        }
        if after := outcomes.note(turn, Event.CREATED, {**values, **outcomes.NO_ERROR}):
            notify.of_volume(backend, "create.end", row, **after)


def _making(backend: Backend, row: outcomes.Row) -> Flow:
    """Return the flow that makes a volume; raises VolumeNotFound if its source is gone."""
    ref, source = driver_args.volume_ref(row), outcomes.source_of(row)
    if source is None:
        return create_flow.build(backend.driver, ref)
    return create_flow.build_copy(backend.driver, ref, driver_args.volume_ref(source))


def delete(backend: Backend, volume_id: str) -> None:
    """Remove the volume and its row; or the row becomes ``error_deleting`` with the reason."""
    with outcomes.unless_gone(volume_id), backend.lock(volume_id) as turn:
        if _delete(backend, volume_id, turn):
            backend.forget_turn(volume_id)


def _delete(backend: Backend, volume_id: str, turn: Turn) -> bool:
    """Tell whether nothing is left."""
    row = outcomes.due(volume_id, VolumeState.DELETING)
    if row is None:
        return False
    notify.of_volume(backend, "delete.start", row)
    try:
        backend.check_ready()
        flow_runner.run(delete_flow.build(backend.driver, driver_args.volume_ref(row)), {})
    except outcomes.FAILURES as failed:
        outcomes.fail(turn, Event.DELETE_FAILED, failed)
        return False
    if outcomes.note(turn, Event.DELETED, {}) is None:
        return False
    notify.of_volume(backend, "delete.end", row, status="deleted")
    return True


def extend(backend: Backend, volume_id: str) -> None:
    """Grow the volume to its row's ``new_size_gib``; or it becomes ``error_extending``."""
    with outcomes.unless_gone(volume_id), backend.lock(volume_id) as turn:
        row = outcomes.due(volume_id, VolumeState.EXTENDING)
        if row is None:
            return
        size_gib = row["new_size_gib"]
        attached = attachments_db.of_volumes([volume_id])
        notify.of_volume(backend, "resize.start", row, attached)
        live = driver_args.live(attached)
        flow = extend_flow.build(backend.driver, driver_args.volume_ref(row), size_gib, live)
        try:
            backend.check_ready()
            flow_runner.run(flow, {})
        except outcomes.FAILURES as failed:
            outcomes.fail(turn, Event.EXTEND_FAILED, failed)
            return
        if after := outcomes.note(
            turn, Event.EXTENDED, {"size_gib": size_gib, **outcomes.NO_ERROR}
        ):
            notify.of_volume(backend, "resize.end", row, attached, **after)
            notify.agents_of(attached)
