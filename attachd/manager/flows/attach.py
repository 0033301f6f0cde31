# SPDX-License-Identifier: Apache-2.0
"""Let one host reach one volume, and write down how."""

from collections.abc import Callable, Sequence
from typing import Any

from oslo_log import log
from taskflow import task
from taskflow.patterns import linear_flow
from taskflow.types import failure

from attachd import exception
from attachd.drivers.base import ConnectionInfo, Driver, Export, VolumeRef

LOG = log.getLogger(__name__)

Save = Callable[[ConnectionInfo], None]
Wanted = Callable[[], bool]


def build(
    driver: Driver,
    volume: VolumeRef,
    export: Export,
    others: Sequence[Export],
    save: Save,
    wanted: Wanted,
) -> linear_flow.Flow:
    """Return the whole flow; it provides ``connection``.

    :param save: stores the connection
    :param wanted: asked after a failure: whether the host is to be let in nevertheless
    """
    return linear_flow.Flow("attach").add(
        Grant(driver, volume, export, others, wanted), Record(save)
    )


class Grant(task.Task):
    """The backend lets the host in."""

    default_provides = "connection"

    def __init__(
        self,
        driver: Driver,
        volume: VolumeRef,
        export: Export,
        others: Sequence[Export],
        wanted: Wanted,
    ) -> None:
        super().__init__()
        self._driver = driver
        self._volume = volume
        self._export = export
        self._others = others
        self._wanted = wanted

    def execute(self) -> ConnectionInfo:
        """Grant; see drivers.base.Driver.grant()."""
        return self._driver.grant(self._volume, self._export)

    def revert(self, result: Any, **_flow: Any) -> bool:
        """Take back what was, or may have been, granted."""
        # Also after our own failure: a grant that timed out may have landed.
        if isinstance(result, failure.Failure) and _surely_failed(result.exception):
            return True
        if self._wanted():
            return False
        try:
            self._driver.revoke(self._volume, self._export, self._others)
        except Exception:
            LOG.exception(
                "Volume %s may still be reachable by the host of attachment %s",
                self._volume.id,
                self._export.attachment_id,
            )
            return False
        return True


def _surely_failed(error: BaseException | None) -> bool:
    return isinstance(error, exception.BackendError) and error.final


class Record(task.Task):
    """The attachment's row gets the answer; losing the row undoes the grant."""

    def __init__(self, save: Save) -> None:
        super().__init__()
        self._save = save

    def execute(self, connection: ConnectionInfo) -> None:
        """Store the connection."""
        self._save(connection)

    def revert(self, **_flow: Any) -> bool:
        """Leave it: a compare-and-swap that failed has written nothing."""
        return True
