# SPDX-License-Identifier: Apache-2.0
"""Run taskflow's linear flows, and report how they ended.

Flows, tasks and failures are taskflow's.  Its engines are made for flows that run in parallel, are
retried and resumed, and record each step of each task for that.  Here the row is the journal, and
a flow is a line of one or two tasks that one thread runs.
"""

from collections.abc import Callable, Mapping
import functools
from typing import Any, NamedTuple

from oslo_log import log
from taskflow import task
from taskflow.patterns import linear_flow
from taskflow.types import failure

from attachd import exception
from attachd.telemetry import tracing

LOG = log.getLogger(__name__)


class FlowFailed(Exception):
    """A flow did not reach its end.

    :ivar cause: what its first failing task raised
    :ivar clean: whether every task that had started was surely reverted
    """

    def __init__(self, cause: Exception, *, clean: bool) -> None:
        self.cause = cause
        self.clean = clean
        super().__init__(str(cause))


Store = dict[str, Any]


class _StartedTask(NamedTuple):
    """A task, and what it returned or the failure that it ended with."""

    task: task.Task
    result: Any


def run(flow: linear_flow.Flow, store: Mapping[str, Any]) -> Store:
    """Run the tasks one after the other and return all that they provided.

    A task's ``revert`` never raises and returns whether nothing of the task is left.  The row
    is the journal, so the flow itself is not stored.

    :raises FlowFailed: after the tasks that had started were reverted, the last one first
    """
    return _run(flow.name, _tasks(flow), store)


def run_cached(build: Callable[[], linear_flow.Flow], store: Mapping[str, Any]) -> Store:
    """Do as :func:`run`, with a flow that is built once for many runs.

    Its tasks must have no state, as several threads may run them at the same time: all that
    differs from run to run is in the store.

    :param build: makes the flow, always the same; a function of a module, not a lambda
    """
    return _run(*_cached_tasks(build), store)


@functools.cache
def _cached_tasks(build: Callable[[], linear_flow.Flow]) -> tuple[str, tuple[task.Task, ...]]:
    flow = build()
    return flow.name, _tasks(flow)


def _tasks(flow: linear_flow.Flow) -> tuple[task.Task, ...]:
    return tuple(node for node, _data in flow.iter_nodes())


def _run(name: str, tasks: tuple[task.Task, ...], store: Mapping[str, Any]) -> Store:
    known = dict(store)
    started: list[_StartedTask] = []
    with tracing.span(f"flow {name}"):
        for current in tasks:
            result = _execute(current, known)
            started.append(_StartedTask(current, result))
            if isinstance(result, failure.Failure):
                cause = result.exception
                if not isinstance(cause, exception.AttachdError):
                    LOG.error("Flow %s: unforeseen error", name, exc_info=result.exc_info)
                raise FlowFailed(cause, clean=_revert(started, known)) from cause
            known |= _provided(current, result)
    LOG.debug("Flow %s: finished", name)
    return {key: known[key] for done in started for key in done.task.provides}


def _execute(current: task.Task, known: Store) -> Any:
    try:
        return current.execute(**_arguments(current.rebind, current.optional, known))
    except Exception:  # noqa: BLE001  the caller of the flow gets it
        return failure.Failure()


def _provided(current: task.Task, result: Any) -> Store:
    """Return what a task provides, by the names under which other tasks take it."""
    return {
        name: result if index is None else result[index] for name, index in current.save_as.items()
    }


def _revert(started: list[_StartedTask], known: Store) -> bool:
    """Revert the tasks that have started; return whether each says that nothing of it is left.

    :param started: the last one is the one that failed
    """
    failures = {started[-1].task.name: started[-1].result}
    reverted = []
    for current, result in reversed(started):
        try:
            arguments = _arguments(current.revert_rebind, current.revert_optional, known)
            reverted.append(current.revert(**arguments, result=result, flow_failures=failures))
        except Exception:
            LOG.exception("Task %s: revert failed", current.name)
            return False
    return all(answer is True for answer in reverted)


def _arguments(names: Mapping[str, str], optional: Any, known: Store) -> Store:
    """Return a method's arguments by their own names, from what is known by others' names."""
    return {
        argument: known[name]
        for argument, name in names.items()
        if name in known or name not in optional
    }


def reason(cause: Exception) -> str:
    """Describe an error in one sentence, for the row and for the caller.

    Of an unforeseen error it gives only the type: its text may contain a secret.
    """
    if isinstance(cause, exception.AttachdError):
        text = str(cause)
    else:
        text = f"An unforeseen {type(cause).__name__}; the manager's log has more"
    return text[:1000] if text.endswith((".", "!")) else f"{text[:1000]}."
