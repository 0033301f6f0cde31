# SPDX-License-Identifier: Apache-2.0
"""Whether whoever works for a volume still may; asked by drivers before each change they make.

A process that was stopped for a while, or cut off from the database, may have been taken for dead:
then another one works on its volume by now.  When it wakes up in the middle of a driver's method,
this is what keeps it from going on.  The manager tells how to find out, and a driver asks::

    fencing.check()
    self._control.new_target(name)
"""

from collections.abc import Callable, Iterator
import contextlib
import contextvars

_check: contextvars.ContextVar[Callable[[], None] | None] = contextvars.ContextVar(
    "fencing", default=None
)

_liveness_fds: set[int] = set()


def check() -> None:
    """Raise unless the work that this thread does may still change something at the backend.

    :raises BackendError: never final: what was done before may have had effect
    """
    if (check_allowed := _check.get()) is not None:
        check_allowed()


@contextlib.contextmanager
def scope(check_allowed: Callable[[], None]) -> Iterator[None]:
    """Have :func:`check` ask this check_allowed in what is done here, by this thread.

    :param check_allowed: raises BackendError where the answer is no
    """
    token = _check.set(check_allowed)
    try:
        yield
    finally:
        _check.reset(token)


def liveness_fds() -> tuple[int, ...]:
    """Return the file descriptors that the tools of this process have to inherit.

    As long as one of them is open this process counts as alive: a tool that has outlived it may
    still be changing something.
    """
    return tuple(_liveness_fds)


def add_liveness_fd(descriptor: int) -> None:
    """Have the tools of this process inherit a file descriptor from now on."""
    _liveness_fds.add(descriptor)


def remove_liveness_fd(descriptor: int) -> None:
    """End what :func:`add_liveness_fd` began."""
    _liveness_fds.discard(descriptor)
