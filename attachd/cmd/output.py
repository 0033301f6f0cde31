# SPDX-License-Identifier: Apache-2.0
"""Parts that the commands of attachd-manage share: their actions, and the formats of output."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
import csv
import datetime
import json
import sys
from typing import Any, Final

Row = Mapping[str, Any]

_FORMATS: Final = ("table", "json", "csv")
_ONE: Final = ("table", "json")


def add_subject(subjects: Any, name: str, text: str) -> Any:
    """Add a command to the parser of attachd-manage; return what takes its actions."""
    parser = subjects.add_parser(name, help=text)
    return parser.add_subparsers(title="actions", metavar="ACTION", required=True)


def add_action(
    actions: Any, name: str, action: Callable[[], int | None], text: str
) -> argparse.ArgumentParser:
    """Add an action to a command; an error ends it with the exit code 1."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
    parser.set_defaults(action=action, failed=1)
    return parser


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add the option for the format of a list."""
    _add(parser, _FORMATS)


def add_format_of_one(parser: argparse.ArgumentParser) -> None:
    """Add the option for the format of one object."""
    _add(parser, _ONE)


def _add(parser: argparse.ArgumentParser, choices: Sequence[str]) -> None:
    parser.add_argument(
        "--format",
        choices=choices,
        default="table",
        help="for people or for programs; default: table",
    )


def print_rows(rows: Sequence[Row], columns: Sequence[str], form: str) -> None:
    """Print a list.

    :param columns: of a table; programs get all.  A table without rows is empty
    :param form: table, json or csv
    """
    if form == "json":
        print_json([dict(row) for row in rows])
    elif form == "csv":
        _print_csv(rows, columns)
    elif rows:
        _print_table(rows, columns)


def print_one(row: Row) -> None:
    """Print one object for people, a line for each of its fields."""
    width = max(map(len, row))
    for name, value in row.items():
        print(f"{name:{width}}  {_text(value)}".rstrip())


def print_json(value: Any) -> None:
    """Print for programs; times are in UTC, as in the API."""
    print(json.dumps(value, indent=2, default=_plain))


def _print_csv(rows: Sequence[Row], columns: Sequence[str]) -> None:
    names = list(rows[0]) if rows else list(columns)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if row[name] is None else _in_cell(row[name]) for name in names])


def _print_table(rows: Iterable[Row], columns: Sequence[str]) -> None:
    titles = [name.replace("_", " ") for name in columns]
    lines = [titles, *([_text(row[name]) for name in columns] for row in rows)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(columns))]
    for line in lines:
        print(
            "  ".join(f"{text:{width}}" for text, width in zip(line, widths, strict=True)).rstrip()
        )


def _text(value: Any) -> str:
    """Return a value in one line, without control characters."""
    if value is None:
        return "-"
    if isinstance(value, datetime.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, bool):
        return str(value).lower()
    return "".join(character if character.isprintable() else " " for character in str(value))


def _in_cell(value: Any) -> Any:
    return _plain(value) if isinstance(value, datetime.datetime) else value


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime.datetime) else str(value)
