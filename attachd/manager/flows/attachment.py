# SPDX-License-Identifier: Apache-2.0
"""Flows that grant one host access to one volume, and revoke it."""

from collections.abc import Callable, Sequence
import dataclasses
from dataclasses import dataclass
from typing import Any

from oslo_log import log
from taskflow import task
from taskflow.patterns import linear_flow
from taskflow.types import failure

from attachd import exception
from attachd.drivers.base import ConnectionInfo, Driver, Export, VolumeRef, WithSecrets
from attachd.telemetry.tracing import step

LOG = log.getLogger(__name__)

GrantAnswer = ConnectionInfo | WithSecrets[ConnectionInfo]


@dataclass(frozen=True)
class GrantRequest:
    """What the attach flow has to do, and for which host.

    :ivar others: returns the volume's other live exports, once access has to be revoked
    :ivar save: stores the driver's answer
    :ivar must_stay: called after a failure: returns whether the host keeps its access nevertheless
    :ivar repeated: an earlier try was interrupted and may have granted access, independent of the
        result of this one
    """

    driver: Driver
    volume: VolumeRef
    export: Export
    others: Callable[[], Sequence[Export]]
    save: Callable[[GrantAnswer], None]
    must_stay: Callable[[], bool]
    repeated: bool = False


@dataclass(frozen=True)
class RevokeRequest:
    """What the detach flow has to do, and for which host.

    :ivar others: the volume's other live exports, which must not be disturbed
    """

    driver: Driver
    volume: VolumeRef
    export: Export
    others: Sequence[Export]


def build_attach() -> linear_flow.Flow:
    """Return the flow.  Store: ``request``, a GrantRequest; it provides ``answer``."""
    return linear_flow.Flow("attach").add(Grant(), Record())


def build_detach() -> linear_flow.Flow:
    """Return the flow.  Store: ``request``, a RevokeRequest; it provides nothing."""
    return linear_flow.Flow("detach").add(Revoke())


class Grant(task.Task):
    """The backend grants access to the host."""

    default_provides = "answer"

    def execute(self, request: GrantRequest) -> GrantAnswer:
        """Grant; see drivers.base.Driver.grant()."""
        with step("grant"):
            return request.driver.grant(request.volume, request.export)

    def revert(self, request: GrantRequest, result: Any, **_flow: Any) -> bool:
        """Revoke what was, or may have been, granted."""
        # Also after our own failure: a grant that timed out may have landed.
        if not request.repeated and _surely_failed(result):
            return True
        if request.must_stay():
            return False
        export = request.export
        if isinstance(result, WithSecrets):
            export = dataclasses.replace(export, provider_secrets=result.provider_secrets)
        try:
            request.driver.revoke(request.volume, export, request.others())
        except Exception:
            LOG.exception(
                "Volume %s: the host of attachment %s may still have access",
                request.volume.id,
                request.export.attachment_id,
            )
            return False
        return True


def _surely_failed(result: Any) -> bool:
    if not isinstance(result, failure.Failure):
        return False
    return isinstance(result.exception, exception.BackendError) and result.exception.final


class Record(task.Task):
    """The attachment's row gets the answer; losing the row reverts the grant."""

    def execute(self, request: GrantRequest, answer: GrantAnswer) -> None:
        """Store the answer."""
        request.save(answer)

    def revert(self, **_flow: Any) -> bool:
        """Do nothing: a compare-and-swap that failed has written nothing."""
        return True


class Revoke(task.Task):
    """The backend revokes the host's access and ends its sessions."""

    def execute(self, request: RevokeRequest) -> None:
        """Revoke; see drivers.base.Driver.revoke()."""
        with step("revoke"):
            request.driver.revoke(request.volume, request.export, request.others)

    def revert(self, **_flow: Any) -> bool:
        """Grant nothing again: the caller wants the revoke repeated, not undone."""
        return False
