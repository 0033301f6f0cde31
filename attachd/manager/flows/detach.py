# SPDX-License-Identifier: Apache-2.0
"""Take one host's access to one volume away."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from taskflow import task
from taskflow.patterns import linear_flow

from attachd.drivers.base import Driver, Export, VolumeRef
from attachd.telemetry.step_timer import step


@dataclass(frozen=True)
class Work:
    """What is to be done, and for whom.

    :ivar others: the volume's other live exports, which must not notice
    """

    driver: Driver
    volume: VolumeRef
    export: Export
    others: Sequence[Export]


def build() -> linear_flow.Flow:
    """Return the whole flow.  Store: ``work``; it provides nothing."""
    return linear_flow.Flow("detach").add(Revoke())


class Revoke(task.Task):
    """The backend shuts the host out and ends its sessions."""

    def execute(self, work: Work) -> None:
        """Revoke; see drivers.base.Driver.revoke()."""
        with step("revoke"):
            work.driver.revoke(work.volume, work.export, work.others)

    def revert(self, **_flow: Any) -> bool:
        """Let nobody in again: whoever asked for this wants it repeated, not undone."""
        return False
