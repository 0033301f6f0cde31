# SPDX-License-Identifier: Apache-2.0
"""Create, delete and extend volumes: the flow, and the row after.

The API has written the row and named its owner before it sent the message.  A message that
comes twice, or late, finds the row in another state and does nothing.
"""

from collections.abc import Mapping
from typing import Any

from oslo_log import log
from oslo_utils import timeutils

from attachd import exception
from attachd.db import attachments as attachments_db
from attachd.db import volumes as db
from attachd.manager import attachments, engine
from attachd.manager.backends import Backend
from attachd.manager.flows import create as create_flow
from attachd.manager.flows import delete as delete_flow
from attachd.manager.flows import extend as extend_flow
from attachd.states import Event, VolumeState

LOG = log.getLogger(__name__)

_NO_ERROR = {"error": None, "new_size_gib": None}


def create(backend: Backend, volume_id: str) -> None:
    """Make the volume; its row becomes ``ready``, or ``error`` with the reason."""
    with backend.lock(volume_id):
        row = _row_to_work_on(volume_id, VolumeState.CREATING)
        if row is None:
            return
        ref = attachments.volume_ref(row)
        try:
            backend.check_ready()
            made = engine.run(create_flow.build(backend.driver, ref), {})
        except (engine.Failed, exception.Unavailable) as failed:
            _note(volume_id, Event.CREATE_FAILED, _failure(failed))
            return
        values = {"provider": made["provider"], "launched_at": timeutils.utcnow()}
        _note(volume_id, Event.CREATED, {**values, **_NO_ERROR})


def delete(backend: Backend, volume_id: str) -> None:
    """Remove the volume and its row; or the row becomes ``error_deleting`` with the reason."""
    with backend.lock(volume_id):
        gone = _delete(backend, volume_id)
    if gone:
        backend.forget_lock(volume_id)


def _delete(backend: Backend, volume_id: str) -> bool:
    """Tell whether nothing is left."""
    row = _row_to_work_on(volume_id, VolumeState.DELETING)
    if row is None:
        return False
    try:
        backend.check_ready()
        engine.run(delete_flow.build(backend.driver, attachments.volume_ref(row)), {})
    except (engine.Failed, exception.Unavailable) as failed:
        _note(volume_id, Event.DELETE_FAILED, _failure(failed))
        return False
    return _note(volume_id, Event.DELETED, {})


def extend(backend: Backend, volume_id: str) -> None:
    """Grow the volume to its row's ``new_size_gib``; or it becomes ``error_extending``."""
    with backend.lock(volume_id):
        row = _row_to_work_on(volume_id, VolumeState.EXTENDING)
        if row is None:
            return
        size_gib = row["new_size_gib"]
        exports = attachments.live_exports(attachments_db.of_volumes([volume_id]))
        flow = extend_flow.build(backend.driver, attachments.volume_ref(row), size_gib, exports)
        try:
            backend.check_ready()
            engine.run(flow, {})
        except (engine.Failed, exception.Unavailable) as failed:
            _note(volume_id, Event.EXTEND_FAILED, _failure(failed))
            return
        _note(volume_id, Event.EXTENDED, {"size_gib": size_gib, **_NO_ERROR})


def _row_to_work_on(volume_id: str, expected: VolumeState) -> db.Row | None:
    """Return the row if it still waits for this work, or None."""
    try:
        row = db.get(volume_id, None)
    except exception.VolumeNotFound:
        LOG.info("Volume %s is gone, nothing to do", volume_id)
        return None
    if row["state"] != expected:
        LOG.info("Volume %s is %s and not %s, nothing to do", volume_id, row["state"], expected)
        return None
    return row


def _failure(failed: Exception) -> dict[str, Any]:
    cause = failed.cause if isinstance(failed, engine.Failed) else failed
    return {"error": engine.reason(cause)}


def _note(volume_id: str, event: Event, values: Mapping[str, Any]) -> bool:
    """Store how it ended; False where somebody else has changed the row meanwhile."""
    if values.get("error"):
        LOG.warning("Volume %s did %s: %s", volume_id, event.value, values["error"])
    try:
        db.move(volume_id, event, {**values, "owner": None})
    except (exception.InvalidTransition, exception.NotFound):
        LOG.warning("Volume %s was changed by somebody else; left as it is", volume_id)
        return False
    return True
