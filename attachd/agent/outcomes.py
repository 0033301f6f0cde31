# SPDX-License-Identifier: Apache-2.0
"""Runs commands whose exit codes are answers, or that take hours; for mounts and file systems."""

from collections.abc import Callable, Sequence
import contextlib
import shutil
import subprocess

from attachd.agent import commands
from attachd.agent.commands import Outcome

__all__ = ["Outcome", "run", "run_long", "which"]

_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")


def which(command: str) -> str | None:
    """Return the path of a command, also of those that only root has on its path."""
    return shutil.which(command, path=commands.environment()["PATH"])


def run(arguments: Sequence[str], timeout: float) -> Outcome:
    """Run a command and wait for its end; as commands.outcome()."""
    return commands.outcome(arguments, timeout)


def run_long(arguments: Sequence[str], waiting: Callable[[], None]) -> Outcome:
    """Run a command that may take hours, and that ends when this process does, however that does.

    :param waiting: called about once a second; if it raises, the command is killed
    :raises HostError: it is missing; any exit code is an answer
    """
    if which(arguments[0]) is None:
        raise commands.not_run(arguments[0], FileNotFoundError("it is not installed"))
    try:
        process = subprocess.Popen(  # noqa: S603 (a list of arguments, no shell)
            [*_DIES_WITH_US, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **commands.settings(),
        )
    except (OSError, ValueError) as error:
        raise commands.not_run(arguments[0], error) from error
    with process:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output, complaint = process.communicate(timeout=1)
                    said = commands.one_line(complaint)
                    return Outcome(process.returncode, output, said)
                waiting()
        except BaseException:
            process.kill()
            raise
