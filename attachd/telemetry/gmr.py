# SPDX-License-Identifier: Apache-2.0
"""Guru Meditation Reports: the state of a process on request; set up by each process.

oslo.reports writes one at SIGUSR2 or when a file is touched: threads with their stacks, and the
configuration with its secrets masked.  Other modules add sections.  A section must not wait for a
lock or make a call: a report is needed most for a process that hangs.
"""

from collections import Counter
from collections.abc import Callable, Iterable
import contextlib
from importlib import metadata
import os
import signal
import threading
import types
from typing import Any

from oslo_log import log
from oslo_reports import guru_meditation_report as gmr
from oslo_reports import opts
from oslo_reports.models import base

from attachd.conf import CONF

LOG = log.getLogger(__name__)

Lines = Callable[[], Iterable[str]]
"""Returns the lines of a section, without secrets."""


class _Name:
    """Prefix of files with reports; computed late, because signal handlers survive a fork."""

    def __init__(self, program: str) -> None:
        self._program = program

    def __str__(self) -> str:
        """Return the program with the id of this process: several may write at a time."""
        return f"{self._program}-{os.getpid()}"


class _State:
    """What was started in this process, and in its parent before the fork."""

    sections: dict[str, Lines] = {}
    watching = 0


def setup(program: str) -> None:
    """Write reports from now on: by signal if this is the main thread, or by file.

    A signal handler survives a fork, the watch of a file does not: a forked process calls this
    again.

    :param program: for the names of files in [oslo_reports]log_dir
    """
    opts.set_defaults(CONF)
    register_section("Threads by name", _threads)
    report: Any = gmr.TextGuruMeditation
    name = _Name(program)
    version = types.SimpleNamespace(
        vendor_string=lambda: "attachd",
        product_string=lambda: "attachd",
        version_string_with_package=lambda: metadata.version("attachd"),
    )
    if file := CONF.oslo_reports.file_event_handler:
        if _State.watching != os.getpid():
            _State.watching = os.getpid()
            try:
                report.setup_autorun(version, name, conf=CONF, setup_signal=False)
            except OSError as error:
                LOG.warning("Reports cannot be requested by %s: %s", file, error.strerror)
    elif threading.current_thread() is threading.main_thread():
        # Of several applications in one uWSGI, only the first may handle signals.
        with contextlib.suppress(ValueError):
            report.setup_autorun(version, name, conf=CONF, signum=signal.SIGUSR2)


def register_section(title: str, lines: Lines) -> None:
    """Add a section to the reports of this process."""
    if title not in _State.sections:
        report: Any = gmr.TextGuruMeditation
        report.register_section(title, lambda: _section(title))
    _State.sections[title] = lines


def _section(title: str) -> Any:
    """Return a section of the report; its failure must not affect the others."""
    try:
        lines = list(_State.sections[title]())
    except Exception as error:  # noqa: BLE001  of the kind only: the text may hold a secret
        lines = [f"This section failed: {type(error).__name__}"]
    text = "\n".join(lines) or "nothing"
    return base.ReportModel({"text": text}, attached_view=lambda _model: text)


def _threads() -> Iterable[str]:
    names = Counter(thread.name.rstrip("0123456789-_") for thread in threading.enumerate())
    return (f"{many:4} {name}" for name, many in sorted(names.items()))
