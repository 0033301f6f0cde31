# SPDX-License-Identifier: Apache-2.0
"""Run a backend's command line tool with a timeout; for drivers that need one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import os
import subprocess
import time

from oslo_log import log
from oslo_utils import strutils

from attachd import exception
from attachd.drivers import base

LOG = log.getLogger(__name__)

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Outcome:
    """Result of a tool.

    :ivar code: its exit code
    :ivar output: its standard output
    :ivar stderr: its standard error, in one line
    """

    code: int
    output: str
    stderr: str


def run(
    arguments: Sequence[str], timeout: float, environment: Mapping[str, str] | None = None
) -> Outcome:
    """Run a tool and wait for its end.

    Its messages are in English, and a Ctrl-C in the terminal does not reach it: a request in
    progress is finished.  It inherits this process's liveness descriptors, see base.py.

    :param timeout: seconds after which the tool is killed
    :param environment: variables beside PATH and LC_ALL, which are all it gets
    :raises BackendError: it is missing or was killed, never final: earlier commands may have had
        effect; any exit code is a result
    """
    tool, started = arguments[0], time.monotonic()
    try:
        done = subprocess.run(  # noqa: S603 (a list of arguments, no shell)
            arguments,
            capture_output=True,
            check=False,
            env={"PATH": f"{os.environ.get('PATH', os.defpath)}:{_PATH}", "LC_ALL": "C"}
            | dict(environment or {}),
            errors="replace",
            pass_fds=base.liveness_fds(),
            process_group=0,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        raise exception.BackendError(f"{tool} did not answer in {timeout} s.") from error
    except (OSError, ValueError) as error:
        raise exception.BackendError(f"{tool} could not be run: {error}.") from error
    # No argument is a secret; to be sure of it, what looks like one is masked.
    line = strutils.mask_password(" ".join(arguments))
    LOG.debug("Exit %d after %.3f s: %s", done.returncode, time.monotonic() - started, line)
    return Outcome(done.returncode, done.stdout, " ".join(done.stderr.split()))
