# SPDX-License-Identifier: Apache-2.0
"""Runs a flow and tells how it ended; used by the verbs of attachments.py and volumes.py."""

from typing import Any

from oslo_log import log
from oslo_utils import uuidutils
from taskflow import engines
from taskflow import exceptions as taskflow_exceptions
from taskflow.patterns import linear_flow
from taskflow.persistence import models
from taskflow.states import PENDING, REVERTED

from attachd import exception
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


def run(flow: linear_flow.Flow, store: dict[str, Any]) -> dict[str, Any]:
    """Run the tasks one after the other and return all that they provided.

    A task's ``revert`` never raises and returns whether nothing of the task is left.  The row
    is the journal, so the flow itself is kept nowhere.

    :raises Failed: after the tasks that had begun were reverted
    """
    engine = engines.load(
        flow,
        store=store,
        engine="serial",
        backend=_NOTES,
        flow_detail=models.FlowDetail(flow.name, uuidutils.generate_uuid()),
        gather_statistics=False,
    )
    try:
        engine.run()
    except Exception as error:
        raise Failed(_first(error), clean=_undone(flow, engine.storage)) from error
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
    """Say in one sentence what went wrong, for the row and for the caller."""
    if isinstance(cause, exception.AttachdError):
        text = str(cause)
    else:
        text = f"{type(cause).__name__}: {cause}"
    return text[:1000] if text.endswith((".", "!")) else f"{text[:1000]}."
