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

_question: contextvars.ContextVar[Callable[[], None] | None] = contextvars.ContextVar(
    "fencing", default=None
)

_lifelines: set[int] = set()


def check() -> None:
    """Raise unless the work that this thread does may still change something at the backend.

    :raises BackendError: never final: what was done before may have had effect
    """
    if (question := _question.get()) is not None:
        question()


@contextlib.contextmanager
def asking(question: Callable[[], None]) -> Iterator[None]:
    """Have :func:`check` ask this question in what is done here, by this thread.

    :param question: raises BackendError where the answer is no
    """
    token = _question.set(question)
    try:
        yield
    finally:
        _question.reset(token)


def lifelines() -> tuple[int, ...]:
    """Return the file descriptors that the tools of this process have to inherit.

    As long as one of them is open this process counts as alive: a tool that has outlived it may
    still be changing something.
    """
    return tuple(_lifelines)


def inherit(descriptor: int) -> None:
    """Have the tools of this process inherit a file descriptor from now on."""
    _lifelines.add(descriptor)


def keep(descriptor: int) -> None:
    """End what :func:`inherit` began."""
    _lifelines.discard(descriptor)
