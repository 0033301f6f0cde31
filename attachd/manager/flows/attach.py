# SPDX-License-Identifier: Apache-2.0
"""Let one host reach one volume, and write down how."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oslo_log import log
from taskflow import task
from taskflow.patterns import linear_flow
from taskflow.types import failure

from attachd import exception
from attachd.drivers.base import ConnectionInfo, Driver, Export, VolumeRef
from attachd.telemetry.step_timer import step

LOG = log.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """What is to be done, and for whom.

    :ivar others: the volume's other live exports
    :ivar save: stores the connection
    :ivar wanted: asked after a failure: whether the host is to be let in nevertheless
    :ivar repeated: an earlier try was broken off and may have let the host in, whatever this
        one says of itself
    """

    driver: Driver
    volume: VolumeRef
    export: Export
    others: Sequence[Export]
    save: Callable[[ConnectionInfo], None]
    wanted: Callable[[], bool]
    repeated: bool = False


def build() -> linear_flow.Flow:
    """Return the whole flow.  Store: ``work``; it provides ``connection``."""
    return linear_flow.Flow("attach").add(Grant(), Record())


class Grant(task.Task):
    """The backend lets the host in."""

    default_provides = "connection"

    def execute(self, work: Work) -> ConnectionInfo:
        """Grant; see drivers.base.Driver.grant()."""
        with step("grant"):
            return work.driver.grant(work.volume, work.export)

    def revert(self, work: Work, result: Any, **_flow: Any) -> bool:
        """Take back what was, or may have been, granted."""
        # Also after our own failure: a grant that timed out may have landed.
        if not work.repeated and _surely_failed(result):
            return True
        if work.wanted():
            return False
        try:
            work.driver.revoke(work.volume, work.export, work.others)
        except Exception:
            LOG.exception(
                "Volume %s may still be reachable by the host of attachment %s",
                work.volume.id,
                work.export.attachment_id,
            )
            return False
        return True


def _surely_failed(result: Any) -> bool:
    if not isinstance(result, failure.Failure):
        return False
    return isinstance(result.exception, exception.BackendError) and result.exception.final


class Record(task.Task):
    """The attachment's row gets the answer; losing the row undoes the grant."""

    def execute(self, work: Work, connection: ConnectionInfo) -> None:
        """Store the connection."""
        work.save(connection)

    def revert(self, **_flow: Any) -> bool:
        """Leave it: a compare-and-swap that failed has written nothing."""
        return True
