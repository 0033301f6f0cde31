# SPDX-License-Identifier: Apache-2.0
"""Run a backend's command line tool with a timeout; for drivers that need one."""

from collections.abc import Mapping, Sequence
import subprocess

from attachd import exception
from attachd.drivers import base
from attachd.linux import commands


def run(
    arguments: Sequence[str], timeout: float, environment: Mapping[str, str] | None = None
) -> commands.CommandResult:
    """Run a tool and wait for its end, see attachd.linux.commands.execute().

    It inherits this process's liveness descriptors, see base.py.

    :param timeout: seconds after which the tool is killed
    :param environment: variables beside PATH and LC_ALL, which are all it gets
    :raises BackendUnreachable: it did not end in time and was killed
    :raises BackendError: it is missing. Neither is final: earlier commands may have had effect;
        any exit code is a result
    """
    try:
        return commands.execute(
            arguments,
            timeout,
            base.liveness_fds(),
            environment=environment,
            reap=commands.Process.wait,  # it must not work beside the next operation
        )
    except exception.HostError as error:
        timed_out = isinstance(error.__cause__, subprocess.TimeoutExpired)
        kind = exception.BackendUnreachable if timed_out else exception.BackendError
        raise kind(f"{error}") from error
