# SPDX-License-Identifier: Apache-2.0
"""Columns of tables that fit into a line, in the order for people; for commands.py."""

from collections.abc import Iterable, Sequence
import textwrap
from typing import Any, NamedTuple

from cliff import columns

from attachd.cli import terminal

_BORDERS = 3
"""Characters beside each column of a table; one more for the table."""

Row = tuple[Any, ...]


class Layout(NamedTuple):
    """The columns that a table has for people.

    :ivar order: their headings, from left to right; (): all of the list
    :ivar optional: those that are left out where the table is too wide, the first one first; one
        without any value before all others
    """

    order: Sequence[str] = ()
    optional: Sequence[str] = ()


class Table(NamedTuple):
    """A part of a list.

    :ivar names: the headings
    """

    names: tuple[str, ...]
    rows: list[Row]

    def select(self, names: Sequence[str]) -> "Table":
        """Return the table with these columns only."""
        kept = [self.names.index(name) for name in names]
        return Table(tuple(names), [tuple(row[number] for number in kept) for row in self.rows])

    def width(self) -> int:
        """Return the characters of a line."""
        return 1 + sum(_BORDERS + self._width_of(number) for number in range(len(self.names)))

    def _width_of(self, number: int) -> int:
        cells = (len(line) for row in self.rows for line in text(row[number]).splitlines())
        return max(len(self.names[number]), max(cells, default=0))


def fit(table: Table, layout: Layout, width: int) -> Table:
    """Return the columns of a layout that fit.

    :param width: of a line; 0: any
    """
    table = table.select([name for name in layout.order or table.names if name in table.names])
    optional = [name for name in layout.optional if name in table.names]
    empty = [name for name in optional if _is_empty(table, name)]
    for name in dict.fromkeys([*empty, *optional]):
        if not width or table.width() <= width:
            break
        table = table.select([other for other in table.names if other != name])
    return table


def _is_empty(table: Table, name: str) -> bool:
    number = table.names.index(name)
    return all(not text(row[number]) for row in table.rows)


def fill(table: Table) -> Table:
    """Return a table with empty cells in place of missing values."""
    rows = [tuple("" if value is None else value for value in row) for row in table.rows]
    return Table(table.names, rows)


def redden(table: Table) -> Table:
    """Return a table with what is wrong in red."""
    return Table(
        table.names,
        [
            tuple(_reddened(name, value) for name, value in zip(table.names, row, strict=True))
            for row in table.rows
        ],
    )


def _reddened(name: str, value: Any) -> Any:
    shown = text(value)
    return terminal.red(shown) if terminal.is_wrong(name, shown) else value


def text(value: Any) -> str:
    """Return a cell as people see it; None: empty."""
    if isinstance(value, columns.FormattableColumn):
        value = value.human_readable()
    return "" if value is None else str(value)


def wrap(lines: Iterable[str], width: int, indent: str = "    ") -> list[str]:
    """Return lines, those after the first of a longer one indented; words stay whole."""
    return [
        part
        for line in lines
        for part in textwrap.wrap(
            line,
            width or len(line) + 1,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        or [""]
    ]
