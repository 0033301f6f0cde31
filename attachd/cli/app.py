# SPDX-License-Identifier: Apache-2.0
"""The command attachd: attaches volumes to this host, and manages attachments."""

import argparse
from collections.abc import Sequence
import functools
from importlib import metadata
import logging
import sys
from typing import Any, Final

from cliff import app, command, commandmanager
from openstack import exceptions
from oslo_utils import strutils

from attachd.cli import completion
from attachd.cli.clouds import NAME, Cloud
from attachd.cli.commands import wrong

COMMANDS: Final = "attachd.cli"
"""Entry point group of the commands."""
LEVELS: Final = {0: logging.ERROR, 1: logging.WARNING, 2: logging.INFO}
"""Log levels on standard error with -q, by default and with -v; -vv logs all."""


class Attachd(app.App):
    """The application.

    :param words: its command line
    :ivar client_manager: the cloud, under the name that ``openstack`` uses
    """

    NAME = NAME
    LOG = logging.getLogger("attachd.cli")

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self.client_manager = Cloud()
        super().__init__(
            description="Attach volumes to this host, and look after attachments.",
            version=metadata.version(NAME),
            command_manager=commandmanager.CommandManager(COMMANDS),
            deferred_help=True,
        )
        self.command_manager.add_command("complete", completion.Complete)

    def build_option_parser(
        self,
        description: str | None,
        version: str | None,
        argparse_kwargs: dict[str, Any] | None = None,
    ) -> argparse.ArgumentParser:
        """Return the parser of the global options."""
        settings = {
            "prog": NAME,
            # It also parses the options of commands, which must not match as abbreviations.
            "allow_abbrev": False,
            # cliff's --version has the name of the file that runs.
            "conflict_handler": "resolve",
            **(argparse_kwargs or {}),
        }
        parser = super().build_option_parser(description, version, settings)
        parser.add_argument("--version", action="version", version=f"{NAME} {version}")
        vars(parser)["error"] = functools.partial(wrong, parser)
        self.client_manager.add_options(parser, self._words)
        return parser

    def configure_logging(self) -> None:
        """Log to standard error, without secrets and tracebacks."""
        handler = logging.StreamHandler(self.stderr)
        level = LEVELS.get(self.options.verbose_level, logging.DEBUG)
        handler.setLevel(level)
        handler.setFormatter(_Formatter(debug=self.options.debug))
        if level > logging.INFO and not self.options.debug:
            # The command itself reports the warnings of libraries that matter.
            handler.addFilter(logging.Filter(NAME))
        root = logging.getLogger()
        root.addHandler(handler)
        root.setLevel(level)
        if self.options.log_file:
            file = logging.FileHandler(self.options.log_file)
            file.setFormatter(_Formatter(self.LOG_FILE_MESSAGE_FORMAT, debug=True))
            root.addHandler(file)
            root.setLevel(logging.DEBUG)

    def initialize_app(self, argv: list[str]) -> None:
        """Store the options, and check that there is a command."""
        self.client_manager.options = self.options
        if not argv and not self.options.deferred_help:
            self.parser.error("name a command")

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command, and return the exit code."""
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            near = ", ".join(self.get_fuzzy_matches(argv[0]))
            self.parser.error(
                f"there is no command {argv[0]!r}{f'; did you mean {near}?' if near else ''}"
            )
        return super().run_subcommand(argv)

    def clean_up(
        self,
        cmd: command.Command,  # noqa: ARG002 (cliff gives all of them)
        result: int,  # noqa: ARG002
        err: BaseException | None,  # noqa: ARG002
    ) -> None:
        """Close the connection."""
        self.client_manager.close()


class _Formatter(logging.Formatter):
    """Formats messages without passwords, and with tracebacks only if they are requested."""

    def __init__(self, text: str = "%(message)s", *, debug: bool) -> None:
        super().__init__(text)
        self._debug = debug

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a message."""
        code = _reason_code(record.msg)
        if not self._debug:
            record = logging.makeLogRecord({**vars(record), "exc_info": None, "exc_text": None})
        return strutils.mask_password(super().format(record)) + (f" ({code})" if code else "")


def _reason_code(error: Any) -> str | None:
    """Return the code that the service gave beside the message of an error; None: it gave none."""
    try:
        (fault,) = error.response.json().values()
        return f"{fault['reason_code']}"
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def main() -> int:
    """Execute the command line.

    :returns: the exit code: 0 done, 1 failed, 2 wrong command line
    """
    words = sys.argv[1:]
    try:
        return Attachd(words).run(words)
    except exceptions.SDKException as error:
        # The options of a cloud are checked before there is a program that could report an error.
        where = ""
        if isinstance(error, exceptions.ConfigException):
            where = (
                " Clouds are those of clouds.yaml, here, in ~/.config/openstack or /etc/openstack."
            )
        sys.stderr.write(f"{NAME}: {error}{where}\n")
        return 1
