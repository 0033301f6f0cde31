# SPDX-License-Identifier: Apache-2.0
"""Make an empty volume."""

from typing import Any

from oslo_log import log
from taskflow import task
from taskflow.patterns import linear_flow

from attachd.drivers.base import Driver, VolumeRef

LOG = log.getLogger(__name__)


def build(driver: Driver, volume: VolumeRef) -> linear_flow.Flow:
    """Return the whole flow; it provides ``provider``, the driver's notes."""
    return linear_flow.Flow("create").add(Create(driver, volume))


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
