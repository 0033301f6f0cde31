# SPDX-License-Identifier: Apache-2.0
"""Make a volume larger while its hosts go on using it."""

from collections.abc import Sequence
from typing import Any

from taskflow import task
from taskflow.patterns import linear_flow

from attachd.drivers.base import Driver, Export, VolumeRef


def build(
    driver: Driver, volume: VolumeRef, size_gib: int, exports: Sequence[Export]
) -> linear_flow.Flow:
    """Return the whole flow; it provides nothing."""
    return linear_flow.Flow("extend").add(Extend(driver, volume, size_gib, exports))


class Extend(task.Task):
    """The backend grows the volume."""

    def __init__(
        self, driver: Driver, volume: VolumeRef, size_gib: int, exports: Sequence[Export]
    ) -> None:
        super().__init__()
        self._driver = driver
        self._volume = volume
        self._size_gib = size_gib
        self._exports = exports

    def execute(self) -> None:
        """Extend; see drivers.base.Driver.extend()."""
        self._driver.extend(self._volume, self._size_gib, self._exports)

    def revert(self, **_flow: Any) -> bool:
        """Leave it as large as it is: shrinking could cut data off."""
        return False
