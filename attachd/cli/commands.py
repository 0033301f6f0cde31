# SPDX-License-Identifier: Apache-2.0
"""What all commands have in common, whether ``attachd`` or ``openstack`` runs them."""

import argparse
from collections.abc import Callable, Iterable
import functools
from typing import ClassVar, NoReturn

from cliff import command, lister, show
from openstack import connection, exceptions

from attachd.cli import options


def wrong(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """End because of a wrong command line: in one line, where argparse prints all options."""
    parser.exit(2, f"{parser.prog}: {message}\nSee '{parser.prog} --help'.\n")


class Command(command.Command):
    """A command that asks the API.

    :cvar auth_required: what ``openstack`` wants to be told
    """

    auth_required = True
    _parser: argparse.ArgumentParser

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command's own options."""
        self._parser = super().get_parser(prog_name)
        # cliff makes the parser; this is the way to give it a method without making one here.
        vars(self._parser)["error"] = functools.partial(wrong, self._parser)
        return self._parser

    @property
    def connection(self) -> connection.Connection:
        """The cloud that the command line names."""
        # Both programs have it there, and cliff knows of neither.
        manager = vars(self.app)["client_manager"]
        made: connection.Connection = manager.sdk_connection
        return made

    def refuse(self, message: str) -> NoReturn:
        """End because options do not go together."""
        wrong(self._parser, message)


class ShowOne(show.ShowOne, Command):
    """A command that shows one thing."""


class Lister(lister.Lister, Command):
    """A command that shows a list."""


class EachOf(Command):
    """A command on several things, each for itself.

    :cvar names: the argument that names them
    """

    names: ClassVar[options.Option]

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add the argument."""
        parser = super().get_parser(prog_name)
        options.add(parser, (self.names,))
        return parser

    def each(self, names: Iterable[str], act: Callable[[str], None]) -> int:
        """Go through all; one that fails does not keep the others.

        :returns: the exit code
        """
        failed = 0
        for name in names:
            try:
                act(name)
            except exceptions.HttpException as error:
                failed = 1
                self.app.stderr.write(f"{name}: {error}\n")
        return failed
