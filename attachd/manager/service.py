# SPDX-License-Identifier: Apache-2.0
"""A manager process at work: an RPC server and the upkeep of each backend; started by cmd."""

import threading

from oslo_log import log
from oslo_service import service as oslo_service

from attachd import notifications, service
from attachd.conf import CONF
from attachd.manager import backends
from attachd.manager.endpoint import Endpoint
from attachd.manager.upkeep import Upkeep

LOG = log.getLogger(__name__)

UPKEEP_PATIENCE = 5.0
"""Seconds that a stopping process waits for upkeep, which a later one would take up again."""


class Post:
    """One backend at work in this process.

    Everything begins in a thread of its own: while the message queue or the storage does not
    answer, the process still starts, tells why in its log, and can be stopped.
    """

    def __init__(self, backend: backends.Backend) -> None:
        self._backend = backend
        self._upkeep = Upkeep(backend)
        self._server = service.server(Endpoint(backend), backend.host)
        self._serving = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._work, name=f"upkeep-{backend.name}", daemon=True
        )

    def start(self) -> None:
        """Begin to set the backend up, to serve it and to watch over it."""
        self._thread.start()

    def _work(self) -> None:
        self._backend.setup()  # before the first call; the upkeep repeats it if it failed
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
        if self._serving.is_set():
            self._server.stop()
            self._server.wait()
        self._thread.join(UPKEEP_PATIENCE)


class ManagerService(oslo_service.Service):
    """All backends of one manager in one process."""

    def __init__(self) -> None:
        super().__init__()
        self._posts: list[Post] = []

    def start(self) -> None:
        """Make everything here, in the process that uses it: nothing of it survives a fork."""
        self._posts = [Post(backend) for backend in backends.load()]
        for post in self._posts:
            post.start()

    def wait_until_reported(self, timeout: float) -> bool:
        """Wait until placement knows of all backends, each at most ``timeout`` seconds."""
        return all(post.wait_until_reported(timeout) for post in self._posts)

    def stop(self, graceful: bool = True) -> None:  # noqa: FBT001, FBT002  oslo.service's
        """Finish the calls under way; what is still queued waits for the next process."""
        stoppers = [threading.Thread(target=post.stop, daemon=True) for post in self._posts]
        for each in stoppers:
            each.start()
        for each in stoppers:
            each.join()
        notifications.stop()
        super().stop(graceful)
