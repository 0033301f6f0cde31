# SPDX-License-Identifier: Apache-2.0
"""Where a manager process listens to the agents of hosts; part of ManagerService."""

import threading

from attachd.conf import CONF
from attachd.manager.agents.endpoint import Registry
from attachd.rpc import agent_manager_api, transport

THREADS = 4
"""How many agents one process answers at the same time, with some rows each."""


class Desk:
    """An RPC server for agents.

    All processes share the work.  Nobody asks for one of them by name, so they have that of their
    machine: one of its own would leave a queue behind with each process that ends.
    """

    def __init__(self) -> None:
        self._server = transport.get_server(
            Registry(), CONF.host, CONF.agent.registry_topic, agent_manager_api.TIMEOUT
        )
        self._serving = False
        self._stopped = False
        self._lock = threading.Lock()
        # A message queue that does not answer keeps nobody from starting, or from ending.
        self._thread = threading.Thread(target=self._serve, name="registry", daemon=True)

    def start(self) -> None:
        """Begin to answer, now or as soon as the message queue does."""
        self._thread.start()

    def _serve(self) -> None:
        self._server.start(override_pool_size=THREADS)
        with self._lock:
            self._serving = not self._stopped
        if not self._serving:
            self._server.stop()  # nobody else stops one that has just come up

    def stop(self) -> None:
        """Accept nothing more, and finish what was accepted."""
        with self._lock:
            self._stopped = True
        if self._serving:
            self._server.stop()
            self._server.wait()
