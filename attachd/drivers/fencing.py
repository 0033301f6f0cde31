# SPDX-License-Identifier: Apache-2.0
"""Fencing: check, before each change at a backend, that this process may still make it.

A process that was suspended, or cut off from the database, may have been declared dead: then
another one works on its volume.  When the process continues in the middle of a driver's method,
the check stops it.  The manager installs the check, and a driver calls it::

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
    """Check that the operation of this thread may still change the backend.

    :raises BackendError: never final: earlier changes may have had effect
    """
    if (check_allowed := _check.get()) is not None:
        check_allowed()


@contextlib.contextmanager
def scope(check_allowed: Callable[[], None]) -> Iterator[None]:
    """Install a check for the block, in this thread.

    :param check_allowed: raises BackendError if changes are not allowed any more
    """
    token = _check.set(check_allowed)
    try:
        yield
    finally:
        _check.reset(token)


def liveness_fds() -> tuple[int, ...]:
    """Return the file descriptors that child processes of this process inherit.

    As long as one of them is open this process counts as alive: a tool that has outlived it may
    still change the backend.
    """
    return tuple(_liveness_fds)


def add_liveness_fd(descriptor: int) -> None:
    """Let child processes inherit a file descriptor from now on."""
    _liveness_fds.add(descriptor)


def remove_liveness_fd(descriptor: int) -> None:
    """Undo :func:`add_liveness_fd`."""
    _liveness_fds.discard(descriptor)
