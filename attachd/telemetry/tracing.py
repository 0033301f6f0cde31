# SPDX-License-Identifier: Apache-2.0
"""Traces in OpenTelemetry, if they are enabled; set up by each process.

oslo.middleware creates the span of a request, oslo.messaging those of calls, and passes the trace
to the other side.  attachd adds spans for the manager's operations.  All go to one collector,
which the options of oslo.middleware name; if they are off, a span costs one test of a variable.
"""

from collections.abc import Iterator
import contextlib
import os
from typing import Any

from oslo_middleware import tracing

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
    tracing.set_defaults(service_name=program)
    CONF.register_opts(tracing.TRACING_OPTS, group="oslo_middleware_tracing")
    if not CONF.oslo_middleware_tracing.enabled or _State.pid == os.getpid():
        return
    try:
        tracing.init_tracing(CONF)
    except RuntimeError as error:
        raise exception.ConfigurationError(
            reason=f"[oslo_middleware_tracing]enabled: {error}."
        ) from error
    from opentelemetry import trace  # noqa: PLC0415  it is there only if traces are wanted

    CONF.set_default("tracing_enabled", True, group="oslo_messaging_tracing")
    _State.tracer, _State.pid = trace.get_tracer("attachd"), os.getpid()


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


def _error() -> Any:
    from opentelemetry import trace  # noqa: PLC0415  it is there only if traces are wanted

    return trace.StatusCode.ERROR
