# SPDX-License-Identifier: Apache-2.0
"""A place for taskflow's notes on a flow that keeps none of them; used by engine.py.

An engine writes down each step of each task, for somebody who would resume the flow.  Nobody
does here: the row is the journal.  Without a backend taskflow keeps a small file system in
memory for these notes, which costs as much as the rest of a short flow.
"""

from typing import Any, NoReturn

from taskflow import exceptions
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
