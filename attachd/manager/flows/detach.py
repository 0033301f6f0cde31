# SPDX-License-Identifier: Apache-2.0
"""Take one host's access to one volume away."""

from collections.abc import Sequence
from typing import Any

from taskflow import task
from taskflow.patterns import linear_flow

from attachd.drivers.base import Driver, Export, VolumeRef


def build(
    driver: Driver, volume: VolumeRef, export: Export, others: Sequence[Export]
) -> linear_flow.Flow:
    """Return the whole flow; it provides nothing."""
    return linear_flow.Flow("detach").add(Revoke(driver, volume, export, others))


class Revoke(task.Task):
    """The backend shuts the host out and ends its sessions."""

    def __init__(
        self, driver: Driver, volume: VolumeRef, export: Export, others: Sequence[Export]
    ) -> None:
        super().__init__()
        self._driver = driver
        self._volume = volume
        self._export = export
        self._others = others

    def execute(self) -> None:
        """Revoke; see drivers.base.Driver.revoke()."""
        self._driver.revoke(self._volume, self._export, self._others)

    def revert(self, **_flow: Any) -> bool:
        """Let nobody in again: whoever asked for this wants it repeated, not undone."""
        return False
