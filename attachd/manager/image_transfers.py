# SPDX-License-Identifier: Apache-2.0
"""Write other images to volumes, and make images of volumes; creation is in volumes.py.

As there, the row says what is to be done.
"""

import dataclasses
from typing import Any

from oslo_log import log
from taskflow.patterns.linear_flow import Flow

from attachd import exception
from attachd.db.row_types import DriverVolumeRow
from attachd.db.volumes import volume_store
from attachd.manager import (
    backends,
    compute_events,
    flow_runner,
    snapshot_uploads,
    upload_images,
    volumes,
)
from attachd.manager.backends import Backend
from attachd.manager.flows import volume as volume_flows
from attachd.states import Event, VolumeState

LOG = log.getLogger(__name__)


def reimage(backend: Backend, volume_id: str) -> None:
    """Do as :func:`run_reimage` in a background task."""
    backend.background_tasks.submit(volume_id, lambda: run_reimage(backend, volume_id))


def upload(backend: Backend, volume_id: str) -> None:
    """Do as :func:`run_upload`, or as of a volume in use, in a background task."""
    with volumes.ignore_missing(volume_id):
        row = volume_store.get_for_driver(volume_id)
        if row["owner"] is None and row["upload_image_id"]:
            snapshot_uploads.upload(backend, row["upload_image_id"])
        else:
            backend.background_tasks.submit(volume_id, lambda: run_upload(backend, volume_id))


def run_reimage(backend: Backend, volume_id: str) -> None:
    """Make the volume anew with the data of the row's image; or it is in ``error``.

    It is empty then, or has its former data if the image was refused before.  While the backend or
    the Image service is away, it is left to recovery, with its former data if that is still there.
    """
    with volumes.ignore_missing(volume_id), backend.lock(volume_id) as volume_lease:
        row = volumes.get_in_state(volume_id, VolumeState.DOWNLOADING)
        if row is None:
            return
        try:
            backend.check_ready()
            image_id = row["image_id"]
            assert image_id is not None, "a volume that gets an image has its id"
            flow = volume_flows.build_reimage(backend.driver, backends.volume_ref(row), image_id)
            with volumes.progress_scope(row):
                provided = flow_runner.run(flow, {})
        except volumes.FAILURES as failure:
            if _is_tried_again(volume_id, failure):
                return
            values = volumes.without_progress(row)
            if not _has_former_data(failure):
                values = _make_empty(backend, row)
            expected = {"image_id": row["image_id"]}
            volumes.record_failure(volume_lease, Event.REIMAGE_FAILED, failure, expected, **values)
            return
        notified = compute_events.reimaged_recorder()
        values = {**_stored(provided), **volumes.NO_ERROR, **volumes.without_progress(row)}
        after = volumes.record_result(
            *(volume_lease, Event.REIMAGED, values, notified), expected={"image_id": image_id}
        )
        if after is not None and notified is not None:
            compute_events.send_due(volume_id)


def _has_former_data(failure: Exception) -> bool:
    return not isinstance(failure, flow_runner.FlowFailed) or failure.clean


def _is_tried_again(volume_id: str, failure: Exception) -> bool:
    """Return whether recovery tries again: the row has the properties of the new image already."""
    if volumes.is_left_to_recovery(volume_id, failure):
        return True
    is_away = isinstance(volumes.cause_of(failure), exception.ImageServiceUnavailable)
    if is_away and _has_former_data(failure):
        LOG.warning("Volume %s: left to recovery: %s", volume_id, failure)
        return True
    return False


def _stored(provided: dict[str, Any]) -> dict[str, Any]:
    provider, secrets = backends.split_secrets(provided["answer"])
    return {"provider": provider, **secrets}


def _make_empty(backend: Backend, row: DriverVolumeRow) -> dict[str, Any]:
    """Create the volume without data, after a failure has left none; return what is stored."""
    empty = dataclasses.replace(backends.volume_ref(row), provider={}, provider_secrets={})
    values: dict[str, Any] = volumes.without_progress(row)
    try:
        backend.check_ready()
        flow = volume_flows.build_create(backend.driver, empty)
        return {**values, **_stored(flow_runner.run(flow, {}))}
    except volumes.FAILURES as failure:
        LOG.warning("Volume %s: is missing at its backend: %s", row["id"], failure)
        return values


def run_upload(backend: Backend, volume_id: str) -> None:
    """Send the volume to the row's image; without success the image is deleted.

    While the backend is away, or the image cannot be deleted, it is left to recovery.
    """
    with volumes.ignore_missing(volume_id), backend.lock(volume_id) as volume_lease:
        row = volumes.get_in_state(volume_id, VolumeState.UPLOADING)
        if row is None:
            return
        image_id = row["upload_image_id"]
        assert image_id is not None, "a volume that is uploaded has the id of the image"

        def build() -> Flow:
            backend.check_ready()
            return volume_flows.build_export(backend.driver, backends.volume_ref(row), image_id)

        requested_at = row["updated_at"] or row["created_at"]
        event = upload_images.send(row, image_id, requested_at, volume_lease, build)
        if event is None:
            return
        values: dict[str, Any] = {"upload_image_id": None}
        if event is Event.UPLOADED:
            values |= volumes.NO_ERROR
        volumes.record_result(
            *(volume_lease, event, values), expected={"upload_image_id": image_id}
        )
