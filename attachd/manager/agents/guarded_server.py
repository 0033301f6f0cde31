# SPDX-License-Identifier: Apache-2.0
"""The server for agents of a process that stops to receive calls while it cannot answer them.

A process that cannot use the database, or whose threads are all stuck, would keep the calls that
it gets, although other managers could answer them.  So it pauses its server, and keeps its queues:
mostly the database is slow for a moment, and so for all managers at once, while it takes a minute
to read the queues of 10,000 hosts anew.  If that lasts, it ends its server, and starts another one
when it can store something again.
"""

from collections.abc import Callable, Collection
import contextlib
import datetime
import threading
from typing import Final

from oslo_log import log

from attachd import exception
from attachd.db.cluster import members, registry_probes
from attachd.linux.boot import boot_clock
from attachd.manager.agents.rpc_server import AgentRpcServer
from attachd.manager.ownership.membership import Membership
from attachd.periodics import PeriodicThread

LOG = log.getLogger(__name__)

INTERVAL: Final = 0.5
"""Seconds between two looks at the checks."""

MAX_SILENCES: Final = 3
"""How many probes in a row a server may leave without an answer before it is started again."""

RESTART_INTERVAL: Final = 60.0
"""Seconds between two starts for this reason: the reason may be another manager."""

START_INTERVAL: Final = 5.0
"""Seconds until a server that could not be started is replaced by another one."""

CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks of a server that works."""

LEAVE_AFTER: Final = 30.0
"""Seconds of a pause after which the server is ended."""

MAX_DURATION: Final = 1.5
"""Seconds after which a check counts as failed; far below the third of the shortest lease in which
an agent gets an answer from another manager."""


class _Check:
    """A check under way, which may hang.

    :param check: raises AttachdError
    """

    def __init__(self, check: Callable[[], object]) -> None:
        self._check = check
        self._began_at = boot_clock()
        self._ended_at: float | None = None
        self.error: exception.AttachdError | None = None

    def run(self) -> None:
        """Execute the check."""
        try:
            self._check()
        except exception.AttachdError as error:
            self.error = error
        self._ended_at = boot_clock()

    def has_ended(self) -> bool:
        """Return whether it neither waits nor runs."""
        return self._ended_at is not None

    def is_slow(self) -> bool:
        """Return whether it takes, or took, too long."""
        end = boot_clock() if self._ended_at is None else self._ended_at
        return end - self._began_at > MAX_DURATION

    def has_succeeded(self) -> bool:
        """Return whether it has ended well and in time."""
        return self.has_ended() and self.error is None and not self.is_slow()

    def is_due(self) -> bool:
        """Return whether it is time for the next one."""
        return self.has_ended() and boot_clock() - self._began_at >= CHECK_INTERVAL


class GuardedAgentServer:
    """The server for agents in one process, as AgentRpcServer; it also answers probes.

    :param membership: of this process
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._server: AgentRpcServer | None = None
        self._answering: _Check | None = None
        self._storing: _Check | None = None
        self._paused_at: float | None = None
        self._silences = 0
        self._restarted_at = float("-inf")
        self._began_at = float("-inf")
        self._stopped = False
        self._lock = threading.Lock()
        self._thread = PeriodicThread(
            "agent-server-guard", self.run_once, lambda: INTERVAL, self._log_failure
        )

    def start(self) -> None:
        """Begin to answer as soon as the database and the message queue do."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no more calls, and finish those that were accepted."""
        self._thread.stop()
        with self._lock:
            self._stopped = True
            server, self._server = self._server, None
        if server is not None:
            self._leave()
            server.stop()

    def run_once(self) -> None:
        """Start, pause, resume or stop the server, as far as this process can answer."""
        server = self._server
        if server is None:
            if self._can_store():
                self._begin()
        elif server.has_failed:
            if boot_clock() - self._began_at >= START_INTERVAL:
                server.stop()
                self._server = None
        elif server.is_serving and self._must_restart():
            self._silences, self._restarted_at = 0, boot_clock()
            self._end(server, "probes of managers are not answered")
        elif server.is_serving:
            self._check(server)

    def _check(self, server: AgentRpcServer) -> None:
        """Pause a server that receives calls and cannot answer them, resume it, or end it."""
        check = self._answering
        if check is None or check.is_due():
            self._answering = _Check(members.list_living)
            server.execute(self._answering.run)
        if reason := self._find_failure(server, check):
            if self._paused_at is None:
                self._pause(server, reason)
            elif boot_clock() - self._paused_at > LEAVE_AFTER:
                self._end(server, reason)
        elif self._paused_at is not None and check is not None and check.has_succeeded():
            server.resume()
            self._paused_at = None
            LOG.info("Calls of agents are received again")

    def _pause(self, server: AgentRpcServer, reason: str) -> None:
        LOG.warning("Calls of agents are left to other managers for now: %s", reason)
        server.pause()
        # What is checked next begins after the pause.
        self._paused_at, self._answering = boot_clock(), None
        threading.Thread(target=self._leave, daemon=True).start()

    def _end(self, server: AgentRpcServer, reason: str) -> None:
        if self._paused_at is None:
            LOG.error("Calls of agents are left to other managers: %s", reason)
        else:
            LOG.error("The server for agents ends, until something can be stored: %s", reason)
        self._server = None
        # Calls in progress may hang, and the message queue or the database as well.
        for call in (server.stop, self._leave):
            threading.Thread(target=call, daemon=True).start()

    def record_silence(self, ids: Collection[str]) -> None:
        """Record which managers have not answered a probe.

        A server whose consumers are gone, while its connection stays open, does not notice it.

        :param ids: of their members; none: all have answered
        """
        self._silences = self._silences + 1 if self._membership.id in ids else 0

    def _must_restart(self) -> bool:
        return (
            self._silences >= MAX_SILENCES
            and boot_clock() - self._restarted_at >= RESTART_INTERVAL
        )

    def _begin(self) -> None:
        server = AgentRpcServer(self._answer_probe)
        with self._lock:
            if self._stopped:
                return
            self._server = server
        self._answering, self._paused_at, self._began_at = None, None, boot_clock()
        server.start()
        LOG.info("Calls of agents are received")

    def _leave(self) -> None:
        with contextlib.suppress(exception.AttachdError):
            registry_probes.leave(self._membership.id)

    @staticmethod
    def _log_failure(error: Exception) -> None:
        LOG.error("The server for agents could not be checked: %s", error)

    def _answer_probe(self, sent_at: str, by_queue: bool) -> None:  # noqa: FBT001
        """Store that a probe has passed this process; any account may have sent it."""
        server = self._server
        with contextlib.suppress(ValueError, exception.AttachdError):
            time = datetime.datetime.fromisoformat(sent_at)
            if server is not None and time.tzinfo is None:
                registry_probes.record(
                    self._membership.id, time, server.consumers, by_queue=by_queue
                )

    @staticmethod
    def _find_failure(server: AgentRpcServer, check: _Check | None) -> str:
        """Return why a server that receives calls cannot answer them; "" if nothing shows it."""
        if server.take_outage():
            return "a call could not be stored"
        if check is not None and check.error is not None:
            return f"{check.error}"
        if check is not None and check.is_slow():
            return f"the threads, or the database, take more than {MAX_DURATION} s"
        return ""

    def _can_store(self) -> bool:
        """Return whether this process has just stored something in time; wait for nothing."""
        check = self._storing
        if check is None or check.is_due():
            self._storing = _Check(lambda: members.heartbeat(self._membership.id))
            threading.Thread(target=self._storing.run, daemon=True).start()
        if check is None or not check.has_ended() or check.is_slow() or check.error is not None:
            return False
        self._storing = None
        return True
