# SPDX-License-Identifier: Apache-2.0
"""A scripted agent of a host, for tests that need one which does, or does not do, its part.

``Agent(self, "node-1")`` in a setUp() makes the host known and listens until the test is over.  It
reads what is due as a registry would tell it, and stores what it says as a registry would.
"""

from collections.abc import Callable
import datetime
import threading
from typing import Any
import unittest

import oslo_messaging as messaging

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import models
from attachd.db.agents import store as agents
from attachd.db.agents import transitions as agent_transitions
from attachd.manager.rpc_decorators import expected_errors
from attachd.rpc import agent_api, transport
from attachd.states import AttachmentState
from attachd.tests import backends, rows

KEY = "the key of a host, long and drawn by chance"
BUSY = "/mnt (mounted)"
NO_SESSION = "The portal refuses this host."


def report(host: str, **values: Any) -> None:
    """Make a host known that says this of itself."""
    connector = {"host": host, "initiator": f"iqn.2026-01.org.example:{host}", "ip": "192.0.2.7"}
    said = {"connector": connector, "devices": [], "connector_type": "kernel", "version": "1.0"}
    agents.create(host, KEY)
    agents.record_report(host, {**said, "error": None, **values})


def silence(host: str, seconds: int = 3600) -> None:
    """Let a host have reported for the last time some seconds ago."""
    rows.change_agent(host, seen_at=models.now() - datetime.timedelta(seconds=seconds))


def obey(_context: Any, host: str, attachment_id: str) -> None:
    """Reconcile in place of the agent of a host that does not exist; as agent_api.reconcile()."""
    for row in agents.list_assigned(host, attachment_id):
        if row["state"] == AttachmentState.WITHDRAWING:
            agent_transitions.release(attachment_id, host, row["generation"])
        else:
            agent_transitions.complete(attachment_id, host, row["generation"], "/dev/sdb")


class Agent:
    """The agent of one host, which looks whenever it is told to.

    :ivar devices: what there is at the host: the attachments' ids, and paths
    :ivar told: the attachments that it was told to look at, in order
    :ivar is_busy: its devices are in use, and stay
    :ivar is_failing: it can make no device
    :ivar is_deaf: it does nothing, until :meth:`hear`
    :ivar meanwhile: is called once, before anything is done
    """

    target = messaging.Target(version=agent_api.VERSION)

    def __init__(self, test: unittest.TestCase, host: str = "node-1") -> None:
        self.host = host
        self.devices: dict[str, str] = {}
        self.told: list[str] = []
        self.is_busy = self.is_failing = self.is_deaf = False
        self.meanwhile: Callable[[], object] | None = None
        self._heard = threading.Event()
        self._working = threading.Lock()
        report(host)
        server = transport.get_server(self, host, CONF.agent.topic)
        server.start(override_pool_size=4)
        for each in (server.wait, server.stop, self._heard.set):
            test.addCleanup(each)

    def give_up_soon(self, test: unittest.TestCase) -> None:
        """Have nobody wait for this agent for longer than a second, and do nothing until then."""
        backends.override(test, "work_timeout", 1, "agent")
        self.is_deaf = True

    def hear(self) -> None:
        """Go on with what it was told while it was deaf."""
        self.is_deaf = False
        self._heard.set()

    @expected_errors
    def reconcile(self, _context: RequestContext, attachment_id: str) -> None:
        """See agent_api.reconcile()."""
        self.told.append(attachment_id)
        if self.is_deaf:
            self._heard.wait()
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        with self._working:
            self.work(attachment_id)

    def work(self, attachment_id: str | None = None) -> None:
        """Do what is due; raises as agent_api.reconcile()."""
        for row in agents.list_assigned(self.host, attachment_id):
            leaves = row["state"] == AttachmentState.WITHDRAWING
            (self._take_away if leaves else self._make)(row["id"], row["generation"])

    def _make(self, attachment_id: str, generation: int) -> None:
        if self.is_failing:
            agent_transitions.record_failure(attachment_id, self.host, generation, NO_SESSION)
            raise exception.HostError(reason=NO_SESSION)
        device = self.devices.setdefault(attachment_id, f"/dev/disk/by-id/{attachment_id}")
        try:
            agent_transitions.complete(attachment_id, self.host, generation, device)
        except exception.InvalidTransition:
            del self.devices[attachment_id]
            raise

    def _take_away(self, attachment_id: str, generation: int) -> None:
        device = self.devices.get(attachment_id)
        if self.is_busy and device is not None:
            busy = exception.DeviceBusy(device=device, users=BUSY)
            agent_transitions.refuse_detach(attachment_id, self.host, generation, str(busy))
            raise busy
        self.devices.pop(attachment_id, None)
        agent_transitions.release(attachment_id, self.host, generation)
