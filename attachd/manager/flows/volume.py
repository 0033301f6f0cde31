# SPDX-License-Identifier: Apache-2.0
"""Flows that create, copy, delete, extend, manage and unmanage a volume."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
import dataclasses
import time
from typing import Any, Final

from oslo_log import log
from taskflow import task
from taskflow.patterns import linear_flow

from attachd import exception
from attachd.conf import CONF
from attachd.drivers import base
from attachd.drivers.abilities import (
    Clone,
    CloneImage,
    DirectAccess,
    ManageExisting,
    OnlineExtend,
    StoredImage,
    VolumeData,
)
from attachd.drivers.base import Driver, Export, VolumeRef, WithSecrets
from attachd.images import checks, conversion, upload
from attachd.images.glance import CHUNK, Image, ImageApi

LOG = log.getLogger(__name__)

_PAUSE: Final = 2.0
"""Seconds before the data of an image is sent again."""

CreateAnswer = dict[str, Any] | WithSecrets[dict[str, Any]]


def build_create(driver: Driver, volume: VolumeRef) -> linear_flow.Flow:
    """Return the flow; it provides ``answer``, that of the driver."""
    return linear_flow.Flow("create").add(Create(driver, volume))


def build_copy(driver: Driver, volume: VolumeRef, source: VolumeRef) -> linear_flow.Flow:
    """Return the flow for a copy of another volume; it provides the same."""
    return linear_flow.Flow("copy").add(Copy(driver, volume, source))


def build_import(driver: Driver, volume: VolumeRef, image_id: str) -> linear_flow.Flow:
    """Return the flow for a volume with the data of an image; it provides the same."""
    return linear_flow.Flow("import").add(Import(driver, volume, image_id))


def build_reimage(driver: Driver, volume: VolumeRef, image_id: str) -> linear_flow.Flow:
    """Return the flow that gives a volume the data of another image; it provides the same.

    After a failure it is clean if the volume has its former data.
    """
    return linear_flow.Flow("reimage").add(Reimage(driver, volume, image_id))


def build_clone_of_image(
    driver: Driver, volume: VolumeRef, image_id: str, entry: VolumeRef
) -> linear_flow.Flow:
    """Return the flow for a volume that is a clone of an entry of the image cache.

    It provides the same as :func:`build_import`, which it does if the entry cannot be cloned.
    """
    return linear_flow.Flow("clone image").add(CloneOfImage(driver, volume, image_id, entry))


def build_export(driver: Driver, volume: VolumeRef, image_id: str) -> linear_flow.Flow:
    """Return the flow that sends a volume to an image; it provides nothing."""
    return linear_flow.Flow("export").add(Upload(driver, volume, image_id))


def build_delete(driver: Driver, volume: VolumeRef) -> linear_flow.Flow:
    """Return the flow; it provides nothing."""
    return linear_flow.Flow("delete").add(Delete(driver, volume))


def build_extend(
    driver: Driver, volume: VolumeRef, size_gib: int, exports: Sequence[Export]
) -> linear_flow.Flow:
    """Return the flow; it provides nothing.

    :param exports: of the hosts that use the volume meanwhile
    """
    return linear_flow.Flow("extend").add(Extend(driver, volume, size_gib, exports))


def build_manage(
    driver: ManageExisting, volume: VolumeRef, reference: Mapping[str, str]
) -> linear_flow.Flow:
    """Return the flow; it provides ``answer``, the driver's data about the volume."""
    return linear_flow.Flow("manage").add(Manage(driver, volume, reference))


def build_unmanage(driver: ManageExisting, volume: VolumeRef) -> linear_flow.Flow:
    """Return the flow; it provides nothing."""
    return linear_flow.Flow("unmanage").add(Unmanage(driver, volume))


class _VolumeTask(task.Task):
    """A task that calls a driver for one volume."""

    def __init__(self, driver: Driver, volume: VolumeRef) -> None:
        super().__init__()
        self._driver = driver
        self._volume = volume


class Create(_VolumeTask):
    """The backend creates the volume."""

    default_provides = "answer"

    def execute(self) -> CreateAnswer:
        """Create; see drivers.base.Driver.create()."""
        return self._driver.create(self._volume)

    def revert(self, **_flow: Any) -> bool:
        """Remove what was created."""
        try:
            self._driver.delete(self._volume)
        except Exception:
            LOG.exception("Volume %s: a part of it may be left at the backend", self._volume.id)
            return False
        return True


class Copy(Create):
    """The backend creates the volume as a copy of another one."""

    def __init__(self, driver: Driver, volume: VolumeRef, source: VolumeRef) -> None:
        super().__init__(driver, volume)
        self._source = source

    def execute(self) -> CreateAnswer:
        """Clone; see drivers.abilities.Clone."""
        if not isinstance(self._driver, Clone):
            raise exception.BackendError(
                f"Backend {self._driver.name} cannot clone volumes.", final=True
            )
        return self._driver.clone(self._volume, self._source)


class Import(Create):
    """The backend creates the volume, and the manager writes an image to it."""

    def __init__(self, driver: Driver, volume: VolumeRef, image_id: str) -> None:
        super().__init__(driver, volume)
        self._image_id = image_id

    def execute(self) -> CreateAnswer:
        """Create, and write, if the image can be used now."""
        if not isinstance(self._driver, DirectAccess):
            raise exception.BackendError(
                f"Backend {self._driver.name} cannot make volumes of images.", final=True
            )
        api = ImageApi.of_service()
        for remaining in reversed(range(CONF.glance.transfer_retries + 1)):
            try:
                image = api.get(self._image_id)
                checks.check_usable(image, self._volume.size_gib)
                self._delete()
                answer = self._clone(api, image) or self._copy(self._driver, api, image)
            except exception.ImageServiceUnavailable as error:
                if not remaining:
                    raise
                LOG.warning("Volume %s: starting again: %s", self._volume.id, error)
            else:
                break
        return answer

    def _delete(self) -> None:
        """Delete what an interrupted attempt has written."""
        self._driver.delete(self._volume)

    def _copy(self, driver: DirectAccess, api: ImageApi, image: Image) -> CreateAnswer:
        answer = self._driver.create(_without_answer(self._volume))
        with driver.open_data(_with_answer(self._volume, answer), "rw") as data:
            conversion.write_image(api, image, data, self._volume.size_gib, _step)
        return answer

    def _clone(self, api: ImageApi, image: Image) -> CreateAnswer | None:
        """Make the volume of an image in the storage of the backend; None: it is not there."""
        driver = self._driver
        if not isinstance(driver, CloneImage) or not driver.clones_images:
            return None
        if image.disk_format not in checks.PLAIN:
            return None
        stored = StoredImage(image.id, image.size, api.list_locations(image))
        answer = driver.clone_image(_without_answer(self._volume), stored)
        if answer is not None and isinstance(driver, DirectAccess):
            with driver.open_data(_with_answer(self._volume, answer), "ro") as data:
                checks.check_beginning(image, data.read(0, min(CHUNK, image.size)))
        return answer


class Reimage(Import):
    """The manager writes another image to a volume, whose former data is deleted."""

    _has_former_data = True

    def _delete(self) -> None:
        self._has_former_data = False
        super()._delete()

    def revert(self, **_flow: Any) -> bool:
        """Remove what was written; return whether the volume has its former data."""
        if not self._has_former_data:
            super().revert()
        return self._has_former_data


class CloneOfImage(Import):
    """The backend clones the image in its cache; or the volume is made as without the cache."""

    def __init__(self, driver: Driver, volume: VolumeRef, image_id: str, entry: VolumeRef) -> None:
        super().__init__(driver, volume, image_id)
        self._entry = entry

    def execute(self) -> CreateAnswer:
        """Clone; what an interrupted import has written is deleted before."""
        driver = self._driver
        if isinstance(driver, Clone):
            try:
                driver.delete(self._volume)
                return driver.clone(_without_answer(self._volume), self._entry)
            except exception.BackendError as error:
                LOG.warning("Volume %s: not cloned of the cache: %s", self._volume.id, error)
        return super().execute()


def _with_answer(volume: VolumeRef, answer: CreateAnswer) -> VolumeRef:
    """Return a volume as it will be stored after its creation."""
    return dataclasses.replace(volume, **provider_values(answer))


def provider_values(answer: CreateAnswer) -> dict[str, Any]:
    """Return the answer of a driver as it is passed to the driver later."""
    if isinstance(answer, WithSecrets):
        return {"provider": answer.answer, "provider_secrets": answer.provider_secrets}
    return {"provider": answer}


def _without_answer(volume: VolumeRef) -> VolumeRef:
    """Return a volume as it is before its creation."""
    return dataclasses.replace(volume, provider={}, provider_secrets={})


def _step(done: float) -> None:
    base.check_still_owner()
    base.report_progress(done)


class Upload(_VolumeTask):
    """The manager sends the data of the volume to an image."""

    def __init__(self, driver: Driver, volume: VolumeRef, image_id: str) -> None:
        super().__init__(driver, volume)
        self._image_id = image_id

    def execute(self) -> None:
        """Send; again from the beginning after an interruption."""
        if not isinstance(self._driver, DirectAccess):
            raise exception.BackendError(
                f"Backend {self._driver.name} cannot upload volumes.", final=True
            )
        driver = self._driver
        self._send(lambda: driver.open_data(self._volume, "ro"), self._volume.size_gib)

    def _send(
        self, open_data: Callable[[], AbstractContextManager[VolumeData]], size_gib: int
    ) -> None:
        """Send what is opened; each attempt opens it."""
        api = ImageApi.of_service()
        for remaining in reversed(range(CONF.glance.transfer_retries + 1)):
            try:
                with open_data() as data:
                    upload.upload_volume(api, self._image_id, data, size_gib, _step)
            except exception.ImageServiceUnavailable as error:
                if not remaining:
                    raise
                LOG.warning("Volume %s: sending again: %s", self._volume.id, error)
                time.sleep(_PAUSE)  # The Image service gives up the former attempt.
            else:
                return

    def revert(self, **_flow: Any) -> bool:
        """Undo nothing: the image, which has no data or not all, is deleted afterwards."""
        return False


class Delete(_VolumeTask):
    """The backend removes the volume and its data."""

    def execute(self) -> None:
        """Delete; see drivers.base.Driver.delete()."""
        self._driver.delete(self._volume)

    def revert(self, **_flow: Any) -> bool:
        """Undo nothing: removed data cannot be restored, and the rest is deleted by a retry."""
        return False


class Extend(_VolumeTask):
    """The backend extends the volume while hosts use it."""

    def __init__(
        self, driver: Driver, volume: VolumeRef, size_gib: int, exports: Sequence[Export]
    ) -> None:
        super().__init__(driver, volume)
        self._size_gib = size_gib
        self._exports = exports

    def execute(self) -> None:
        """Extend; see drivers.base.Driver.extend() and drivers.abilities.OnlineExtend."""
        if self._exports and not isinstance(self._driver, OnlineExtend):
            raise exception.BackendError(
                f"Backend {self._driver.name} cannot extend a volume that hosts use: detach it, "
                "then extend it.",
                final=True,
            )
        self._driver.extend(self._volume, self._size_gib, self._exports)

    def revert(self, **_flow: Any) -> bool:
        """Keep the size: shrinking could cut data off."""
        return False


class Manage(task.Task):
    """The backend makes a volume of an object."""

    default_provides = "answer"

    def __init__(
        self, driver: ManageExisting, volume: VolumeRef, reference: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._driver = driver
        self._volume = volume
        self._reference = reference

    def execute(self) -> CreateAnswer:
        """Manage; see drivers.abilities.ManageExisting.manage()."""
        return self._driver.manage(self._volume, self._reference)

    def revert(self, **_flow: Any) -> bool:
        """Release the object, with its data."""
        try:
            self._driver.unmanage(self._volume)
        except Exception:
            LOG.exception("Volume %s: may still have the object", self._volume.id)
            return False
        return True


class Unmanage(task.Task):
    """The backend makes an object of a volume."""

    def __init__(self, driver: ManageExisting, volume: VolumeRef) -> None:
        super().__init__()
        self._driver = driver
        self._volume = volume

    def execute(self) -> None:
        """Unmanage; see drivers.abilities.ManageExisting.unmanage()."""
        self._driver.unmanage(self._volume)

    def revert(self, **_flow: Any) -> bool:
        """Undo nothing: a retry unmanages the rest."""
        return False
