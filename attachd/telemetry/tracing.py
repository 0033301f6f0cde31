# SPDX-License-Identifier: Apache-2.0
"""Time the steps of an operation, and send spans to a collector of OpenTelemetry.

The steps of the operation that a thread executes are always timed, for events::

    with tracing.operation():
        with tracing.step("grant"):
            driver.grant(...)

Traces are set up by each process, if they are enabled.  oslo.middleware creates the span of a
request, oslo.messaging those of calls, and passes the trace to the other side.  attachd adds spans
for the manager's operations.  All go to one collector, which the options of oslo.middleware name;
if they are off, a span costs one test of a variable.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import datetime
import os
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_utils import timeutils

from attachd import exception
from attachd.conf import CONF


class _State:
    tracer: Any = None
    pid = 0


def setup(program: str) -> None:
    """Send traces from now on; a forked process calls it again.

    :param program: the name of the service in traces, unless the configuration has another
    :raises ConfigurationError: a required library is not installed
    """
    try:
        from oslo_middleware import tracing  # noqa: PLC0415  it loads much that only servers need
    except ImportError:
        CONF.register_opt(cfg.BoolOpt("enabled", default=False), group="oslo_middleware_tracing")
        if CONF.oslo_middleware_tracing.enabled:
            raise _unavailable("oslo.middleware 8.2 or later is needed") from None
        return
    tracing.set_defaults(service_name=program)
    CONF.register_opts(tracing.TRACING_OPTS, group="oslo_middleware_tracing")
    if not CONF.oslo_middleware_tracing.enabled or _State.pid == os.getpid():
        return
    try:
        tracing.init_tracing(CONF)
    except RuntimeError as error:
        raise _unavailable(f"{error}") from error
    from opentelemetry import trace  # noqa: PLC0415  installed only for traces

    try:
        CONF.set_default("tracing_enabled", True, group="oslo_messaging_tracing")
    except cfg.NoSuchGroupError:
        raise _unavailable("oslo.messaging 18.3 or later is needed") from None
    _State.tracer, _State.pid = trace.get_tracer("attachd"), os.getpid()


def _unavailable(reason: str) -> exception.ConfigurationError:
    return exception.ConfigurationError(reason=f"[oslo_middleware_tracing]enabled: {reason}.")


def is_on() -> bool:
    """Return whether traces are sent."""
    return _State.tracer is not None


@contextlib.contextmanager
def span(name: str, **facts: str) -> Iterator[None]:
    """Record the block as a span of the current trace.

    :param facts: attributes; no secrets
    """
    if _State.tracer is None:
        yield
        return
    attributes = {f"attachd.{key}": value for key, value in facts.items()}
    # The text of an error may hold what only operators of the backend should read.
    quiet = {"record_exception": False, "set_status_on_exception": False}
    with _State.tracer.start_as_current_span(name, attributes=attributes, **quiet) as made:
        try:
            yield
        except BaseException as error:
            made.set_status(_error(), type(error).__name__)
            raise


@contextlib.contextmanager
def sent(name: str, context: dict[str, Any]) -> Iterator[None]:
    """Record the block as the span of a call, and add the trace to the context of its message.

    :param name: of the span
    """
    if _State.tracer is None:
        yield
        return
    from opentelemetry import propagate, trace  # noqa: PLC0415  installed only for traces

    with _State.tracer.start_as_current_span(name, kind=trace.SpanKind.PRODUCER):
        propagate.inject(context)
        yield


@contextlib.contextmanager
def received(method: str, context: dict[str, Any]) -> Iterator[None]:
    """Record the block as a span of the trace that the context of a message names."""
    if _State.tracer is None:
        yield
        return
    from opentelemetry import propagate, trace  # noqa: PLC0415  installed only for traces

    with _State.tracer.start_as_current_span(
        f"{method} receive", context=propagate.extract(context), kind=trace.SpanKind.CONSUMER
    ):
        yield


def _error() -> Any:
    from opentelemetry import trace  # noqa: PLC0415  installed only for traces

    return trace.StatusCode.ERROR


@dataclasses.dataclass(frozen=True)
class Step:
    """A step that has ended.

    :ivar name: as in ``grant``
    :ivar seconds: how long it took
    :ivar failed: whether it ended with an error
    """

    name: str
    seconds: float
    failed: bool = False


@dataclasses.dataclass
class Operation:
    """An operation in progress.

    :ivar began_at: UTC without a zone, as the tables have it
    :ivar steps: steps that have ended, in order
    """

    began_at: datetime.datetime = dataclasses.field(default_factory=timeutils.utcnow)
    steps: list[Step] = dataclasses.field(default_factory=list)
    started: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Duration so far."""
        return time.monotonic() - self.started


class _Thread(threading.local):
    operation: Operation | None = None


_thread = _Thread()


def current() -> Operation | None:
    """Return the operation of this thread; None: it has none."""
    return _thread.operation


@contextlib.contextmanager
def operation() -> Iterator[Operation]:
    """Start an operation of this thread, which ends with the block."""
    before, _thread.operation = _thread.operation, Operation()
    try:
        yield _thread.operation
    finally:
        _thread.operation = before


@contextlib.contextmanager
def resumed(running: Operation | None) -> Iterator[None]:
    """Make the operation of another thread the one of this thread for the block."""
    before, _thread.operation = _thread.operation, running
    try:
        yield
    finally:
        _thread.operation = before


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Record the duration of the block, if this thread has an operation."""
    current_operation = _thread.operation
    if current_operation is None:
        yield
        return
    started, failed = time.monotonic(), True
    try:
        yield
        failed = False
    finally:
        current_operation.steps.append(Step(name, time.monotonic() - started, failed))
