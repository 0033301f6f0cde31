# SPDX-License-Identifier: Apache-2.0
"""Images that volumes are sent to, from the request until they have all data, or are deleted.

The row of a volume names its image as long as the image needs something.  If an upload fails, the
row gets the reason first: then the image is deleted, if need be by recovery, and the volume is
available when that is done.
"""

from collections.abc import Callable
import datetime

from oslo_log import log
from taskflow.patterns.linear_flow import Flow

from attachd import exception
from attachd.conf import CONF
from attachd.db import models
from attachd.db.row_types import VolumeRow
from attachd.db.volumes import volume_updates
from attachd.drivers import base
from attachd.images.glance import ImageApi
from attachd.manager import flow_runner, notify, volumes
from attachd.manager.ownership.volume_lease import VolumeLease
from attachd.states import Event

LOG = log.getLogger(__name__)


def send(
    volume: VolumeRow,
    image_id: str,
    requested_at: datetime.datetime,
    lease: VolumeLease,
    build: Callable[[], Flow],
) -> Event | None:
    """Send a volume to its image, or delete the image of an upload that has failed.

    :param requested_at: when the upload was stored, before the image was made
    :param lease: of the work
    :param build: returns the flow that sends the data
    :returns: how the upload has ended; None: it is left to recovery
    """
    if _may_be_made(image_id, requested_at):
        LOG.info("Image %s: may still be made, left to recovery", image_id)
        return None
    if volume["error"] is None:
        try:
            flow_runner.run(build(), {})
        except volumes.FAILURES as failure:
            if volumes.is_left_to_recovery(volume["id"], failure) or lease.may_be_taken_over():
                return None
            _fail(volume, image_id, failure)
        else:
            return Event.UPLOADED
    return Event.UPLOAD_FAILED if _delete(image_id) else None


def _may_be_made(image_id: str, requested_at: datetime.datetime) -> bool:
    """Return whether there is no image, and a request for it may still be on its way."""
    # A request may take this long, and one for a token before it.
    seconds = 2 * (CONF.glance.connect_timeout + CONF.glance.read_timeout)
    if models.now() - requested_at > datetime.timedelta(seconds=seconds):
        return False
    try:
        ImageApi.of_service().get(image_id)
    except exception.ImageNotFound:
        return True
    except exception.AttachdError:
        return False  # The upload fails for that reason, or the deletion does.
    return False


def _fail(volume: VolumeRow, image_id: str, failure: Exception) -> None:
    """Store the reason of a failure, and a message to the user."""
    cause = volumes.cause_of(failure)
    reason = flow_runner.reason(cause)
    LOG.warning("Volume %s: upload failed: %s", volume["id"], reason)
    if volume_updates.fail_upload(volume["id"], image_id, reason):
        notify.volume_message(volume, Event.UPLOAD_FAILED, cause)


def _delete(image_id: str) -> bool:
    """Delete an image; False: that is left to recovery."""
    try:
        base.check_still_owner()
        ImageApi.of_service().delete(image_id)
    except (exception.Forbidden, exception.Conflict, exception.BadRequest) as error:
        LOG.warning("Image %s: is left without data, delete it: %s", image_id, error)
    except exception.AttachdError as error:
        LOG.warning("Image %s: has no data, its deletion is left to recovery: %s", image_id, error)
        return False
    return True


def discard(image_id: str) -> None:
    """Delete the image of an upload that was reset, unless it has all its data."""
    try:
        ImageApi.of_service().delete_without_data(image_id)
    except exception.AttachdError as error:
        LOG.warning("Image %s: may be left without data, delete it: %s", image_id, error)
