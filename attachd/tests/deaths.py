# SPDX-License-Identifier: Apache-2.0
"""Lets a manager die at each step of its work, for tests of what the next one finds."""

from collections.abc import Callable, Iterator
import contextlib
import functools
import unittest
from unittest import mock

from attachd.db.attachments import legacy
from attachd.db.attachments import store as attachments
from attachd.db.cluster import leases
from attachd.db.volumes import store as volumes
from attachd.manager.ha import recovery
from attachd.manager.ha.membership import Membership
from attachd.manager.ha.recovery import Backoff
from attachd.tests import backends
from attachd.tests.backends import Killed

Work = Callable[[], object]

_WRITES = (
    (attachments, "move"),
    (attachments, "move_without_volume"),
    (legacy, "begin_connection"),
    (legacy, "release"),
    (volumes, "move"),
    (leases, "acquire_committed"),
    (leases, "release"),
)
_CALLS = ("create", "clone", "delete", "extend", "grant", "revoke")
_MOST_STEPS = 14


class Death:
    """Kills the process before or after its n-th step: a write or a call of the driver."""

    def __init__(self, step: int, moment: str) -> None:
        self._left = step
        self._moment = moment

    def around(self, real: Callable[..., object]) -> Callable[..., object]:
        """Return the function, which may be the last one that is called."""

        @functools.wraps(real)
        def called(*args: object, **kwargs: object) -> object:
            if self.came:
                return None  # Nothing is cleaned up by the dead.
            self._left -= 1
            if self._left == 0 and self._moment == "before":
                raise Killed
            answer = real(*args, **kwargs)
            if self._left == 0:
                raise Killed
            return answer

        return called

    @property
    def came(self) -> bool:
        """Whether there was such a step."""
        return self._left <= 0


@contextlib.contextmanager
def _dying(driver: backends.RecordingDriver, death: Death) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for module, name in _WRITES:
            real = getattr(module, name)
            stack.enter_context(mock.patch.object(module, name, death.around(real)))
        for name in _CALLS:
            real = getattr(driver, name)
            stack.enter_context(mock.patch.object(driver, name, death.around(real)))
        stack.enter_context(contextlib.suppress(Killed))
        yield


def survived(
    test: unittest.TestCase, backend: backends.FakeBackend, prepare: Callable[[], Work]
) -> Iterator[str]:
    """Let the work die at each of its steps, and recover; yields where it died.

    :param prepare: makes the rows and returns the work
    """
    for step in range(1, _MOST_STEPS):
        for moment in ("before", "after"):
            work = prepare()
            death = Death(step, moment)
            with _dying(backend.driver, death):
                work()
            if not death.came:
                test.assertGreater(step, 2, "hardly anything was tried")
                return
            backend.membership = Membership()
            test.assertEqual(0, recovery.recover_all(backend, Backoff()))
            yield f"{moment} step {step}"
    test.fail("the work has no end")
