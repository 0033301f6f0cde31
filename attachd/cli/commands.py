# SPDX-License-Identifier: Apache-2.0
"""Base classes of all commands, for ``attachd`` and ``openstack``."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
import contextlib
import functools
import os
import sys
from typing import Any, ClassVar, Final, NoReturn

from cliff import command, lister, show
from openstack import connection, exceptions

from attachd import exception
from attachd.cli import options, progress, table_layout, terminal
from attachd.cli.table_layout import Layout, Table

TEXT: Final = "text"
"""The format with sections."""
ERROR: Final = "Error"
"""The heading of the column with errors."""


def wrong(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Exit because of a wrong command line, with one line, where argparse prints all options."""
    parser.exit(2, f"{parser.prog}: {message}\nSee '{parser.prog} --help'.\n")


class Command(command.Command):
    """A command that calls the API.

    :cvar auth_required: read by ``openstack``
    :cvar arguments: the options and arguments of the command
    """

    auth_required = True
    arguments: ClassVar[Sequence[options.Option]] = ()
    _parser: argparse.ArgumentParser

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command's own options."""
        self._parser = super().get_parser(prog_name)
        # cliff creates the parser, so the method is replaced on the instance.
        vars(self._parser)["error"] = functools.partial(wrong, self._parser)
        options.add(self._parser, self.arguments)
        return self._parser

    @property
    def connection(self) -> connection.Connection:
        """The cloud that the command line names."""
        # Both programs have it there, and cliff knows of neither.
        manager = vars(self.app)["client_manager"]
        made: connection.Connection = manager.sdk_connection
        return made

    @contextlib.contextmanager
    def waiting(self, step: progress.Step, advice: str) -> Iterator[progress.Progress]:
        """Show what the requests of the block wait for, since when, and what to do.

        :param advice: if it does not end
        """
        with progress.Progress(sys.stderr, advice, progress.DELAY) as shown:
            shown(step)
            yield shown

    def refuse(self, message: str) -> NoReturn:
        """Exit because of a wrong combination of options."""
        wrong(self._parser, message)


class _WidthLimit(Command):
    """A command whose tables are as wide as the terminal, or PIPE_WIDTH where there is none."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser; in a terminal cliff limits the width by itself."""
        parser = super().get_parser(prog_name)
        if "CLIFF_MAX_TERM_WIDTH" not in os.environ and not self.app.stdout.isatty():
            parser.set_defaults(max_width=terminal.PIPE_WIDTH)
        return parser

    def max_width(self, parsed_args: argparse.Namespace) -> int:
        """Return the characters of a line; 0: any number."""
        limit = int(parsed_args.max_width)
        if limit > 0 or not self.app.stdout.isatty():
            return max(limit, 0)
        return terminal.width(self.app.stdout)


class ShowOne(_WidthLimit, show.ShowOne, Command):
    """A command that shows one object."""


class Describe(ShowOne):
    """A command that shows one object to people as text with sections, and not as a table."""

    @property
    def formatter_namespace(self) -> str:
        """Return the group of its output formats: those of all commands, and text."""
        return "attachd.formatter.describe"

    @property
    def formatter_default(self) -> str:
        """Return the name of the format for people."""
        return TEXT

    @staticmethod
    def is_for_people(parsed_args: argparse.Namespace) -> bool:
        """Return whether to show what people want to know; otherwise the fields of the API."""
        return parsed_args.formatter == TEXT and not parsed_args.columns


class Lister(_WidthLimit, lister.Lister, Command):
    """A command that shows a list.

    Errors are sentences, too long for a column: they are below the table.

    :cvar layout: the columns of a table; formats for programs have all
    :cvar long_layout: those with --long
    """

    layout: ClassVar[Layout] = Layout()
    long_layout: ClassVar[Layout] = Layout()

    def produce_output(
        self,
        parsed_args: argparse.Namespace,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
    ) -> int:
        """Print the list."""
        table = Table(tuple(column_names), [tuple(row) for row in data])
        errors: list[str] = []
        if parsed_args.formatter == "table":
            width, is_coloured = (
                self.max_width(parsed_args),
                terminal.is_coloured(self.app.stdout),
            )
            if not parsed_args.columns:
                names, rows, errors = split_errors(*table)
                errors = table_layout.wrap(errors, width)
                table = self._fit(parsed_args, Table(names, rows), width)
            table = table_layout.fill(table)
            # A colour would be cut where cliff wraps the cells.
            if is_coloured and table.width() <= width:
                table = table_layout.redden(table)
            errors = [terminal.red(line) if is_coloured else line for line in errors]
        code = super().produce_output(parsed_args, *table)
        self.app.stdout.writelines(f"{line}\n" for line in errors)
        return int(code)

    def _fit(self, parsed_args: argparse.Namespace, table: Table, width: int) -> Table:
        """Return the columns that fit; name those of --long that do not."""
        if not getattr(parsed_args, "long", False):
            return table_layout.fit(table, self.layout, width)
        fitting = table_layout.fit(table, self.long_layout, width)
        missing = [name for name in table.names if name not in fitting.names]
        if missing:
            self.app.stderr.write(
                f"Left out for want of width: {', '.join(missing)}. -f json shows all.\n"
            )
        return fitting


def split_errors(
    names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]], list[str]]:
    """Split the column Error from a list.

    :returns: the names and rows without it, and its lines, each with the first value of its row
    """
    kept = [number for number, name in enumerate(names) if name != ERROR]
    errors = [
        f"{next(filter(None, row), '')}: {value}"
        for row in rows
        for name, value in zip(names, row, strict=True)
        if name == ERROR and value
    ]
    shown = [tuple(row[number] for number in kept) for row in rows]
    return tuple(names[number] for number in kept), shown, errors


class BatchCommand(Command):
    """A command that handles several objects one by one."""

    def run_each(self, names: Iterable[str], act: Callable[[str], None]) -> int:
        """Handle each; continue after a failure.

        :returns: the exit code
        """
        failed = 0
        for name in names:
            try:
                act(name)
            except (exceptions.HttpException, exception.HostError) as error:
                failed = 1
                self.app.stderr.write(f"{name}: {error}\n")
        return failed
