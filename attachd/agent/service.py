# SPDX-License-Identifier: Apache-2.0
"""The agent of a host: it reports, reconciles, and serves RPC; run by cmd/agent.py.

No RPC request is essential.  The answer to a report contains all desired states; a request to
reconcile only lets an attachment be handled sooner.  Managers and the message queue may be
unavailable for any time.
"""

from collections.abc import Callable
from pathlib import Path
import re
import threading
from time import monotonic
from typing import Final, NamedTuple

from oslo_log import log
import oslo_messaging as messaging

from attachd import exception
from attachd.agent.connectors.base import Options
from attachd.agent.host import Host
from attachd.agent.host_lease import HostLease, HostLeaseGuard
from attachd.agent.host_reporter import HostReporter
from attachd.agent.libvirt_secrets import LibvirtSecrets
from attachd.agent.local_calls import LocalCalls
from attachd.agent.local_socket import LocalSocket
from attachd.agent.other_devices import OtherDevices
from attachd.agent.reconciler import Reconciler
from attachd.agent.report_tokens import ReportTokens, read_machine_id
from attachd.agent.trim_timer import TrimTimer
from attachd.agent.worker_pool import DEFAULT_TIMEOUT, CallTimeout, TimeboxedCall, WorkerPool
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.rpc import agent_api, agent_manager_api, agent_transport, desired_states
from attachd.rpc.agent_manager_api import IN_LIBVIRT, DesiredState

LOG = log.getLogger(__name__)

RETRY_PAUSE = 0.5
"""Seconds until a report is sent again to which no manager has answered, if there is a lease."""

MIN_PAUSE = 0.2
"""Seconds between two reports that are asked for: managers accept only so many messages."""

_REQUEST_ID: Final = re.compile(r"[0-9a-f]{32}")

SHUTDOWN_TIMEOUT = 60.0
"""Seconds that a stopping agent waits for work in progress; after the next start it continues."""


class Endpoint:
    """The server half of rpc/agent_api.py.

    :param reconcile: as WorkerPool.reconcile_now()
    :param report: as Agent.report_soon()
    """

    target = messaging.Target(version=agent_api.VERSION)

    def __init__(self, reconcile: Callable[[str], None], report: Callable[[str], None]) -> None:
        self._reconcile = reconcile
        self._report = report

    def reconcile(self, _context: RequestContext, attachment_id: str) -> None:
        """See agent_api.reconcile(); the reconciler reports each failure to the managers."""
        try:
            self._reconcile(attachment_id)
        except exception.AttachdError as error:
            LOG.warning("Attachment %s: %s", attachment_id, error)
        except Exception:
            LOG.exception("Attachment %s: unexpected error", attachment_id)

    def report(self, _context: RequestContext, request_id: str) -> None:
        """See agent_api.report()."""
        if isinstance(request_id, str) and _REQUEST_ID.fullmatch(request_id):
            self._report(request_id)


class AcceptedReport(NamedTuple):
    """The last whole report, and the answer to it.

    :ivar digest: of the answer
    """

    said: agent_manager_api.Report
    desired: list[DesiredState]
    digest: str

    def is_equal(self, said: agent_manager_api.Report) -> bool:
        """Return whether another report says the same of the host."""
        return {**said, "token": self.said["token"], "lease": self.said["lease"]} == self.said

    def renew(self, said: agent_manager_api.Report) -> agent_manager_api.Renewal:
        """Return what is sent instead of such a report."""
        return {
            "content_number": self.said["token"]["number"],
            "desired": self.digest,
            "boot_id": said["boot_id"],
            "lease": said["lease"],
            "machine_id": said["machine_id"],
            "token": said["token"],
        }


class Agent:
    """The agent of one host; devices stay as they are when it stops.

    :param key: proves that it is the agent of this host
    """

    def __init__(self, host: Host, key: str) -> None:
        options = Options(CONF.agent.multipath, CONF.agent.enforce_multipath, CONF.agent.nic)
        self._host = host
        self._tokens = ReportTokens(host.journal.state_path, host.identity.name)
        self._token_call: TimeboxedCall[None] = TimeboxedCall()
        self._machine_id = read_machine_id()
        self._credentials = agent_manager_api.AgentCredentials(
            host.identity.name, key, self._tokens.process
        )
        self._lease = HostLease(host.journal.state_path)
        self._guard = HostLeaseGuard(host, self._lease)
        uri = CONF.agent.libvirt_uri
        self._secrets = LibvirtSecrets(self._credentials, uri) if uri else None
        self._reconciler = Reconciler(
            host,
            self._credentials,
            options,
            CONF.agent.threads,
            CONF.agent.work_timeout,
            self._lease.check,
            CONF.agent.grow_filesystems,
            self._secrets,
        )
        others = OtherDevices(host.journal) if CONF.agent.report_others else None
        self._reporter = HostReporter(host, options, others)
        seconds = CONF.agent.trim_interval
        self._trims = TrimTimer(host, seconds) if seconds else None
        self._workers = WorkerPool(self._reconciler.reconcile, CONF.agent.threads)
        self._server = agent_transport.get_host_server(
            Endpoint(self._workers.reconcile_now, self.report_soon), host.identity.name
        )
        self._local_socket = self._make_local_socket()
        self._lock = threading.Lock()
        self._serving = False
        self._stopping = threading.Event()
        self._must_report = threading.Event()
        self._last_error: str | None = None
        self._accepted: AcceptedReport | None = None
        self._must_confirm = False
        # Apart from other work: an agent without reports counts as down.
        self._thread = threading.Thread(target=self._run_reports, name="report", daemon=True)

    def _make_local_socket(self) -> LocalSocket | None:
        """Return the socket for programs of this host; None: there is none."""
        if not CONF.agent.local_socket:
            return None
        calls = LocalCalls(self._host, self._credentials, self._workers.submit, self._lease.check)
        return LocalSocket(Path(CONF.agent.local_socket), calls.by_name())

    def start(self) -> None:
        """Start to report; after the first report that a manager accepts, serve RPC."""
        self._guard.start()
        if self._local_socket is not None:
            self._local_socket.start()
        if self._trims is not None:
            self._trims.start()
        self._thread.start()

    def stop(self) -> bool:
        """Accept no more work, and finish what is in progress; False: the timeout has passed."""
        deadline = monotonic() + SHUTDOWN_TIMEOUT
        self._stopping.set()
        self._must_report.set()
        self._guard.stop()
        if self._local_socket is not None:
            self._local_socket.stop()
        if self._trims is not None:
            self._trims.stop()
        closing = threading.Thread(target=self._close, daemon=True)
        closing.start()
        finished = self._workers.stop(SHUTDOWN_TIMEOUT)
        closing.join(max(0.0, deadline - monotonic()))
        return finished and not closing.is_alive()

    def _close(self) -> None:
        with self._lock:
            if self._serving:
                self._server.stop()
                self._server.wait()

    def _run_reports(self) -> None:
        while True:
            pause = float(CONF.agent.report_interval)
            try:
                self.report()
            except exception.AttachdError as error:
                self._log_failure(f"{error}")
                is_away = isinstance(error, exception.Unavailable) and self._lease.exists()
                is_early = isinstance(error, exception.EarlyRestart)
                if is_away or (isinstance(error, exception.OldReport) and not is_early):
                    pause = RETRY_PAUSE  # Another manager may answer in time.
            except Exception:
                LOG.exception("Host %s: report failed", self._credentials.host)
            else:
                self._log_recovery()
                self._serve()
            pause = 0.0 if self._must_confirm else pause
            if self._wait(self._lease.shorten(pause)):
                return

    def _wait(self, seconds: float) -> bool:
        """Wait until it is time to report, or a report is asked for; return whether to end."""
        if self._stopping.wait(min(seconds, MIN_PAUSE)):
            return True
        self._must_report.wait(max(0.0, seconds - MIN_PAUSE))
        self._must_report.clear()
        return self._stopping.is_set()

    def report_soon(self, request_id: str) -> None:
        """Report without waiting for the end of the interval; the report has the id.

        Requests that arrive in one pause are answered by one report.
        """
        self._reporter.note_request(request_id)
        self._must_report.set()

    def report(self) -> None:
        """Send a report, which renews the lease, and reconcile the attachments that need it.

        A lease of another length than before is confirmed by the next report, which follows at
        once: until then managers wait for the longer one.

        :raises Unavailable: no manager answers
        :raises HostFenced: the host was fenced since it was started
        :raises Forbidden: another process is the agent of this host
        :raises OldReport: another machine has reported since; the next report says so
        :raises AgentConflict: another machine is the agent of this host
        :raises HostError: the journal cannot be read, or the host hangs; that is reported as well
        """
        report = self._reporter.report(self._host_timeout())
        report = self._reconciler.limiter.add_to_report(report, CONF.agent.work_timeout)
        held = self._lease.get_length()
        error = report["error"] or self._server.find_problem()
        self._store_token()
        token = self._tokens.take()
        said: agent_manager_api.Report = {
            **report,
            "error": error,
            "lease": held,
            "machine_id": self._machine_id,
            "token": token,
            "libvirt_secrets": self._secrets is not None,
            "max_attachments": CONF.agent.max_attachments,
        }
        self._must_confirm = False
        fenced: exception.HostFenced | None = None
        desired_states: list[DesiredState] = []
        sent_at = self._lease.now()
        try:
            desired_states = self._send(said)
        except exception.EarlyRestart as error:
            self._tokens.record_early(error.details["report"])
            raise
        except exception.OldReport as error:
            self._tokens.record_old(error.details["start"])
            raise
        except exception.HostFenced as error:
            # The report was accepted before.
            self._tokens.record_accepted(token)
            # Its devices are removed, as far as they are not in use.
            self._lease.end()
            fenced = error
        else:
            self._tokens.record_accepted(token)
            lengths = [state["lease"] for state in desired_states if "lease" in state]
            self._lease.renew(sent_at, min(lengths, default=None))
            self._must_confirm = self._lease.get_length() != held
        self._guard.wake()
        pending = self._list_pending(desired_states)
        self._workers.reset_others(pending)
        self._workers.submit(pending)
        if fenced is not None:
            raise fenced

    def _send(self, said: agent_manager_api.Report) -> list[DesiredState]:
        """Send a report, a short one if nothing is new, and return the desired states.

        :raises: as agent_manager_api.report()
        """
        timeout = self._lease.get_timeout(agent_manager_api.TIMEOUT)
        former = self._accepted
        if former is not None and former.is_equal(said):
            renewal = former.renew(said)
            if agent_manager_api.renew(self._credentials, renewal, timeout):
                return former.desired
            said = {**said, "token": self._tokens.take()}
        self._accepted = None
        desired = agent_manager_api.report(self._credentials, said, timeout)
        self._accepted = AcceptedReport(said, desired, desired_states.digest(desired))
        return desired

    def _list_pending(self, desired_states: list[DesiredState]) -> list[str]:
        """Return the attachments that do not seem to be in their desired state."""
        secrets = [state for state in desired_states if state["target_state"] == IN_LIBVIRT]
        devices = [state for state in desired_states if state not in secrets]
        pending = self._reconciler.list_pending(devices, self._host_timeout())
        if self._secrets is not None:
            pending += self._secrets.list_pending(secrets, self._host_timeout())
        return pending

    def _store_token(self) -> None:
        """Store the token of the next report; a disk that hangs does not delay the report.

        :raises HostError: there is none yet, and it cannot be stored
        """
        try:
            self._token_call.run(self._tokens.store, self._host_timeout())
        except CallTimeout:
            if not self._tokens.is_stored():
                raise

    def _host_timeout(self) -> float:
        """Return how long a report may wait for commands of the host, which may hang.

        They must not use up the lease of a host that reports.
        """
        return self._lease.shorten(DEFAULT_TIMEOUT)

    def _serve(self) -> None:
        with self._lock:
            if self._serving or self._stopping.is_set():
                return
            self._server.start(override_pool_size=CONF.agent.threads)
            self._serving = True
        LOG.info("Host %s: the agent serves requests", self._credentials.host)

    def _log_failure(self, error: str) -> None:
        """Log an error once, not at each report."""
        if error != self._last_error:
            LOG.warning("Host %s: report failed: %s", self._credentials.host, error)
        self._last_error = error

    def _log_recovery(self) -> None:
        if self._last_error is not None:
            LOG.info("Host %s: report accepted again", self._credentials.host)
        self._last_error = None
