# SPDX-License-Identifier: Apache-2.0
"""Counts, measures and traces what is done for a backend; for watching.py, and for recovery."""

from collections.abc import Callable
import functools
from typing import Any

from attachd import exception
from attachd.drivers.base import Driver
from attachd.manager.backends import Backend
from attachd.telemetry import catalogue, recorder, tracing

STEPS = (
    "create",
    "clone",
    "delete",
    "extend",
    "grant",
    "revoke",
    "get_stats",
    "boot_id",
    "revoke_all_except",
)
"""The calls of a driver that are measured: what takes time, and what may fail."""

OUTCOMES = ("ok", "refused", "failed", "error")


def measure(backend: str, driver: Driver) -> None:
    """Measure each step that this driver makes, and make it a span."""
    for step in STEPS:
        for outcome in OUTCOMES:
            recorder.init_counter(catalogue.STEPS, backend, step, outcome)
        setattr(driver, step, _measured(getattr(driver, step), backend, step))


def _measured(call: Callable[..., Any], backend: str, step: str) -> Callable[..., Any]:
    labels = catalogue.STEPS, catalogue.STEP_DURATION, backend, step

    @functools.wraps(call)
    def measured(*args: Any, **more: Any) -> Any:
        with tracing.span(step, backend=backend), recorder.timed(*labels, judge=_outcome):
            return call(*args, **more)

    return measured


def _outcome(error: Exception) -> str:
    """Tell apart whether something may have happened all the same."""
    if isinstance(error, exception.BackendError):
        return "refused" if error.final else "failed"
    return "failed" if isinstance(error, exception.AttachdError) else "error"


def acted(backend: Backend, action: str, by: int = 1) -> None:
    """Count what was done for a backend although nobody asked for it."""
    if by:
        recorder.count(catalogue.RECOVERED, backend.host, action, by=by)
