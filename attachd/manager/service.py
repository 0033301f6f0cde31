# SPDX-License-Identifier: Apache-2.0
"""A manager process: workers for its backends, the RPC server for agents, its membership."""

import threading
import time

from oslo_log import log
from oslo_service import service as oslo_service

from attachd import notifications
from attachd.conf import CONF
from attachd.manager import telemetry
from attachd.manager.agents.guarded_server import GuardedAgentServer
from attachd.manager.agents.lost_agents import LostAgents
from attachd.manager.agents.rpc_server import AgentRpcServer
from attachd.manager.backends import Backend
from attachd.manager.endpoint import Endpoint
from attachd.manager.fenced_hosts import FencedHosts
from attachd.manager.ownership.membership import Membership
from attachd.manager.periodic_tasks import compute_events
from attachd.manager.periodic_tasks.backend_heartbeat import BackendHeartbeat
from attachd.manager.periodic_tasks.conditions import ConditionTask
from attachd.manager.periodic_tasks.drained_hosts import DrainedHostsTask
from attachd.manager.periodic_tasks.ensure_exports import EnsureExportsTask
from attachd.manager.periodic_tasks.expired_sets import ExpiredSetsTask
from attachd.manager.periodic_tasks.number_events import NumberEventsTask
from attachd.manager.periodic_tasks.purge import PurgeTask
from attachd.manager.periodic_tasks.recovery import RecoveryLoop
from attachd.manager.periodic_tasks.remember_clients import RememberClientsTask
from attachd.periodics import PeriodicThread
from attachd.rpc import agent_transport, transport

LOG = log.getLogger(__name__)

AgentServer = AgentRpcServer | GuardedAgentServer

STOP_TIMEOUT = 5.0
"""Seconds that a stopping process waits for periodic tasks, which the next one would repeat."""

SHUTDOWN_MARGIN = 5.0
"""Seconds of the grace period that are kept for leaving the group and for notifications."""


class BackendWorker:
    """The RPC server and the periodic tasks of one backend in this process.

    All of it starts in a thread of its own: while the message queue or the storage does not
    answer, the process still starts, logs the reason, and can be stopped.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._heartbeat = BackendHeartbeat(backend)
        recovery = RecoveryLoop(backend)
        backend.membership.on_member_lost(recovery.wake)
        self._periodic_tasks = (
            recovery,
            EnsureExportsTask(backend),
            ConditionTask(backend),
            RememberClientsTask(backend),
        )
        self._server = transport.get_checked_server(
            Endpoint(backend), backend.host, calls_per_volume=backend.calls_per_volume
        )
        self._serving = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._work, name=f"start-{backend.name}", daemon=True
        )

    def start(self) -> None:
        """Begin to set the backend up, to serve it and to run its periodic tasks."""
        self._thread.start()

    def _work(self) -> None:
        self._backend.setup()  # before the first call; the heartbeat repeats it if it failed
        self._backend.membership.wait_until_joined(self._stopping)
        for task in self._periodic_tasks:
            task.start()
        self._server.start(override_pool_size=CONF.manager.threads_per_backend)
        if self._stopping.is_set():  # stop() does not stop a server that has just started
            self._server.stop()
            return
        self._serving.set()
        LOG.info("Serving backend %s", self._backend.host)
        self._heartbeat.start()

    def wait_until_reported(self, timeout: float) -> bool:
        """Wait until the backend has reported; False if it has not after that time."""
        return self._heartbeat.reported.wait(timeout)

    def stop(self) -> None:
        """Accept no more calls, and finish those that were accepted."""
        self._stopping.set()
        tasks = (self._heartbeat, *self._periodic_tasks)
        for task in tasks:
            task.stop()
        if self._serving.is_set():
            self._server.stop()
            self._server.wait()
        for thread in (self._thread, *tasks):
            thread.join(STOP_TIMEOUT)

    def close(self) -> None:
        """Close the driver's connections, after :meth:`stop`, when nothing is in progress."""
        try:
            self._backend.driver.close()
        except Exception:
            LOG.exception("Backend %s: closing its driver failed", self._backend.name)

    @property
    def is_idle(self) -> bool:
        """Whether no periodic or background task runs."""
        periodic = any(task.is_alive() for task in self._periodic_tasks)
        return not (periodic or self._backend.background_tasks.is_busy)


class ManagerService(oslo_service.Service):
    """All backends of one manager in one process."""

    def __init__(self) -> None:
        super().__init__()
        self._workers: list[BackendWorker] = []
        self._agent_server: AgentServer | None = None
        self._periodic_tasks: list[PeriodicThread] = []
        self._membership: Membership | None = None

    def start(self) -> None:
        """Create all objects in the process that uses them: none of them survives a fork."""
        self._membership = Membership()
        loaded = telemetry.load_backends(self._membership)
        self._workers = [BackendWorker(backend) for backend in loaded]
        self._membership.start()
        for worker in self._workers:
            worker.start()
        self._periodic_tasks = [
            FencedHosts(),
            DrainedHostsTask(self._membership),
            ExpiredSetsTask(self._membership),
            NumberEventsTask(self._membership),
            PurgeTask(self._membership),
            *compute_events.list_tasks(),
        ]
        if CONF.agent.enabled:
            probed = agent_transport.is_probed()
            self._agent_server = (
                GuardedAgentServer(self._membership) if probed else AgentRpcServer()
            )
            self._agent_server.start()
            self._periodic_tasks.append(LostAgents(self._agent_server.record_silence))
        for task in self._periodic_tasks:
            task.start()

    def wait_until_reported(self, timeout: float) -> bool:
        """Wait until all backends have reported, each at most ``timeout`` seconds."""
        return all(worker.wait_until_reported(timeout) for worker in self._workers)

    def stop(self, graceful: bool = True) -> None:  # noqa: FBT001, FBT002  oslo.service's
        """Finish the calls in progress; queued calls wait for the next process.

        Another process also repeats what takes longer than ``graceful_shutdown_timeout``, and what
        is done beside the calls.
        """
        for task in self._periodic_tasks:
            task.stop()
        agent_servers = [self._agent_server] if self._agent_server else []
        stopping: list[BackendWorker | AgentServer] = [*self._workers, *agent_servers]
        threads = [threading.Thread(target=server.stop, daemon=True) for server in stopping]
        for thread in threads:
            thread.start()
        deadline = _deadline()
        for thread in threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        finished = not any(thread.is_alive() for thread in threads)
        if not (finished and all(worker.is_idle for worker in self._workers)):
            # A process that leaves must not work.  Its end shows the others that it is dead.
            LOG.warning("Operations in progress are left to another manager, or the next one")
        else:
            for worker in self._workers:
                worker.close()
            if self._membership is not None:
                self._membership.stop()
        notifications.stop()
        super().stop(graceful)


def _deadline() -> float | None:
    """Return until when calls may be finished, on the monotonic clock; None: without limit.

    It is some seconds before oslo.service kills the process, which then could not leave in order.
    """
    allowed = getattr(CONF, "graceful_shutdown_timeout", 0)  # there is one if oslo.service runs us
    return time.monotonic() + allowed - min(SHUTDOWN_MARGIN, allowed / 2) if allowed else None
