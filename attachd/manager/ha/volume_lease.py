# SPDX-License-Identifier: Apache-2.0
"""Having a volume for a piece of work: our turn on this machine, then the lease; for backends.py.

Between the processes of one machine, files say whose turn it is (turns.py), so that nobody
starves.  They only keep order.  What counts is the lease in the volume's row (db/leases.py), which
processes of other machines see as well, and which outlives nobody.
"""

from collections.abc import Callable, Iterator
import contextlib
from contextlib import AbstractContextManager
import random
import time
from typing import TypeVar

from oslo_log import log

from attachd import exception
from attachd.conf import CONF
from attachd.db import leases as db
from attachd.db.leases import Lease
from attachd.drivers import fencing
from attachd.manager.ha import volume_lock
from attachd.manager.ha.membership import Presence
from attachd.telemetry import recorder, step_timer
from attachd.telemetry.catalogue import STEP_DURATION, STEPS

LOG = log.getLogger(__name__)

R = TypeVar("R")

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.25
"""Seconds between two looks at a lease of another machine's process."""


class Turn:
    """Our turn with a volume.

    :ivar lease: what :meth:`begin` takes, and each further transaction goes on with
    """

    def __init__(self, lease: Lease) -> None:
        self.lease = lease

    def begin(self, move: Callable[[Lease], R]) -> R:
        """Call what takes the lease, until nobody else has it.

        :param move: one transaction
        :raises Unavailable: somebody else has it for too long, or this process may count as dead
        """
        deadline = time.monotonic() + CONF.rpc.attach_timeout
        pause = _FIRST_PAUSE
        while True:
            self._check_alive()
            try:
                return move(self.lease)
            except db.Held as held:
                if time.monotonic() > deadline:
                    raise exception.Unavailable(
                        reason=f"Volume {self.lease.volume_id} is busy: the manager "
                        f"{held.holder} works on it. Try again later."
                    ) from None
            time.sleep(random.uniform(pause / 2, pause))  # noqa: S311
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _check_alive(self) -> None:
        """Take no lease that others would count as one of the dead, and take over at once."""
        try:
            fencing.check()
        except exception.BackendError as error:
            if self.lease.generation is None:
                raise exception.Unavailable(
                    reason=f"Volume {self.lease.volume_id} has to wait: its manager has no "
                    "contact with the others. Try again later."
                ) from error

    def is_ours(self) -> bool:
        """Tell whether we still have the lease, whatever became of our last transaction.

        :raises Unavailable: the database does not answer
        """
        return db.is_ours(self.lease)

    def is_lost(self) -> bool:
        """Tell whether work may have failed because it was taken from us, and is others' now.

        Then nothing is written down: the row still says what is due, for whoever goes on.
        """
        try:
            fencing.check()
        except exception.BackendError as error:
            LOG.warning("Volume %s is left to others: %s", self.lease.volume_id, error)
            return True
        return False


@contextlib.contextmanager
def turn(presence: Presence, volume_id: str, path: str) -> Iterator[Turn]:
    """Have our turn with a volume.

    :param path: of the file that says whose turn it is on this machine
    :raises Unavailable: it does not come in time
    """
    with step_timer.operation(), contextlib.ExitStack() as in_line:
        with step_timer.step("wait"):
            in_line.enter_context(_in_line(volume_id, path))
        lease = Lease(volume_id, presence.id)
        with fencing.scope(lambda: presence.check(lease.holder)), _given_back(lease):
            yield Turn(lease)


def measured(backend: str, waited: AbstractContextManager[Turn]) -> AbstractContextManager[Turn]:
    """Return a turn with the time that it is waited for measured, if that is wanted.

    :param backend: ``host@backend``
    :param waited: as of :func:`turn`
    """
    return _measured(backend, waited) if recorder.is_on() else waited


@contextlib.contextmanager
def _measured(backend: str, waited: AbstractContextManager[Turn]) -> Iterator[Turn]:
    """Measure how long the turn is waited for."""
    with contextlib.ExitStack() as stack:
        with recorder.timed(STEPS, STEP_DURATION, backend, "wait"):
            ours = stack.enter_context(waited)
        yield ours


@contextlib.contextmanager
def _in_line(volume_id: str, path: str) -> Iterator[None]:
    patience, order = CONF.rpc.attach_timeout, CONF.manager.member_timeout
    try:
        with volume_lock.taken(path, patience, order):
            yield
    except volume_lock.Late:
        raise exception.Unavailable(
            reason=f"Volume {volume_id} is busy: other calls for it have not ended in "
            f"{patience} s. Try again later."
        ) from None


@contextlib.contextmanager
def _given_back(lease: Lease) -> Iterator[None]:
    in_doubt = False
    try:
        yield
    except exception.Unavailable:
        in_doubt = True  # Only the database knows whether it was taken.
        raise
    finally:
        if lease.generation is not None or in_doubt:
            _give_back(lease)


def _give_back(lease: Lease) -> None:
    try:
        db.give_back(lease)
    except exception.AttachdError as error:
        # It is ours as long as this process lives; recovery works on what is left.
        LOG.warning("Volume %s could not be given back now: %s", lease.volume_id, error)
