# SPDX-License-Identifier: Apache-2.0
"""Volumes of images; with an image cache, the data of an image is read once for many of them.

An entry of the cache is a volume of an internal project, and volumes of the image are clones of
it.  Its id is made of the backend, the pool, the type, the image and the image's version: of the
managers that want an entry, the one that inserts the row fills it, and the others wait.  A manager
that dies leaves an entry that is created, as any volume, by recovery.

The cache saves work, and nothing depends on it: where it is full or fails, a volume gets its image
as without it.  Whether a user may use an image, the Image service decides before.
"""

import time
from typing import Final
import uuid

from oslo_log import log
from oslo_utils import units
from taskflow.flow import Flow

from attachd import exception
from attachd.db.attachments.connect_rules import READONLY
from attachd.db.row_types import DriverVolumeRow
from attachd.db.volumes import image_cache_entries, volume_store
from attachd.db.volumes.image_cache_entries import Entry, Outcome
from attachd.drivers import base
from attachd.drivers.abilities import Clone, CloneImage, DirectAccess
from attachd.images import checks
from attachd.images.glance import Image, ImageApi
from attachd.manager import backends, volumes
from attachd.manager.backends import Backend, ImageCacheLimits
from attachd.manager.background_tasks import Later
from attachd.manager.flows import volume as volume_flows
from attachd.states import Event, VolumeState

LOG = log.getLogger(__name__)

_NAMESPACE: Final = uuid.UUID("5c0f2c0b-1a53-4b0f-9a63-4f6f0c9a7c1e")
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 3.0
"""Seconds between two reads of the row of an entry that another thread or process fills."""

_FAILED: Final = frozenset({VolumeState.ERROR, VolumeState.ERROR_DELETING})


class _EntryPendingError(Exception):
    """Another thread or process fills the entry of an image.

    :ivar entry_id: the id of the entry
    """

    def __init__(self, entry_id: str) -> None:
        self.entry_id = entry_id
        super().__init__(entry_id)


def copy(backend: Backend, volume_id: str) -> None:
    """Create a volume of an image in a background task."""
    backend.background_tasks.submit(volume_id, Creation(backend, volume_id).run)


class Creation:
    """The creation of the volume of an image, or of an entry.

    :param volume_id: of either; its row becomes ``ready``, or ``error``
    """

    def __init__(self, backend: Backend, volume_id: str) -> None:
        self._backend = backend
        self._volume_id = volume_id
        self._entry_id: str | None = None
        self._wait_until = 0.0
        self._pause = _FIRST_PAUSE

    def run(self) -> Later | None:
        """Create it; or return how long it waits for an entry that is filled, without a lock."""
        if self._is_entry_pending():
            return self._wait()
        try:
            volumes.create(self._backend, self._volume_id, self._build_flow)
        except _EntryPendingError as pending:
            self._entry_id = pending.entry_id
            return self._wait()
        return None

    def _build_flow(self, backend: Backend, row: DriverVolumeRow) -> Flow:
        limits = backend.image_cache
        if limits is not None and not self._wait_until:
            self._wait_until = time.monotonic() + limits.timeout
        try:
            return _build_from_cache(backend, row)
        except _EntryPendingError:
            if time.monotonic() < self._wait_until:
                raise
        LOG.warning("Volume %s: made without the image cache: it takes too long", row["id"])
        return _build_import(backend, row)

    def _is_entry_pending(self) -> bool:
        if self._entry_id is None or time.monotonic() >= self._wait_until:
            return False
        return _is_pending(self._backend, self._entry_id)

    def _wait(self) -> Later:
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        return Later(pause)


def _build_from_cache(backend: Backend, row: DriverVolumeRow) -> Flow:
    """Return the flow that clones an entry, which it may have to fill before; else an import.

    No failure of the cache is one of the volume, which has no flow yet that could end it.

    :raises _EntryPendingError: another thread or process fills the entry
    """
    image_id, ref = row["image_id"], backends.volume_ref(row)
    assert image_id is not None, "a volume of an image has its id"
    entry = None
    try:
        entry = _find_entry(backend, row, image_id)
    except _EntryPendingError:
        raise
    except exception.AttachdError as error:
        LOG.warning("Volume %s: made without the image cache: %s", row["id"], error)
    except Exception:
        LOG.exception("Volume %s: made without the image cache", row["id"])
    if entry is None:
        return _build_import(backend, row)
    source = backends.volume_ref(entry)
    return volume_flows.build_clone_of_image(backend.driver, ref, image_id, source)


def _build_import(backend: Backend, row: DriverVolumeRow) -> Flow:
    ref, image_id = backends.volume_ref(row), str(row["image_id"])
    return volume_flows.build_import(backend.driver, ref, image_id)


def _find_entry(backend: Backend, row: DriverVolumeRow, image_id: str) -> DriverVolumeRow | None:
    """Return an entry with the image, which is kept for the volume; None: there is none."""
    limits = backend.image_cache
    if limits is None or row["project_id"] == image_cache_entries.PROJECT:
        return None
    if not isinstance(backend.driver, Clone) or not isinstance(backend.driver, DirectAccess):
        return None
    image = ImageApi.of_service().get(image_id)
    checks.check_usable(image, row["size_gib"])
    size_gib = find_size(image)
    if size_gib is None or _is_cloned_by_storage(backend.driver, image):
        return None
    entry = describe(row, image)
    _remove_stale(backend, row, entry)
    if not _provide(backend, row, entry, size_gib, limits):
        return None
    if not image_cache_entries.use(entry, row["id"]):
        return None
    LOG.info("Volume %s: made of image %s in the cache, %s", row["id"], image_id, entry.id)
    return volume_store.get_for_driver(entry.id)


def _is_cloned_by_storage(driver: base.Driver, image: Image) -> bool:
    """Return whether the backend may copy an image inside of its storage, without the cache."""
    is_able = isinstance(driver, CloneImage) and driver.clones_images
    return is_able and image.disk_format in checks.PLAIN


def find_size(image: Image) -> int | None:
    """Return the GiB of the entry of an image; None: it is not known before the conversion."""
    if image.disk_format not in checks.PLAIN and not image.virtual_size:
        return None
    needed = max(image.size, image.virtual_size or 0)
    return max(-(-needed // units.Gi), image.min_disk)


def describe(row: DriverVolumeRow, image: Image) -> Entry:
    """Return the entry of an image for volumes as that of a row.

    Volumes of another type or in another pool have another entry: the driver may have made it in
    another form.  A changed image has another entry as well.
    """
    version = f"{image.updated_at} {image.hash_value or image.checksum}"
    parts = (row["host"], row["volume_type_id"], image.id, image.disk_format, version)
    return Entry(str(uuid.uuid5(_NAMESPACE, "\n".join(map(str, parts)))), image.id, version)


def _provide(
    backend: Backend,
    row: DriverVolumeRow,
    entry: Entry,
    size_gib: int,
    limits: ImageCacheLimits,
) -> bool:
    """Have an entry with the data of its image; False: there is none.

    :raises _EntryPendingError: another thread or process fills it
    """
    outcome = _add(backend, row, entry, size_gib, limits)
    if outcome is Outcome.FULL:
        LOG.info("Image %s: there is no space in the cache of %s", entry.image_id, backend.name)
        return False
    if outcome is Outcome.ADDED:
        volumes.create(backend, entry.id)
    elif _is_pending(backend, entry.id):
        raise _EntryPendingError(entry.id)
    found = image_cache_entries.find(entry.id, backend.membership.id)
    if found is not None and found["state"] in _FAILED:
        _remove(backend, entry.id)
    return found is not None and found["state"] == VolumeState.READY


def _add(
    backend: Backend,
    row: DriverVolumeRow,
    entry: Entry,
    size_gib: int,
    limits: ImageCacheLimits,
) -> Outcome:
    """Insert an entry; where the cache is full, others are removed before."""
    values = {
        "id": entry.id,
        "name": f"image-{entry.image_id}",
        "description": entry.version,
        "size_gib": size_gib,
        "image_id": entry.image_id,
        "volume_type_id": row["volume_type_id"],
        "host": row["host"],
        "availability_zone": row["availability_zone"],
        "admin_metadata": {READONLY: "True"},
        "lease_holder": backend.membership.id,
    }
    if 0 < limits.gib < size_gib:
        return Outcome.FULL
    outcome = image_cache_entries.add(values, limits.entries, limits.gib)
    if outcome is not Outcome.FULL:
        return outcome
    for other in image_cache_entries.list_of_backend(backend.host, backend.membership.id):
        if _remove(backend, other["id"]):
            outcome = image_cache_entries.add(values, limits.entries, limits.gib)
        if outcome is not Outcome.FULL:
            break
    return outcome


def _is_pending(backend: Backend, entry_id: str) -> bool:
    """Return whether another thread or process fills an entry."""
    found = image_cache_entries.find(entry_id, backend.membership.id)
    return found is not None and found["state"] == VolumeState.CREATING and not found["abandoned"]


def _remove_stale(backend: Backend, row: DriverVolumeRow, entry: Entry) -> None:
    """Remove the entries with a former version of an image."""
    for other in image_cache_entries.list_of_backend(backend.host, backend.membership.id):
        if other["image_id"] == entry.image_id and other["description"] != entry.version:
            LOG.info("Volume %s: image %s has changed", row["id"], entry.image_id)
            _remove(backend, other["id"])


def _remove(backend: Backend, entry_id: str) -> bool:
    """Remove an entry; False: it is filled, cloned, used or removed at this moment."""
    try:
        volume_store.transition(entry_id, Event.DELETE)
    except (exception.InvalidTransition, exception.InvalidVolume, exception.VolumeNotFound):
        return False
    LOG.info("Backend %s: removing %s from the image cache", backend.name, entry_id)
    volumes.delete(backend, entry_id)
    return True
