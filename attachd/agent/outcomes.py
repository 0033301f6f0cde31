# SPDX-License-Identifier: Apache-2.0
"""Runs commands whose exit codes are answers, or that take hours; for mounts and file systems."""

from collections.abc import Callable, Sequence
import contextlib
from dataclasses import dataclass
import shutil
import subprocess
from typing import Any

from attachd import exception
from attachd.agent import commands

_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")


@dataclass(frozen=True)
class Outcome:
    """What a command answered.

    :ivar code: its exit code; negative: the signal that ended it
    :ivar output: its standard output
    :ivar complaint: its standard error, in one line
    """

    code: int
    output: str
    complaint: str


def which(command: str) -> str | None:
    """Return the path of a command, also of those that only root has on its path."""
    return shutil.which(command, path=commands.environment()["PATH"])


def run(arguments: Sequence[str], timeout: float) -> Outcome:
    """Run a command and wait for its end.

    Its messages are in English, and a Ctrl-C in our terminal does not reach it.

    :param timeout: seconds after which it is killed
    :raises HostError: it is missing, or was killed and may have had effect; any exit code is an
        answer
    """
    try:
        done = subprocess.run(  # noqa: S603 (a list of arguments, no shell)
            arguments, capture_output=True, check=False, timeout=timeout, **_settings()
        )
    except subprocess.TimeoutExpired as error:
        raise exception.HostError(
            reason=f"{arguments[0]} did not end within {timeout:g} s. Repeat the command."
        ) from error
    except (OSError, ValueError) as error:
        raise _not_run(arguments[0], error) from error
    return _outcome(done.returncode, done.stdout, done.stderr)


def run_long(arguments: Sequence[str], waiting: Callable[[], None]) -> Outcome:
    """Run a command that may take hours, and that ends when this process does, however that does.

    :param waiting: called about once a second; if it raises, the command is killed
    :raises HostError: it is missing; any exit code is an answer
    """
    if which(arguments[0]) is None:
        raise _not_run(arguments[0], FileNotFoundError("it is not installed"))
    try:
        process = subprocess.Popen(  # noqa: S603 (a list of arguments, no shell)
            [*_DIES_WITH_US, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **_settings(),
        )
    except (OSError, ValueError) as error:
        raise _not_run(arguments[0], error) from error
    with process:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output, complaint = process.communicate(timeout=1)
                    return _outcome(process.returncode, output, complaint)
                waiting()
        except BaseException:
            process.kill()
            raise


def _settings() -> dict[str, Any]:
    return {
        "env": commands.environment(),
        "errors": "replace",
        "process_group": 0,
        "stdin": subprocess.DEVNULL,
        "text": True,
    }


def _outcome(code: int, output: str, complaint: str) -> Outcome:
    return Outcome(code, output, " ".join(complaint.split()))


def _not_run(command: str, error: Exception) -> exception.HostError:
    return exception.HostError(reason=f"{command} could not be run: {error}.")
