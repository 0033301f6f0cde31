# SPDX-License-Identifier: Apache-2.0
"""Settings of the interpreter in processes that are attachd's own.

Only entry points change them, before they import anything else: the package ``attachd.cmd``, the
command ``attachd`` and the tests.  A program that imports ``attachd.client`` or a plug-in of
attachd keeps its own.
"""

import io
import sys
from types import TracebackType


def use_threads() -> None:
    """Select oslo.service's threading backend, and hide eventlet from the libraries.

    oslo.messaging and os-brick would select eventlet by their import.  taskflow's libraries import
    it wherever they find it, only to check that it exists; it warns about each fork.
    """
    sys.modules.setdefault("eventlet", None)  # type: ignore[arg-type]
    from oslo_service import backend  # noqa: PLC0415  after eventlet is hidden

    if backend.get_backend_type() is None:
        backend.init_backend(backend.BackendType.THREADING)


def escape_output() -> None:
    """Escape characters of names that the encoding of the standard output lacks, as on errors."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def end_quietly_on_interrupt() -> None:
    """Have Ctrl-C end the process without a traceback, also during imports.

    Imports are most of the time that a command takes to start.
    """
    sys.excepthook = _print_unless_interrupted


def _print_unless_interrupted(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    elif sys.stderr.isatty():
        sys.stderr.write("\n")  # The terminal has written ^C.
