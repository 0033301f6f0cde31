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
from attachd.closed_hosts.fences import Proof
from attachd.drivers.base import ConnectionInfo, Driver, Export, VolumeRef, WithSecrets
from attachd.manager import fencing, storage_identity
from attachd.telemetry.tracing import step

LOG = log.getLogger(__name__)

GrantAnswer = ConnectionInfo | WithSecrets[ConnectionInfo]


@dataclass(frozen=True)
class GrantRequest:
    """What the attach flow has to do, and for which host.

    :ivar others: returns the volume's other live exports, once access has to be revoked
    :ivar save: stores the driver's answer
    :ivar must_stay: called after a failure: returns whether the host keeps its access nevertheless
    :ivar check_host: called before the driver; raises HostRefused
    :ivar repeated: an earlier try was interrupted and may have granted access, independent of the
        result of this one
    """

    driver: Driver
    volume: VolumeRef
    export: Export
    others: Callable[[], Sequence[Export]]
    save: Callable[[GrantAnswer], None]
    must_stay: Callable[[], bool]
    check_host: Callable[[], None]
    repeated: bool = False


@dataclass(frozen=True)
class RevokeRequest:
    """What the detach flow has to do, and for which host.

    :ivar others: the volume's other live exports, which must not be disturbed
    :ivar may_be_missing: whether the backend may have lost the volume
    """

    driver: Driver
    volume: VolumeRef
    export: Export
    others: Sequence[Export]
    may_be_missing: bool = False


def build_attach() -> linear_flow.Flow:
    """Return the flow.  Store: ``request``, a GrantRequest; it provides ``answer``."""
    return linear_flow.Flow("attach").add(Grant(), Record())


def build_detach() -> linear_flow.Flow:
    """Return the flow.  Store: ``request``, a RevokeRequest; it provides nothing."""
    return linear_flow.Flow("detach").add(Revoke())


def build_fence() -> linear_flow.Flow:
    """Return the flow.  Store: ``request``, a RevokeRequest; it provides ``proof``."""
    return linear_flow.Flow("fence").add(Fence())


class Grant(task.Task):
    """The backend grants access to the host."""

    default_provides = "answer"

    def execute(self, request: GrantRequest) -> GrantAnswer:
        """Grant; see drivers.base.Driver.grant()."""
        request.check_host()
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
            # A volume that is on storage which is away has its exports there.
            storage_identity.check_has_volume(request.driver, request.volume, export.attachment_id)
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
    if isinstance(result.exception, exception.HostRefused):
        return True
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
        driver, volume, export = request.driver, request.volume, request.export
        with step("revoke"):
            if not request.may_be_missing:
                storage_identity.check_has_volume(driver, volume, export.attachment_id)
            driver.revoke(volume, export, request.others)

    def revert(self, **_flow: Any) -> bool:
        """Grant nothing again: the caller wants the revoke repeated, not undone."""
        return False


class Fence(task.Task):
    """The backend ends the host's access, and shows that it has."""

    default_provides = "proof"

    def execute(self, request: RevokeRequest) -> Proof:
        """Revoke and prove; see fencing.fence()."""
        with step("fence"):
            return fencing.fence(request.driver, request.volume, request.export, request.others)

    def revert(self, **_flow: Any) -> bool:
        """Grant nothing again: the caller wants the fence repeated, not undone."""
        return False
