# SPDX-License-Identifier: Apache-2.0
"""Make a volume, empty or with the data of another one."""

from typing import Any

from oslo_log import log
from taskflow import task
from taskflow.patterns import linear_flow

from attachd.drivers.base import Driver, VolumeRef

LOG = log.getLogger(__name__)


def build(driver: Driver, volume: VolumeRef) -> linear_flow.Flow:
    """Return the whole flow; it provides ``provider``, the driver's notes."""
    return linear_flow.Flow("create").add(Create(driver, volume))


def build_copy(driver: Driver, volume: VolumeRef, source: VolumeRef) -> linear_flow.Flow:
    """Return the whole flow for a copy; it provides the same."""
    return linear_flow.Flow("copy").add(Copy(driver, volume, source))


class Create(task.Task):
    """The backend makes the volume."""

    default_provides = "provider"

    def __init__(self, driver: Driver, volume: VolumeRef) -> None:
        super().__init__()
        self._driver = driver
        self._volume = volume

    def execute(self) -> dict[str, Any]:
        """Create; see drivers.base.Driver.create()."""
        return self._driver.create(self._volume)

    def revert(self, **_flow: Any) -> bool:
        """Remove whatever came into being."""
        try:
            self._driver.delete(self._volume)
        except Exception:
            LOG.exception("Something of volume %s may be left at the backend", self._volume.id)
            return False
        return True


class Copy(Create):
    """The backend makes the volume as a copy of another one."""

    def __init__(self, driver: Driver, volume: VolumeRef, source: VolumeRef) -> None:
        super().__init__(driver, volume)
        self._source = source

    def execute(self) -> dict[str, Any]:
        """Clone; see drivers.base.Driver.clone()."""
        return self._driver.clone(self._volume, self._source)
