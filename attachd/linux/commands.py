# SPDX-License-Identifier: Apache-2.0
"""Commands of this host, with timeouts; drivers run them through drivers/command.py.

No secret is ever passed to a command: every user of the host can read its command line.

oslo_concurrency.processutils is not used.  It closes all file descriptors in the command, so that
a command could not keep a lock; it leaves a command that has timed out running; and it forks the
whole process: 11 ms of CPU time in a manager, where this module takes 0.9 ms.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
from dataclasses import dataclass
import logging
import os
from pathlib import Path
import shutil
import subprocess
import threading
import time

from oslo_utils import strutils

from attachd import exception

LOG = logging.getLogger(__name__)

Process = subprocess.Popen[str]

DEFAULT_TIMEOUT = 60.0
"""Seconds after which a command is killed."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


@dataclass(frozen=True)
class CommandResult:
    """The end of a command.

    :ivar exit_code: negative: the signal that ended it
    :ivar stdout: its standard output
    :ivar stderr: its standard error, in one line
    """

    exit_code: int
    stdout: str
    stderr: str


def _reap_in_thread(process: Process) -> None:
    """Wait for a killed process in a thread, as it may hang in the kernel."""
    threading.Thread(target=process.wait, daemon=True).start()


def _no_progress() -> None:
    return


def run(
    *line: str,
    timeout: float = DEFAULT_TIMEOUT,
    pass_fds: Sequence[int] = (),
    progress: Callable[[], object] = _no_progress,
    stdin: str | None = None,
) -> str:
    """Run a command that has to succeed, and wait for its end.

    :param timeout: as :func:`execute` takes it
    :param progress: as :func:`execute` takes it
    :param pass_fds: file descriptors that it keeps open, so that a lock lasts until its end also
        when this process is killed
    :param stdin: its standard input, which may be a secret; None: it has none
    :returns: its standard output
    :raises HostError: it is missing, failed or was killed
    """
    result = execute(line, timeout, pass_fds, progress=progress, stdin=stdin)
    if result.exit_code:
        reason = result.stderr or f"exit code {result.exit_code}"
        raise exception.HostError(reason=f"'{_mask(line)}' failed: {reason}")
    return result.stdout


def execute(
    line: Sequence[str],
    timeout: float,
    pass_fds: Sequence[int] = (),
    *,
    environment: Mapping[str, str] | None = None,
    progress: Callable[[], object] = _no_progress,
    reap: Callable[[Process], object] = _reap_in_thread,
    stdin: str | None = None,
) -> CommandResult:
    """Run a command and wait for its end; any exit code is a result.

    Its messages are in English.  A Ctrl-C in the terminal does not reach it, so that it finishes
    what it has begun.

    :param timeout: seconds after which it is killed; one that hangs in the kernel may live on
    :param pass_fds: file descriptors that it keeps open
    :param environment: variables beside PATH and LC_ALL, which are all that it gets
    :param progress: called each ``timeout`` seconds: the command goes on if the result is another
    :param reap: waits for the end of a killed command
    :param stdin: as :func:`run` takes it
    :raises HostError: it is missing, or was killed and may have had effect
    """
    started = time.monotonic()
    process = _start(line, line, environment, pass_fds, has_input=stdin is not None)
    try:
        stdout, stderr = _communicate(process, timeout, progress, stdin)
    except subprocess.TimeoutExpired as error:
        process.kill()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
        reap(process)
        raise exception.HostError(
            reason=f"'{_mask(line)}' did not end in {timeout:g} s."
        ) from error
    if LOG.isEnabledFor(logging.DEBUG):
        elapsed = time.monotonic() - started
        LOG.debug("Exit %d after %.3f s: %s", process.returncode, elapsed, _mask(line))
    return CommandResult(process.returncode, stdout, _one_line(stderr))


def _communicate(
    process: Process, timeout: float, progress: Callable[[], object], stdin: str | None
) -> tuple[str, str]:
    """Return the output of a process; raises TimeoutExpired after a time without progress."""
    reached = progress()
    while True:
        try:
            return process.communicate(input=stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            stdin = None  # communicate() has it
            before, reached = reached, progress()
            if reached == before:
                raise


def run_long(
    line: Sequence[str], on_wait: Callable[[], None], pass_fds: Sequence[int] = ()
) -> CommandResult:
    """Run a command that may take hours, and that is killed if this process dies.

    :param on_wait: called about once a second; if it raises, the command is killed
    :param pass_fds: file descriptors that it gets, with the same numbers
    :raises HostError: it is missing; any exit code is a result
    """
    if which(line[0]) is None:
        raise _not_run(line[0], FileNotFoundError("it is not installed"))
    process = _start(line, [*_DIE_WITH_PARENT, *line], pass_fds=pass_fds)
    with process:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    stdout, stderr = process.communicate(timeout=1)
                    return CommandResult(process.returncode, stdout, _one_line(stderr))
                on_wait()
        except BaseException:
            process.kill()
            raise


def start_daemon(*line: str, directory: Path, log: Path, pass_fds: Sequence[int] = ()) -> None:
    """Start a daemon that outlives this process and is not its child.

    It gets a session of its own and no other files of this process.  From the return of this
    function until its end it can be found in /proc, by its command line and its directory.

    :param directory: its working directory
    :param log: the file for its output, readable by root alone
    :param pass_fds: file descriptors that it gets
    :raises HostError: it could not be started
    """
    file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        subprocess.run(  # noqa: S603 (a list of arguments, no shell)
            ["setsid", "--fork", *line],  # noqa: S607 (on the path of _environment())
            check=True,
            cwd=directory,
            env=_environment(),
            pass_fds=pass_fds,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            timeout=DEFAULT_TIMEOUT,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise exception.HostError(reason=f"{line[0]} could not be started: {error}.") from error
    finally:
        os.close(file)


def which(command: str) -> str | None:
    """Return the path of a command, also of one that only root has on its path."""
    return shutil.which(command, path=_environment()["PATH"])


def list_missing(packages: Mapping[str, str]) -> list[str]:
    """List the commands that are not installed.

    :param packages: Debian's packages by command
    :returns: such as ``iscsiadm (package open-iscsi)``
    """
    return [
        f"{command} (package {package})"
        for command, package in packages.items()
        if which(command) is None
    ]


def _start(
    line: Sequence[str],
    full_line: Sequence[str],
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    *,
    has_input: bool = False,
) -> Process:
    try:
        return subprocess.Popen(  # noqa: S603 (a list of arguments, no shell)
            full_line,
            env=_environment() | dict(environment or {}),
            errors="replace",
            pass_fds=pass_fds,
            process_group=0,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except (OSError, ValueError) as error:
        raise _not_run(line[0], error) from error


def _environment() -> dict[str, str]:
    """Return the environment of commands: where commands are, and English messages."""
    return {"PATH": f"{os.environ.get('PATH', os.defpath)}:{_PATH}", "LC_ALL": "C"}


def _mask(line: Sequence[str]) -> str:
    # No argument is a secret; to be sure of it, what looks like one is masked.
    return str(strutils.mask_password(" ".join(line)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _not_run(command: str, error: Exception) -> exception.HostError:
    return exception.HostError(reason=f"{command} could not be run: {error}.")
