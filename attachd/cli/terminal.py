# SPDX-License-Identifier: Apache-2.0
"""The width of the output, and colour for what is wrong; for people at a terminal."""

from collections.abc import Mapping
import os
from types import MappingProxyType
from typing import Any, Final

PIPE_WIDTH: Final = 120
"""Characters of a line where no terminal shows it."""
_DEFAULT_WIDTH: Final = 80

_BAD: Final = frozenset(
    {
        *("error", "error_attaching", "error_detaching", "error_deleting", "error_extending"),
        *("failed", "degraded", "down", "conflict", "missing", "gone", "unproven"),
    }
)
_WRONG: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        **dict.fromkeys(("Status", "State", "Condition", "Agent", "Agent State", "Result"), _BAD),
        "Type": frozenset(
            {"connect_failed", "connect_unknown", "disconnect_failed", "detach_refused"}
        ),
        "Present": frozenset({"False"}),
    }
)
"""The first words of what is wrong, by the heading of the column or field."""
_ALWAYS_WRONG: Final = frozenset({"Error", "Conflict"})
_RED: Final = "\x1b[31m{}\x1b[39m"


def width(stream: Any) -> int:
    """Return the number of characters of a line on a stream."""
    if not stream.isatty():
        return PIPE_WIDTH
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_WIDTH
    except (OSError, ValueError):
        return _DEFAULT_WIDTH


def is_coloured(stream: Any) -> bool:
    """Return whether a stream is a terminal whose user wants colours: see https://no-color.org."""
    environment = os.environ
    wanted = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    return wanted and bool(stream.isatty())


def is_wrong(heading: str, text: str) -> bool:
    """Return whether a value says that something is wrong."""
    if heading in _ALWAYS_WRONG:
        return bool(text)
    first, _space, _rest = text.partition(" ")
    return first.rstrip(",:") in _WRONG.get(heading, ())


def red(text: str) -> str:
    """Return a text in red, for a terminal."""
    return _RED.format(text)
