# SPDX-License-Identifier: Apache-2.0
"""A manager process at work, for each backend and for agents of hosts; started by cmd."""

import threading
import time

from oslo_log import log
from oslo_service import service as oslo_service

from attachd import notifications
from attachd.conf import CONF
from attachd.manager import telemetry
from attachd.manager.agents.rpc_server import Desk
from attachd.manager.caretaker import Caretaker
from attachd.manager.endpoint import Endpoint
from attachd.manager.ha.backend_heartbeat import Upkeep
from attachd.manager.ha.ensure_exports import Healer
from attachd.manager.ha.membership import Presence
from attachd.rpc import transport

LOG = log.getLogger(__name__)

UPKEEP_PATIENCE = 5.0
"""Seconds that a stopping process waits for upkeep, which a later one would take up again."""

LAST_WORDS = 5.0
"""Seconds of the grace period that are kept for what is to be said in the end."""


class Post:
    """One backend at work in this process.

    Everything begins in a thread of its own: while the message queue or the storage does not
    answer, the process still starts, tells why in its log, and can be stopped.
    """

    def __init__(self, backend: telemetry.Backend) -> None:
        self._backend = backend
        self._upkeep = Upkeep(backend)
        caretaker, healer = Caretaker(backend), Healer(backend)
        backend.presence.when_others_die(caretaker.wake)
        self._rounds = (caretaker, healer)
        self._server = transport.get_server(Endpoint(backend), backend.host)
        self._serving = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._work, name=f"upkeep-{backend.name}", daemon=True
        )
        self._caring = [
            threading.Thread(
                target=each.run,
                args=(self._stopping,),
                name=f"{type(each).__name__.lower()}-{backend.name}",
                daemon=True,
            )
            for each in self._rounds
        ]

    def start(self) -> None:
        """Begin to set the backend up, to serve it and to watch over it."""
        self._thread.start()

    def _work(self) -> None:
        self._backend.setup()  # before the first call; the upkeep repeats it if it failed
        self._backend.presence.wait_until_joined(self._stopping)
        for each in self._caring:
            each.start()
        self._server.start(override_pool_size=CONF.manager.threads_per_backend)
        if self._stopping.is_set():  # nobody stops a server that has just come up
            self._server.stop()
            return
        self._serving.set()
        LOG.info("Serving backend %s", self._backend.host)
        self._upkeep.run(self._stopping)

    def wait_until_reported(self, timeout: float) -> bool:
        """Wait until placement knows of the backend; False if it does not after that time."""
        return self._upkeep.reported.wait(timeout)

    def stop(self) -> None:
        """Accept nothing more, and finish what was accepted."""
        self._stopping.set()
        for each in self._rounds:
            each.wake()
        if self._serving.is_set():
            self._server.stop()
            self._server.wait()
        self._thread.join(UPKEEP_PATIENCE)
        for thread in self._caring:
            if thread.ident is not None:
                thread.join(UPKEEP_PATIENCE)

    @property
    def at_rest(self) -> bool:
        """Whether nothing is under way that was begun beside the calls."""
        caring = any(each.is_alive() for each in self._caring)
        return not (caring or self._backend.long_work.busy)


class ManagerService(oslo_service.Service):
    """All backends of one manager in one process."""

    def __init__(self) -> None:
        super().__init__()
        self._posts: list[Post] = []
        self._desk: Desk | None = None
        self._presence: Presence | None = None

    def start(self) -> None:
        """Make everything here, in the process that uses it: nothing of it survives a fork."""
        self._presence = Presence()
        self._posts = [Post(backend) for backend in telemetry.load(self._presence)]
        self._presence.start()
        for post in self._posts:
            post.start()
        self._desk = Desk()
        self._desk.start()

    def wait_until_reported(self, timeout: float) -> bool:
        """Wait until placement knows of all backends, each at most ``timeout`` seconds."""
        return all(post.wait_until_reported(timeout) for post in self._posts)

    def stop(self, graceful: bool = True) -> None:  # noqa: FBT001, FBT002  oslo.service's
        """Finish the calls under way; what is still queued waits for the next process.

        So does what takes longer than ``graceful_shutdown_timeout``, or is done beside the calls.
        """
        working: list[Post | Desk] = [*self._posts, *([self._desk] if self._desk else [])]
        stoppers = [threading.Thread(target=each.stop, daemon=True) for each in working]
        for each in stoppers:
            each.start()
        deadline = _deadline()
        for each in stoppers:
            each.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        finished = not any(each.is_alive() for each in stoppers)
        if not (finished and all(post.at_rest for post in self._posts)):
            # Whoever leaves must not be at work.  The end of the process tells that it is dead.
            LOG.warning("What is still under way is left to another manager, or the next one")
        elif self._presence is not None:
            self._presence.stop()
        notifications.stop()
        super().stop(graceful)


def _deadline() -> float | None:
    """Return until when calls may be finished, on the monotonic clock; None: for ever.

    It is some seconds before oslo.service kills the process, which would tell nobody anything.
    """
    allowed = getattr(CONF, "graceful_shutdown_timeout", 0)  # there is one if oslo.service runs us
    return time.monotonic() + allowed - min(LAST_WORDS, allowed / 2) if allowed else None
