# SPDX-License-Identifier: Apache-2.0
"""Base classes of all commands, for ``attachd`` and ``openstack``."""

import argparse
from collections.abc import Callable, Iterable, Sequence
import functools
from typing import Any, ClassVar, Final, NoReturn

from cliff import command, lister, show
from openstack import connection, exceptions

from attachd import exception
from attachd.cli import options

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

    def refuse(self, message: str) -> NoReturn:
        """Exit because of a wrong combination of options."""
        wrong(self._parser, message)


class ShowOne(show.ShowOne, Command):
    """A command that shows one object."""


class Lister(lister.Lister, Command):
    """A command that shows a list.

    Errors are sentences, too long for a column: they are below the table.
    """

    def produce_output(
        self,
        parsed_args: argparse.Namespace,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
    ) -> int:
        """Print the list."""
        names, rows = tuple(column_names), [tuple(row) for row in data]
        errors: list[str] = []
        if parsed_args.formatter == "table" and not parsed_args.columns:
            names, rows, errors = split_errors(names, rows)
        code = super().produce_output(parsed_args, names, rows)
        self.app.stdout.writelines(errors)
        return int(code)


def split_errors(
    names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]], list[str]]:
    """Split the column Error from a list.

    :returns: the names and rows without it, and its lines, each with the first value of its row
    """
    kept = [number for number, name in enumerate(names) if name != ERROR]
    errors = [
        f"{next(filter(None, row), '')}: {value}\n"
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
