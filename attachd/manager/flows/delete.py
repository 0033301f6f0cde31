# SPDX-License-Identifier: Apache-2.0
"""Remove a volume and its data."""

from typing import Any

from taskflow import task
from taskflow.patterns import linear_flow

from attachd.drivers.base import Driver, VolumeRef


def build(driver: Driver, volume: VolumeRef) -> linear_flow.Flow:
    """Return the whole flow; it provides nothing."""
    return linear_flow.Flow("delete").add(Delete(driver, volume))


class Delete(task.Task):
    """The backend removes the volume."""

    def __init__(self, driver: Driver, volume: VolumeRef) -> None:
        super().__init__()
        self._driver = driver
        self._volume = volume

    def execute(self) -> None:
        """Delete; see drivers.base.Driver.delete()."""
        self._driver.delete(self._volume)

    def revert(self, **_flow: Any) -> bool:
        """Nothing can be undone: what is gone is gone, what is left is deleted again."""
        return False
