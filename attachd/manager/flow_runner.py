# SPDX-License-Identifier: Apache-2.0
"""The taskflow engine that runs the flows, and how a flow ends.

taskflow's own engines are made for flows that run in parallel, are retried and resumed, and record
each step of each task for that.  Here the row is the journal, and a flow is a line of one or two
tasks that one thread runs.  Measured in November 2026 for a flow of two tasks: taskflow's serial
engine takes 2 ms of CPU, this one 9 microseconds (200 if it is loaded for each run).
"""

import collections
from collections.abc import Callable, Mapping
import functools
from typing import Any, Final, NamedTuple, NoReturn

from oslo_log import log
from taskflow import engines, states, task
from taskflow.engines import base
from taskflow.patterns import linear_flow
from taskflow.types import failure

from attachd import exception
from attachd.telemetry import tracing

LOG = log.getLogger(__name__)

ENGINE: Final = "attachd"
"""The entry point of the engine in the group ``taskflow.engines``."""

Store = dict[str, Any]


class FlowFailed(Exception):
    """A flow did not reach its end.

    :ivar cause: what its first failing task raised
    :ivar clean: whether every task that had started was surely reverted
    """

    def __init__(self, cause: Exception, *, clean: bool) -> None:
        self.cause = cause
        self.clean = clean
        super().__init__(str(cause))


def run(flow: linear_flow.Flow, store: Mapping[str, Any]) -> Store:
    """Run the tasks one after the other and return all that they provided.

    :raises FlowFailed: after the tasks that had started were reverted, the last one first
    """
    return _run(engines.load(flow, engine=ENGINE), store)


def run_cached(build: Callable[[], linear_flow.Flow], store: Mapping[str, Any]) -> Store:
    """Do as :func:`run`, with an engine that is loaded once for many runs.

    :param build: makes the flow, always the same; a function of a module, not a lambda
    """
    idle = _idle_engines(build)
    try:
        engine = idle.pop()
    except IndexError:
        engine = engines.load(build(), engine=ENGINE)
    try:
        return _run(engine, store)
    finally:
        engine.reset()
        idle.append(engine)


@functools.cache
def _idle_engines(_build: Callable[[], linear_flow.Flow]) -> "collections.deque[LinearEngine]":
    """Return the engines of one flow that no thread uses now."""
    return collections.deque()


def _run(engine: "LinearEngine", store: Mapping[str, Any]) -> Store:
    engine.storage.inject(store)
    try:
        engine.run()
    except Exception as cause:
        clean = engine.storage.get_flow_state() == states.REVERTED
        raise FlowFailed(cause, clean=clean) from cause
    values = engine.storage.fetch_all()
    return {name: value for name, value in values.items() if name not in store}


class _StartedTask(NamedTuple):
    """A task, and what it returned or the failure that it ended with."""

    task: task.Task
    result: Any


class LinearStorage:
    """The values and the state of a run, in memory, by the methods of taskflow's Storage."""

    def __init__(self) -> None:
        self.values: Store = {}
        self.state: str = states.PENDING

    def inject(self, pairs: Mapping[str, Any]) -> None:
        """Add values that tasks take."""
        self.values.update(pairs)

    def fetch_all(self) -> Store:
        """Return all values: those that were injected, and those that tasks provided."""
        return dict(self.values)

    def get_flow_state(self) -> str:
        """Return one of taskflow.states.

        After a failed task it is REVERTED if surely nothing is left of any task, or FAILURE.
        """
        return self.state


class LinearEngine(base.Engine):
    """Run the tasks of a linear flow in the caller's thread; nothing is stored, none notified.

    A task's ``revert`` never raises and returns whether nothing of the task is left.
    """

    def __init__(self, flow: linear_flow.Flow, *arguments: Any) -> None:
        super().__init__(flow, *arguments)
        self._name: str = flow.name
        self._tasks: tuple[task.Task, ...] = tuple(node for node, _data in flow.iter_nodes())
        self._storage = LinearStorage()

    @property
    def storage(self) -> LinearStorage:
        """The values of the run."""
        return self._storage

    @property
    def statistics(self) -> Store:
        """Nothing is counted."""
        return {}

    def compile(self) -> None:
        """Do nothing: the tasks run in the order in which they were added."""

    def prepare(self) -> None:
        """Do nothing: the storage has no rows of tasks."""

    def validate(self) -> None:
        """Do nothing: a task whose argument is missing fails, and is reverted as any other."""

    def reset(self) -> None:
        """Forget the last run and its values."""
        self._storage = LinearStorage()

    def suspend(self) -> None:
        """Refuse: a flow is too short.

        :raises NotImplementedError: always
        """
        raise NotImplementedError

    def run(self) -> None:
        """Run the tasks; after a failure revert those that had started, the last one first.

        :raises Exception: what the failed task raised
        """
        started: list[_StartedTask] = []
        with tracing.span(f"flow {self._name}"):
            for current in self._tasks:
                result = self._execute(current)
                started.append(_StartedTask(current, result))
                if isinstance(result, failure.Failure):
                    self._fail(started, result)
                self._storage.inject(_provided(current, result))
            self._storage.state = states.SUCCESS
        LOG.debug("Flow %s: finished", self._name)

    def _execute(self, current: task.Task) -> Any:
        try:
            return current.execute(**self._arguments(current.rebind, current.optional))
        except Exception:  # noqa: BLE001  the caller of the flow gets it
            return failure.Failure()

    def _fail(self, started: list[_StartedTask], result: failure.Failure) -> NoReturn:
        cause = result.exception
        if not isinstance(cause, exception.AttachdError):
            LOG.error("Flow %s: unforeseen error", self._name, exc_info=result.exc_info)
        self._storage.state = states.REVERTED if self._revert(started) else states.FAILURE
        raise cause

    def _revert(self, started: list[_StartedTask]) -> bool:
        """Revert the tasks that have started; return whether surely nothing of them is left.

        :param started: the last one is the one that failed
        """
        failures = {started[-1].task.name: started[-1].result}
        reverted = []
        for current, result in reversed(started):
            try:
                arguments = self._arguments(current.revert_rebind, current.revert_optional)
                reverted.append(current.revert(**arguments, result=result, flow_failures=failures))
            except Exception:
                LOG.exception("Task %s: revert failed", current.name)
                return False
        return all(answer is True for answer in reverted)

    def _arguments(self, names: Mapping[str, str], optional: Any) -> Store:
        """Return a method's arguments by their own names, from values by others' names."""
        values = self._storage.values
        return {
            argument: values[name]
            for argument, name in names.items()
            if name in values or name not in optional
        }


def _provided(current: task.Task, result: Any) -> Store:
    """Return what a task provides, by the names under which other tasks take it."""
    return {
        name: result if index is None else result[index] for name, index in current.save_as.items()
    }


def caller_error(
    kind: type[exception.AttachdError], cause: Exception, **details: Any
) -> exception.AttachdError:
    """Return the error for the caller of a flow that failed.

    :param kind: of a failure of the backend, with the detail ``reason``
    :param details: its other ones
    """
    error = kind(reason=public_reason(cause), **details)
    if isinstance(cause, exception.BackendUnreachable):
        return exception.BackendUnavailable(str(error))
    if isinstance(cause, exception.BackendInUse):
        return exception.Conflict(reason=str(error))
    return error


def public_reason(cause: Exception) -> str:
    """Describe an error in one sentence, for the row and for the caller: without paths."""
    return exception.hide_paths(reason(cause))


def reason(cause: Exception) -> str:
    """Describe an error in one sentence, for operators.

    Of an unforeseen error it gives only the type: its text may contain a secret.
    """
    if isinstance(cause, exception.AttachdError):
        text = str(cause)
    else:
        text = f"An unforeseen {type(cause).__name__}; the manager's log has more"
    return text[:1000] if text.endswith((".", "!")) else f"{text[:1000]}."
