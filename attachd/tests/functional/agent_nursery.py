# SPDX-License-Identifier: Apache-2.0
"""A process that has loaded everything and forks agents, which start in no time; for agents.py.

``python -m attachd.tests.functional.agent_nursery FOLDER``

For each line that it reads, a configuration file and a file for the log, it prints the process id
of a new agent.  What each does, and where it dies, is in the plan of the folder: see
crashing/points.py.  All of them end with its standard input.
"""

from collections.abc import Callable
import ctypes
import functools
import gc
import os
from pathlib import Path
import signal
import sys
import traceback
from typing import Any, NoReturn

from oslo_messaging._drivers import impl_rabbit  # noqa: F401  loaded here, not by each child

from attachd.agent.connectors.brick import BrickConnector
from attachd.agent.connectors.qemu.connector import QemuConnector
from attachd.agent.journal import Journal
from attachd.agent.reconciler import Duties
from attachd.cmd import agent
from attachd.rpc import agent_manager_api
from attachd.tests.crashing import points

_PR_SET_PDEATHSIG = 1
STEPS = (
    (Journal, ("write", "remove")),
    (BrickConnector, ("connect", "disconnect", "extend")),
    (QemuConnector, ("connect", "disconnect", "extend")),
    (
        agent_manager_api,
        ("desired_state", "connected", "connect_failed", "disconnected", "detach_refused"),
    ),
)
"""What an agent does, between which it may die."""


def main() -> int:
    """Load everything, then fork for each line."""
    folder = Path(sys.argv[1])
    _install()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        configuration, log = line.split()
        if (pid := os.fork()) == 0:
            _live(folder, configuration, log)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    return 0


def _install() -> None:
    for owner, names in STEPS:
        for name in names:
            setattr(owner, name, _around(name, getattr(owner, name)))
    look = Duties.look

    def called(self: Duties, attachment_id: str) -> None:
        with points.call("reconcile"):
            look(self, attachment_id)

    Duties.look = called  # type: ignore[method-assign]


def _around(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def called(*args: Any, **kwargs: Any) -> Any:
        points.passing(f"before {name}")
        answer = real(*args, **kwargs)
        points.passing(f"after {name}")
        return answer

    return called


def _live(folder: Path, configuration: str, log: str) -> NoReturn:
    """Be an agent, until it ends or is killed."""
    code = 1
    try:
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        output = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        points.follow(folder, "agent")
        sys.argv = ["attachd-agent", f"--config-file={configuration}"]
        code = agent.main()
    except BaseException:  # noqa: BLE001  a child must never return into its parent's code
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
