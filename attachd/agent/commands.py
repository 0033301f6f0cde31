# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a host in bounded time; for the ways of attaching.

No secret is ever given to a command: its line can be read by everybody on the host.
"""

from collections.abc import Mapping, Sequence
import os
from pathlib import Path
import shutil
import subprocess
import threading

from attachd import exception

SECONDS = 60.0
"""What a command has, unless somebody says otherwise."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run(*line: str, seconds: float = SECONDS, keeping: Sequence[int] = ()) -> str:
    """Run a command and wait for its end.

    A Ctrl-C in the terminal does not reach it: what was begun is finished.

    :param seconds: after which it is killed; one that hangs in the kernel may live on
    :param keeping: file descriptors that it keeps open, so that a lock lasts until its end also
        when this process is killed
    :returns: its standard output
    :raises HostError: it is missing, failed or was killed
    """
    try:
        process = subprocess.Popen(  # noqa: S603 (a list of arguments, no shell)
            line,
            env=environment(),
            errors="replace",
            pass_fds=keeping,
            process_group=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except OSError as error:
        raise exception.HostError(reason=f"{line[0]} could not be run: {error}.") from error
    try:
        output, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        _give_up(process)
        raise exception.HostError(
            reason=f"'{' '.join(line)}' did not end in {seconds:g} s."
        ) from error
    if process.returncode:
        said = " ".join(complaint.split()) or f"exit code {process.returncode}"
        raise exception.HostError(reason=f"'{' '.join(line)}' failed: {said}")
    return output


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
