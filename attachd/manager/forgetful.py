# SPDX-License-Identifier: Apache-2.0
"""A place for taskflow's notes on a flow that keeps none of them; used by engine.py.

An engine writes down each step of each task, for somebody who would resume the flow.  Nobody
does here: the row is the journal.  Without a backend taskflow keeps a small file system in
memory for these notes, which costs as much as the rest of a short flow.

It also guards its notes against other threads, and tries again to write them down when that
failed.  With a serial engine in the hands of one thread, and nothing that could fail, the two
cost as much once more.
"""

import functools
from typing import Any, NoReturn, Self

from taskflow import exceptions, storage
from taskflow.persistence import base


class _Connection(base.Connection):
    """Agrees to everything and has nothing."""

    def __init__(self, backend: base.Backend) -> None:
        self._backend = backend

    @property
    def backend(self) -> base.Backend:
        """What made this."""
        return self._backend

    def _same(self, detail: Any) -> Any:
        # The engine goes on with what it gets back: with what it has just noted itself.
        return detail

    def _nothing(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def _unknown(self, uuid: str | None = None, **_kwargs: Any) -> NoReturn:
        raise exceptions.NotFound(f"Nothing is kept here, nor was {uuid}")

    update_atom_details = update_flow_details = _same
    close = upgrade = clear_all = validate = save_logbook = destroy_logbook = _nothing
    get_logbook = get_flow_details = get_atom_details = _unknown
    get_logbooks = get_flows_for_book = get_atoms_for_flow = _unknown


class Forgetful(base.Backend):
    """A taskflow persistence backend without persistence; any number of engines may share it."""

    def __init__(self) -> None:
        super().__init__({})
        self._connection = _Connection(self)

    def get_connection(self) -> base.Connection:
        """Return the one connection, which has nothing that could be in anybody's way."""
        return self._connection

    def close(self) -> None:
        """Nothing is open."""


class _Unshared:
    """A lock for readers and writers where there is one thread only."""

    def read_lock(self) -> Self:
        """Return what is entered while something is read."""
        return self

    write_lock = read_lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


_UNSHARED = _Unshared()
_SAVERS = ("_save_flow_detail", "_save_atom_detail")


def unburden(notes: storage.Storage) -> None:
    """Spare a serial engine what it would do for other threads and a backend that fails.

    The names are taskflow's own; where it has others, the storage stays as it is.

    :param notes: the storage of an engine that one thread at a time uses
    """
    if hasattr(notes, "_lock"):
        notes._lock = _UNSHARED  # noqa: SLF001  pinned by a test
    for name in _SAVERS:
        once = getattr(getattr(storage.Storage, name, None), "__wrapped__", None)
        if once is not None:
            setattr(notes, name, functools.partial(once, notes))
    # Nobody asks how far a task has come, and it is noted twice a task.
    notes.set_task_progress = _ignore


def _ignore(*_progress: Any, **_details: Any) -> None:
    """Stand in for a method whose work nobody needs."""
