# SPDX-License-Identifier: Apache-2.0
"""Run a backend's command line tool with a timeout; for drivers that need one."""

from collections.abc import Mapping, Sequence

from attachd import commands, exception
from attachd.drivers import base


def run(
    arguments: Sequence[str], timeout: float, environment: Mapping[str, str] | None = None
) -> commands.CommandResult:
    """Run a tool and wait for its end, see attachd.commands.execute().

    It inherits this process's liveness descriptors, see base.py.

    :param timeout: seconds after which the tool is killed
    :param environment: variables beside PATH and LC_ALL, which are all it gets
    :raises BackendError: it is missing or was killed, never final: earlier commands may have had
        effect; any exit code is a result
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
        raise exception.BackendError(f"{error}") from error
