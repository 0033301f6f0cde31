# SPDX-License-Identifier: Apache-2.0
"""Check that reports of agents are stored: by each manager, and whichever of them gets a report.

The message queue gives each report to one of the managers.  One that hangs, or cannot reach the
database, keeps those that it has got, while the others work.  So a probe goes to all managers, and
another one to the common queue.  They take the way of reports: the message queue, the listener
and the threads of the server, and the database.  Each manager has to answer in time, and the queue
must have no other consumers than those that answer: a manager that was removed from the group may
still get reports.
"""

from collections.abc import Iterable
import datetime
import threading
from typing import Final

from attachd import exception
from attachd.db.cluster import registry_probes
from attachd.db.cluster.registry_probes import Server
from attachd.linux.boot import boot_clock
from attachd.rpc import agent_transport

MIN_POLL: Final = 0.02
MAX_POLL: Final = 0.25
"""Seconds between two looks for answers; each look doubles them."""


class SilentManagers(exception.Unavailable):
    """Managers that may have lost reports.

    :ivar ids: of their members
    """

    def __init__(self, servers: Iterable[Server], reason: str) -> None:
        super().__init__(reason=reason)
        self.ids = frozenset(server.id for server in servers)


def check(timeout: float) -> None:
    """Check that all managers that serve agents store reports.

    :param timeout: seconds for their answers
    :raises SilentManagers: a manager does not answer, or any of them may have a second consumer
    :raises Unavailable: the database or the message queue does not answer
    """
    if not agent_transport.is_probed():
        return
    deadline = boot_clock() + timeout
    sent_at = registry_probes.read_clock()
    agent_transport.send_registry_probes(sent_at.isoformat())
    _wait_for_answers(sent_at, deadline)


def _wait_for_answers(sent_at: datetime.datetime, deadline: float) -> None:
    pause, never = MIN_POLL, threading.Event()
    while True:
        is_late = boot_clock() >= deadline
        servers = registry_probes.list_servers(sent_at)
        silent = [server for server in servers if not server.is_answering]
        if not silent and any(server.is_reading_queue for server in servers):
            break
        if is_late:
            names = ", ".join(server.name for server in silent)
            raise SilentManagers(
                silent or servers,
                "A probe of the reports of agents was not answered in time by "
                f"{names or 'the common queue'}.",
            )
        never.wait(pause)
        pause = min(2 * pause, MAX_POLL)
    expected = sum(server.consumers for server in servers)
    present = agent_transport.count_registry_consumers()
    if present != expected:
        raise SilentManagers(
            servers,
            f"{present} consumers read the queue of agents' calls, and managers that answer are "
            f"{expected} of them: the others may lose reports.",
        )
