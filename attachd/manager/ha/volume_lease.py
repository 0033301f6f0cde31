# SPDX-License-Identifier: Apache-2.0
"""The exclusive right to work on a volume: the lock of this machine, then the lease in the row.

Between the threads and processes of one machine, file locks set a fair order (volume_lock.py).
They decide nothing else.  Exclusion comes from the lease in the volume's row
(db/cluster/leases.py), which
processes of other machines see as well, and which ends with the process that holds it.
"""

from collections.abc import Callable, Iterator
import contextlib
from contextlib import AbstractContextManager
from typing import TypeVar

from oslo_log import log
import tenacity

from attachd import exception
from attachd.conf import CONF
from attachd.db.cluster import leases as db
from attachd.db.cluster.leases import Lease
from attachd.drivers import base
from attachd.manager.ha import volume_lock
from attachd.manager.ha.membership import Membership
from attachd.telemetry import metrics, step_timer

LOG = log.getLogger(__name__)

R = TypeVar("R")


def _is_timeout_over(state: tenacity.RetryCallState) -> bool:
    timeout: float = CONF.rpc.attach_timeout
    return (state.seconds_since_start or 0.0) > timeout


_RETRYING = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type(db.LeaseHeld),
    wait=tenacity.wait_random_exponential(multiplier=0.0075, max=0.375),
    stop=_is_timeout_over,
    reraise=True,
)
"""Tries to take a lease that a process of another machine holds; waits are in seconds."""


class VolumeLease:
    """The right of one thread to work on a volume.

    :ivar token: the database's lease; each transaction of the work takes it as an argument
    """

    def __init__(self, token: Lease) -> None:
        self.token = token

    def run_with_lease(self, move: Callable[[Lease], R]) -> R:
        """Call a transaction that acquires the lease, and repeat it until the lease is free.

        :param move: one transaction; it takes the token
        :raises Unavailable: another process holds the lease for too long, or this process may
            have expired
        """
        try:
            result: R = _RETRYING(self._try_once, move)
        except db.LeaseHeld as held:
            raise exception.Unavailable(
                reason=f"Volume {self.token.volume_id} is busy: the manager "
                f"{held.holder} works on it. Try again later."
            ) from None
        return result

    def _try_once(self, move: Callable[[Lease], R]) -> R:
        self._check_not_expired()
        return move(self.token)

    def _check_not_expired(self) -> None:
        """Acquire no lease that other processes would take over at once."""
        try:
            base.check_fencing()
        except exception.BackendError as error:
            if self.token.generation is None:
                raise exception.Unavailable(
                    reason=f"Volume {self.token.volume_id} has to wait: its manager has no "
                    "contact with the others. Try again later."
                ) from error

    def is_held(self) -> bool:
        """Return whether the lease is still held, whether or not the last transaction committed.

        :raises Unavailable: the database does not answer
        """
        return db.is_held(self.token)

    def is_fenced(self) -> bool:
        """Return whether the work may have failed because another process has taken it over.

        In that case no result is stored: the row still says what has to be done, for the process
        that takes it over.
        """
        try:
            base.check_fencing()
        except exception.BackendError as error:
            LOG.warning("Volume %s: left to other managers: %s", self.token.volume_id, error)
            return True
        return False


@contextlib.contextmanager
def acquire(membership: Membership, volume_id: str, path: str) -> Iterator[VolumeLease]:
    """Hold the lock of a volume, and release its lease at the end.

    :param path: of the volume's lock file on this machine
    :raises Unavailable: the lock is not free in time
    """
    with step_timer.operation(), contextlib.ExitStack() as stack:
        with step_timer.step("wait"):
            stack.enter_context(_volume_lock(volume_id, path))
        token = Lease(volume_id, membership.id)
        with base.fencing_scope(lambda: membership.check(token.holder)), _releasing(token):
            yield VolumeLease(token)


def timed(
    backend: str, waiting: AbstractContextManager[VolumeLease]
) -> AbstractContextManager[VolumeLease]:
    """Return a context manager that also records the time of waiting, if metrics are on.

    :param backend: ``host@backend``
    :param waiting: as of :func:`acquire`
    """
    return _timed(backend, waiting) if metrics.is_enabled() else waiting


@contextlib.contextmanager
def _timed(backend: str, waiting: AbstractContextManager[VolumeLease]) -> Iterator[VolumeLease]:
    """Record the time until the lock is acquired."""
    with contextlib.ExitStack() as stack:
        with metrics.timed(metrics.STEPS, metrics.STEP_DURATION, backend, "wait"):
            lease = stack.enter_context(waiting)
        yield lease


@contextlib.contextmanager
def _volume_lock(volume_id: str, path: str) -> Iterator[None]:
    timeout, ipc_timeout = CONF.rpc.attach_timeout, CONF.manager.member_timeout
    try:
        with volume_lock.acquire(path, timeout, ipc_timeout):
            yield
    except volume_lock.LockTimeout:
        raise exception.Unavailable(
            reason=f"Volume {volume_id} is busy: other calls for it have not ended in "
            f"{timeout} s. Try again later."
        ) from None


@contextlib.contextmanager
def _releasing(token: Lease) -> Iterator[None]:
    in_doubt = False
    try:
        yield
    except exception.Unavailable:
        in_doubt = True  # Only the database knows whether the lease was stored.
        raise
    finally:
        if token.generation is not None or in_doubt:
            _release(token)


def _release(token: Lease) -> None:
    try:
        db.release(token)
    except exception.AttachdError as error:
        # This process holds it as long as it lives; recovery releases what is left.
        LOG.warning("Volume %s: its lease was not released: %s", token.volume_id, error)
