# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a host in bounded time; for whatever is done there.

No secret is ever given to a command: its line can be read by everybody on the host.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import os
from pathlib import Path
import shutil
import subprocess
import threading
from typing import Any

from attachd import exception

SECONDS = 60.0
"""What a command has, unless somebody says otherwise."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


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


def run(*line: str, seconds: float = SECONDS, keeping: Sequence[int] = ()) -> str:
    """Run a command that has to succeed, and wait for its end.

    :param seconds: as :func:`outcome` has it
    :param keeping: file descriptors that it keeps open, so that a lock lasts until its end also
        when this process is killed
    :returns: its standard output
    :raises HostError: it is missing, failed or was killed
    """
    ended = outcome(line, seconds, keeping)
    if ended.code:
        said = ended.complaint or f"exit code {ended.code}"
        raise exception.HostError(reason=f"'{' '.join(line)}' failed: {said}")
    return ended.output


def outcome(line: Sequence[str], seconds: float, keeping: Sequence[int] = ()) -> Outcome:
    """Run a command and wait for its end.

    Its messages are in English, and a Ctrl-C in the terminal does not reach it: what was begun is
    finished.

    :param seconds: after which it is killed; one that hangs in the kernel may live on
    :param keeping: file descriptors that it keeps open
    :raises HostError: it is missing, or was killed and may have had effect; any exit code is an
        answer
    """
    try:
        process = subprocess.Popen(  # noqa: S603 (a list of arguments, no shell)
            line,
            pass_fds=keeping,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **settings(),
        )
    except (OSError, ValueError) as error:
        raise not_run(line[0], error) from error
    try:
        output, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        _give_up(process)
        raise exception.HostError(
            reason=f"'{' '.join(line)}' did not end in {seconds:g} s."
        ) from error
    return Outcome(process.returncode, output, one_line(complaint))


def settings() -> dict[str, Any]:
    """Return how commands are started whose output is read."""
    return {
        "env": environment(),
        "errors": "replace",
        "process_group": 0,
        "stdin": subprocess.DEVNULL,
        "text": True,
    }


def one_line(complaint: str) -> str:
    """Return what a command said, in one line."""
    return " ".join(complaint.split())


def not_run(command: str, error: Exception) -> exception.HostError:
    """Return the error about a command that could not be run."""
    return exception.HostError(reason=f"{command} could not be run: {error}.")


def start(*line: str, folder: Path, log: Path) -> None:
    """Start a daemon that outlives this process; nobody waits for it.

    It gets a session of its own and none of our files.  From the return of this function until
    its end it can be found in /proc, by its line and its folder.

    :param folder: where it works
    :param log: what it prints is written there, for root alone
    :raises HostError: it could not be started
    """
    file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        subprocess.run(  # noqa: S603 (a list of arguments, no shell)
            ["setsid", "--fork", *line],  # noqa: S607 (on the path of environment())
            check=True,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            timeout=SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise exception.HostError(reason=f"{line[0]} could not be started: {error}.") from error
    finally:
        os.close(file)


def missing(packages: Mapping[str, str]) -> list[str]:
    """Name the commands that are not there.

    :param packages: Debian's packages by command
    :returns: such as ``iscsiadm (package open-iscsi)``
    """
    path = environment()["PATH"]
    return [
        f"{name} (package {package})"
        for name, package in packages.items()
        if not shutil.which(name, path=path)
    ]


def _give_up(process: subprocess.Popen[str]) -> None:
    """Kill a process; one that hangs in the kernel is waited for by somebody else."""
    process.kill()
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
    threading.Thread(target=process.wait, daemon=True).start()


def environment() -> dict[str, str]:
    """Return what commands are told: where commands are, and to speak English."""
    return {"PATH": f"{os.environ.get('PATH', os.defpath)}:{_PATH}", "LC_ALL": "C"}
