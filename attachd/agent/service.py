# SPDX-License-Identifier: Apache-2.0
"""The agent of a host at work: it reports, does what is due, and looks when told; run by cmd.

Nothing depends on messages.  A report's answer is all that is due; who tells the agent to look
only has it done sooner.  Managers and the message queue may be away for as long as they like.
"""

import threading
from time import monotonic

from oslo_log import log

from attachd import exception
from attachd.agent.connectors.base import Options
from attachd.agent.endpoint import Endpoint
from attachd.agent.heartbeat import Reporter
from attachd.agent.host import Host
from attachd.agent.reconciler import Duties
from attachd.agent.worker_pool import Crew
from attachd.conf import CONF
from attachd.rpc import agent_manager_api, transport

LOG = log.getLogger(__name__)

GRACE = 60.0
"""Seconds that a stopping agent waits for what is under way; the next one goes on with it."""


class Agent:
    """One host's agent; devices stay as they are when it stops.

    :param key: which proves that it is this host's agent
    """

    def __init__(self, host: Host, key: str) -> None:
        options = Options(CONF.agent.multipath, CONF.agent.enforce_multipath, CONF.agent.nic)
        self._host = host
        self._credentials = agent_manager_api.AgentCredentials(host.identity.name, key)
        self._duties = Duties(
            host, self._credentials, options, CONF.agent.threads, CONF.agent.work_timeout
        )
        self._reporter = Reporter(host, options)
        self._crew = Crew(self._duties.look, CONF.agent.threads)
        self._server = transport.get_server(
            Endpoint(self._crew.look),
            host.identity.name,
            CONF.agent.topic,
            CONF.agent.work_timeout,
        )
        self._lock = threading.Lock()
        self._serving = False
        self._stopping = threading.Event()
        self._trouble: str | None = None
        # Apart from what takes long: whoever does not report is taken for dead.
        self._thread = threading.Thread(target=self._report_for_ever, name="report", daemon=True)

    def start(self) -> None:
        """Begin to report; the first report that is heard begins everything else."""
        self._thread.start()

    def stop(self) -> bool:
        """Accept nothing more, and finish what is under way; False: that takes too long."""
        deadline = monotonic() + GRACE
        self._stopping.set()
        closing = threading.Thread(target=self._close, daemon=True)
        closing.start()
        finished = self._crew.stop(GRACE)
        closing.join(max(0.0, deadline - monotonic()))
        return finished and not closing.is_alive()

    def _close(self) -> None:
        with self._lock:
            if self._serving:
                self._server.stop()
                self._server.wait()

    def _report_for_ever(self) -> None:
        while True:
            try:
                self.report()
            except exception.AttachdError as error:
                self._tell_trouble(f"{error}")
            except Exception:
                LOG.exception("A report has failed")
            else:
                self._tell_recovery()
                self._serve()
            if self._stopping.wait(CONF.agent.report_interval):
                return

    def report(self) -> None:
        """Say how the host is, and have done what is due.

        :raises Unavailable: nobody hears it
        :raises Forbidden: another one is the agent of this host
        :raises HostError: the journal cannot be read, or the host hangs, which is said as well
        """
        report = self._duties.room.warn(self._reporter.report(), CONF.agent.work_timeout)
        duties = agent_manager_api.report(self._credentials, report)
        due = self._duties.due(duties)
        self._crew.keep_only(due)
        self._crew.begin(due)

    def _serve(self) -> None:
        with self._lock:
            if self._serving or self._stopping.is_set():
                return
            self._server.start(override_pool_size=CONF.agent.threads)
            self._serving = True
        LOG.info("The agent of host %s is at work", self._credentials.host)

    def _tell_trouble(self, trouble: str) -> None:
        """Say once what is wrong, not at each report."""
        if trouble != self._trouble:
            LOG.warning("Host %s cannot report: %s", self._credentials.host, trouble)
        self._trouble = trouble

    def _tell_recovery(self) -> None:
        if self._trouble is not None:
            LOG.info("Host %s reports again", self._credentials.host)
        self._trouble = None
