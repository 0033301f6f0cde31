# SPDX-License-Identifier: Apache-2.0
"""Runs a flow and tells how it ended; used by the verbs of attachments.py and volumes.py."""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from oslo_log import log
from oslo_utils import uuidutils
from taskflow import engines
from taskflow import exceptions as taskflow_exceptions
from taskflow.patterns import linear_flow
from taskflow.persistence import models
from taskflow.states import PENDING, REVERTED

from attachd import exception, tracing
from attachd.manager import forgetful

LOG = log.getLogger(__name__)

_NOTES = forgetful.Forgetful()


class Failed(Exception):
    """A flow did not reach its end.

    :ivar cause: what its first failing task raised
    :ivar clean: whether every task that had begun has surely been undone
    """

    def __init__(self, cause: Exception, *, clean: bool) -> None:
        self.cause = cause
        self.clean = clean
        super().__init__(str(cause))


Store = dict[str, Any]


class _Ready(NamedTuple):
    """A flow, and the engine that runs it."""

    flow: linear_flow.Flow
    engine: Any


_idle: defaultdict[Callable[[], linear_flow.Flow], deque[_Ready]] = defaultdict(deque)
"""What has run well and can run again, by what built it; each in the hands of one thread."""


def run(flow: linear_flow.Flow, store: Store) -> dict[str, Any]:
    """Run the tasks one after the other and return all that they provided.

    A task's ``revert`` never raises and returns whether nothing of the task is left.  The row
    is the journal, so the flow itself is kept nowhere.

    :raises Failed: after the tasks that had begun were reverted
    """
    return _run(_load(flow), store)


def run_again(build: Callable[[], linear_flow.Flow], store: Store) -> dict[str, Any]:
    """Do as :func:`run`, with a flow that is built once for many runs.

    That halves what a short flow costs.  Its tasks have nothing of their own: whatever differs
    from run to run is in the store, which is forgotten when the run is over.

    :param build: makes the flow, always the same; a function of a module, not a lambda
    """
    try:
        ready = _idle[build].pop()
    except IndexError:
        ready = _load(build())
    results = _run(ready, store)
    # An engine that failed is not used again.
    ready.engine.reset()
    ready.engine.storage.inject(dict.fromkeys(store), transient=True)
    _idle[build].append(ready)
    return results


def _load(flow: linear_flow.Flow) -> _Ready:
    engine = engines.load(
        flow,
        engine="serial",
        backend=_NOTES,
        flow_detail=models.FlowDetail(flow.name, uuidutils.generate_uuid()),
        gather_statistics=False,
    )
    forgetful.unburden(engine.storage)
    return _Ready(flow, engine)


def _run(ready: _Ready, store: Store) -> dict[str, Any]:
    flow, engine = ready
    engine.storage.inject(store, transient=True)
    try:
        with tracing.span(f"flow {flow.name}"):
            engine.run()
    except Exception as error:
        cause = _first(error)
        if not isinstance(cause, exception.AttachdError):
            LOG.exception("The flow %s met an unforeseen error", flow.name)
        raise Failed(cause, clean=_undone(flow, engine.storage)) from error
    LOG.debug("The flow %s is at its end", flow.name)
    results: dict[str, Any] = engine.storage.fetch_all()
    return results


def _first(error: Exception) -> Exception:
    """Unwrap taskflow's bundle of failures: with a serial engine the first is the cause."""
    if isinstance(error, taskflow_exceptions.WrappedFailure):
        cause = next(iter(error)).exception
        return cause if isinstance(cause, Exception) else error
    return error


def _undone(flow: linear_flow.Flow, storage: Any) -> bool:
    """Tell whether each task that had begun says that nothing of it is left."""
    names = [task.name for task, _data in flow.iter_nodes()]
    begun = {name: state for name in names if (state := storage.get_atom_state(name)) != PENDING}
    return all(
        state == REVERTED and storage.get_revert_result(name) is True
        for name, state in begun.items()
    )


def reason(cause: Exception) -> str:
    """Say in one sentence what went wrong, for the row and for the caller.

    Of an error that nobody foresaw, only its kind: its text may hold a secret.
    """
    if isinstance(cause, exception.AttachdError):
        text = str(cause)
    else:
        text = f"An unforeseen {type(cause).__name__}; the manager's log has more"
    return text[:1000] if text.endswith((".", "!")) else f"{text[:1000]}."
