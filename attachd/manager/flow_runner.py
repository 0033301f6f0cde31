# SPDX-License-Identifier: Apache-2.0
"""Runs a flow and tells how it ended; used by the verbs of attachments.py and volumes.py.

Flows, tasks and failures are taskflow's.  Its engines are made for flows that run in parallel,
are retried and resumed, and note each step of each task for that.  Here the row is the journal,
and a flow a line of one or two tasks in the hands of one thread.
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


class _Begun(NamedTuple):
    """A task, and what it returned or the failure that it ended with."""

    task: task.Task
    result: Any


def run(flow: linear_flow.Flow, store: Mapping[str, Any]) -> Store:
    """Run the tasks one after the other and return all that they provided.

    A task's ``revert`` never raises and returns whether nothing of the task is left.  The row
    is the journal, so the flow itself is kept nowhere.

    :raises Failed: after the tasks that had begun were reverted, the last one first
    """
    return _run(flow.name, _tasks(flow), store)


def run_again(build: Callable[[], linear_flow.Flow], store: Mapping[str, Any]) -> Store:
    """Do as :func:`run`, with a flow that is built once for many runs.

    Its tasks have nothing of their own, as several threads may run them at the same time:
    whatever differs from run to run is in the store.

    :param build: makes the flow, always the same; a function of a module, not a lambda
    """
    return _run(*_built(build), store)


@functools.cache
def _built(build: Callable[[], linear_flow.Flow]) -> tuple[str, tuple[task.Task, ...]]:
    flow = build()
    return flow.name, _tasks(flow)


def _tasks(flow: linear_flow.Flow) -> tuple[task.Task, ...]:
    return tuple(each for each, _data in flow.iter_nodes())


def _run(name: str, tasks: tuple[task.Task, ...], store: Mapping[str, Any]) -> Store:
    known = dict(store)
    begun: list[_Begun] = []
    with tracing.span(f"flow {name}"):
        for each in tasks:
            result = _execute(each, known)
            begun.append(_Begun(each, result))
            if isinstance(result, failure.Failure):
                cause = result.exception
                if not isinstance(cause, exception.AttachdError):
                    LOG.error(
                        "The flow %s met an unforeseen error", name, exc_info=result.exc_info
                    )
                raise Failed(cause, clean=_undo(begun, known)) from cause
            known |= _provided(each, result)
    LOG.debug("The flow %s is at its end", name)
    return {each: known[each] for done in begun for each in done.task.provides}


def _execute(each: task.Task, known: Store) -> Any:
    try:
        return each.execute(**_arguments(each.rebind, each.optional, known))
    except Exception:  # noqa: BLE001  whoever asked for the run is told
        return failure.Failure()


def _provided(each: task.Task, result: Any) -> Store:
    """Return what a task provides, by the names that others know it by."""
    return {
        name: result if index is None else result[index] for name, index in each.save_as.items()
    }


def _undo(begun: list[_Begun], known: Store) -> bool:
    """Revert what has begun, and tell whether each task says that nothing of it is left.

    :param begun: the last one is the one that failed
    """
    failures = {begun[-1].task.name: begun[-1].result}
    undone = []
    for each, result in reversed(begun):
        try:
            arguments = _arguments(each.revert_rebind, each.revert_optional, known)
            undone.append(each.revert(**arguments, result=result, flow_failures=failures))
        except Exception:
            LOG.exception("%s could not be reverted", each.name)
            return False
    return all(each is True for each in undone)


def _arguments(names: Mapping[str, str], optional: Any, known: Store) -> Store:
    """Return a method's arguments, each by its own name, from what is known by others' names."""
    return {
        argument: known[name]
        for argument, name in names.items()
        if name in known or name not in optional
    }


def reason(cause: Exception) -> str:
    """Say in one sentence what went wrong, for the row and for the caller.

    Of an error that nobody foresaw, only its kind: its text may hold a secret.
    """
    if isinstance(cause, exception.AttachdError):
        text = str(cause)
    else:
        text = f"An unforeseen {type(cause).__name__}; the manager's log has more"
    return text[:1000] if text.endswith((".", "!")) else f"{text[:1000]}."
