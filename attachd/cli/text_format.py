# SPDX-License-Identifier: Apache-2.0
"""The output format text: the fields of one object, and what it consists of in sections."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

from cliff import columns
from cliff.formatters import base, table

from attachd.cli import formatting, table_layout, terminal

_INDENT: Final = "  "
_NOTHING: Final = (None, "", "null")


class Text(base.SingleFormatter):
    """Names and values in two columns; values that have parts follow in sections.

    A mapping becomes two columns, a list of mappings a table, another list a line for each item.
    What has no value is left out.
    """

    def __init__(self) -> None:
        self._table = table.TableFormatter()

    def add_argument_group(self, parser: ArgumentParser) -> None:
        """Add no options."""

    def emit_one(
        self,
        column_names: Sequence[str],
        data: Sequence[Any],
        stdout: TextIO,
        parsed_args: Namespace,
    ) -> None:
        """Print the object."""
        width = int(parsed_args.max_width)
        if width <= 0 and stdout.isatty():
            width = terminal.width(stdout)
        values = {
            _title(name): formatting.plain(value)
            for name, value in zip(column_names, data, strict=True)
        }
        fields = {name: value for name, value in values.items() if not _is_nested(value)}
        sections = {name: value for name, value in values.items() if _is_nested(value) and value}
        is_coloured = terminal.is_coloured(stdout)
        lines = self._fields(fields, width, is_coloured=is_coloured)
        stdout.writelines(f"{line}\n" for line in lines)
        for name, value in sections.items():
            stdout.write(f"\n{name}\n")
            self._write_section(value, width, stdout)

    def _write_section(self, value: Any, width: int, stdout: TextIO) -> None:
        is_coloured = terminal.is_coloured(stdout)
        if isinstance(value, Mapping):
            parts = {name: _in_line(part) for name, part in value.items()}
            limit = max(width - len(_INDENT), 1) if width else 0
            lines = list(self._fields(parts, limit, is_coloured=is_coloured))
        elif isinstance(value[0], Mapping):
            self._write_table(value, width, stdout)
            return
        else:
            lines = table_layout.wrap([_in_line(item) for item in value], width)
        stdout.writelines(f"{_INDENT}{line}\n" for line in lines)

    def _write_table(self, rows: Sequence[Mapping[str, Any]], width: int, stdout: TextIO) -> None:
        names = [name for name in rows[0] if any(_is_set(row[name]) for row in rows)]
        listed = table_layout.Table(
            tuple(names), [tuple(_in_line(row[name]) for name in names) for row in rows]
        )
        if terminal.is_coloured(stdout) and listed.width() <= width:
            listed = table_layout.redden(listed)
        settings = Namespace(print_empty=False, max_width=width, fit_width=False)
        self._table.emit_list(listed.names, listed.rows, stdout, settings)

    @staticmethod
    def _fields(values: Mapping[str, Any], width: int, *, is_coloured: bool) -> Iterator[str]:
        known = {name: _in_line(value) for name, value in values.items() if _is_set(value)}
        head = max(map(len, known), default=0) + len(_INDENT)
        for name, value in known.items():
            lines = table_layout.wrap([value], max(width - head, 1) if width else 0, "")
            is_red = is_coloured and terminal.is_wrong(name, value)
            for number, line in enumerate(lines):
                text = terminal.red(line) if is_red else line
                yield f"{'' if number else name:{head}}{text}"


def _title(name: str) -> str:
    """Return the name of a field for people; one that has capitals or blanks is one already."""
    is_plain = name == name.lower() and " " not in name
    return name.replace("_", " ").capitalize() if is_plain else name


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)


def _is_set(value: Any) -> bool:
    return value not in _NOTHING and not (_is_nested(value) and not value)


def _in_line(value: Any) -> str:
    if isinstance(value, columns.FormattableColumn):
        return str(value.human_readable())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_in_line(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_in_line(part) for part in value)
    return "" if value is None else str(value)
