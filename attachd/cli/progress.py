# SPDX-License-Identifier: Apache-2.0
"""Progress of an operation on the terminal; for the commands for this host."""

import logging
import os
from types import TracebackType
from typing import Self, TextIO

LOG = logging.getLogger(__name__)

_CLEAR = "\r\x1b[2K"
_WIDTH = 80
_GAP = "..."


class Progress:
    """One line on a terminal that changes; without a terminal, or with -v, log messages.

    :param stream: standard error
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._line = stream.isatty() and not LOG.isEnabledFor(logging.INFO)

    def __call__(self, text: str) -> None:
        """Show the current step."""
        if self._line:
            self._stream.write(f"{_CLEAR}{_shortened(text, self._width() - 1)}")
            self._stream.flush()
        else:
            LOG.info("%s", text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._line:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _WIDTH
        except OSError:
            return _WIDTH


def _shortened(text: str, width: int) -> str:
    """Omit the middle of a text: a line that wraps could not be cleared."""
    if len(text) <= width:
        return text
    half = (width - len(_GAP)) // 2
    return f"{text[:half]}{_GAP}{text[-half:]}"
