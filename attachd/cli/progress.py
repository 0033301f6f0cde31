# SPDX-License-Identifier: Apache-2.0
"""What a command waits for: on the terminal, in logs, and after a while with advice."""

from collections.abc import Callable
import datetime
import logging
import threading
import time
from types import TracebackType
from typing import Final, Self, TextIO

from attachd.cli import formatting, terminal

LOG = logging.getLogger(__name__)

DELAY: Final = 3.0
"""Seconds before a request shows what it waits for: most are answered sooner."""
INTERVAL: Final = 2.0
"""Seconds between two lines."""
ADVICE_AFTER: Final = 20.0
"""Seconds of one step, after which the advice is logged."""

_CLEAR = "\r\x1b[2K"
_GAP = "..."

Step = str | Callable[[], str]
"""A step in words; a function is called again for each line."""


class Progress:
    """One line on a terminal that changes; without a terminal, or with -v, log messages.

    The line says how long the present step takes.  If that is long, a warning says so once, since
    when, and what to do; also without a terminal.

    :param stream: standard error
    :param advice: what to do if a step does not end, in a sentence; "": there is none
    :param delay: seconds before a step is shown
    """

    def __init__(self, stream: TextIO, advice: str = "", delay: float = 0.0) -> None:
        self._stream = stream
        self._line = stream.isatty() and not LOG.isEnabledFor(logging.INFO)
        self._advice = advice
        self._delay = delay
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._step: Step = ""
        self._began = 0.0

    def __call__(self, step: Step) -> None:
        """Show the current step."""
        with self._lock:
            self._step, self._began = step, time.monotonic()
        if self._delay == 0:
            self._show(_text(step))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._clear()

    def _tick(self) -> None:
        """Show the step again, with its duration, until the block ends."""
        advised, pause = not self._advice, self._delay or INTERVAL
        while not self._is_over.wait(pause):
            pause = INTERVAL
            with self._lock:
                step, began = self._step, self._began
            seconds = time.monotonic() - began
            text = _text(step) if self._line or seconds >= ADVICE_AFTER else ""
            if self._is_over.is_set() or not text:
                continue
            if not advised and seconds >= ADVICE_AFTER:
                self._advise(text, seconds)
                advised = True
            if self._line:
                self._show(f"{text} ({formatting.duration(int(seconds))})")

    def _advise(self, text: str, seconds: float) -> None:
        since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
        with self._lock:
            self._clear()
            LOG.warning("%s since %s UTC. %s", text, f"{since:%H:%M:%S}", self._advice)

    def _show(self, text: str) -> None:
        if not self._line:
            LOG.info("%s", text)
            return
        with self._lock:
            shown = _shortened(text, terminal.width(self._stream) - 1)
            self._stream.write(f"{_CLEAR}{shown}")
            self._stream.flush()

    def _clear(self) -> None:
        if self._line:
            self._stream.write(_CLEAR)
            self._stream.flush()


def _text(step: Step) -> str:
    return step if isinstance(step, str) else step()


def _shortened(text: str, width: int) -> str:
    """Omit the middle of a text: a line that wraps could not be cleared."""
    if len(text) <= width:
        return text
    half = (width - len(_GAP)) // 2
    return f"{text[:half]}{_GAP}{text[-half:]}"
