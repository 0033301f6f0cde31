# SPDX-License-Identifier: Apache-2.0
"""The RPC server for the agents of hosts: the server of rpc/agent_manager_api.py.

Only a caller that has the key of a host learns the desired state of that host, and reports its
results.  What it reports changes attachments of that host alone.
"""

from collections.abc import Callable, Collection
import contextlib
import datetime
import functools
import gc
import random
import threading
import time
from typing import Any, Final, TypeVar, cast

from oslo_log import log
import oslo_messaging as messaging

from attachd import exception, notifications
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import host_fences, models
from attachd.db.agents import (
    agent_store,
    agent_transitions,
    host_leases,
    machines,
    observed_devices,
)
from attachd.db.host_fences import Lift
from attachd.db.row_types import MachineRow
from attachd.manager.agents import desired_state, report_schema
from attachd.periodics import PeriodicThread
from attachd.rpc import agent_manager_api, agent_transport, desired_states
from attachd.rpc.host_queues import HostQueues
from attachd.rpc.transport import expected_errors

LOG = log.getLogger(__name__)

_NOT_STORED: Final = frozenset({"stops_writers", "lease", "token"})
"""The fields of a report that are not stored as they are."""

POOL_SIZE = 4
"""How many agents one process answers at the same time, each with few rows."""

NEW_HOSTS_INTERVAL: Final = 5.0
"""Seconds between two reads of the names of new hosts, each of which has a queue."""

ALL_HOSTS_INTERVAL: Final = 600.0
"""Seconds after which the names of all hosts are read again."""

CLOCK_DIFFERENCE: Final = datetime.timedelta(seconds=60)
"""By how much the clock of another manager, which registers a host, may be behind."""


class AgentRpcServer:
    """The RPC server for agents in one process; all managers share the calls.

    :param answer_probe: as of path_check.AnsweringProbeLog
    :ivar has_failed: whether it could not be started, and never receives anything
    """

    def __init__(self, answer_probe: Callable[[str, bool], object] = lambda *_: None) -> None:
        self.has_failed = False
        self._queues = HostQueues()
        self._endpoint = AgentEndpoint()
        self._server = agent_transport.get_registry_server(
            self._endpoint, agent_manager_api.TIMEOUT, self._queues, answer_probe
        )
        self._new_hosts = PeriodicThread(
            "agent-queues", self.serve_hosts, lambda: NEW_HOSTS_INTERVAL, self._log_failure
        )
        self._is_failing = False
        self._all_read_at = float("-inf")
        self._read_at: datetime.datetime | None = None
        self._serving = False
        self._stopped = False
        self._lock = threading.Lock()
        # A message queue that does not answer must delay neither the start nor the end.
        self._thread = threading.Thread(target=self._serve, name="agent-rpc-server", daemon=True)

    def start(self) -> None:
        """Begin to answer, now or as soon as the message queue does."""
        self._thread.start()
        self._new_hosts.start()

    def serve_hosts(self) -> None:
        """Read the queues of hosts that have become known since the last time."""
        self._queues.drops.flush()
        since, now, started_at = self._read_at, models.now(), time.monotonic()
        if started_at - self._all_read_at > ALL_HOSTS_INTERVAL:
            since = None
        hosts = agent_store.list_hosts(since and since - CLOCK_DIFFERENCE)
        # With thousands of hosts this takes a minute: let others begin with other hosts.
        self._queues.serve(random.sample(hosts, len(hosts)))
        self._read_at = now
        if since is None:
            self._all_read_at = started_at
        self._is_failing = False

    def _log_failure(self, error: Exception) -> None:
        if not self._is_failing:
            LOG.warning("The names of hosts cannot be read, trying again: %s", error)
        self._is_failing = True

    def _serve(self) -> None:
        try:
            self._server.start(override_pool_size=POOL_SIZE)
        except Exception as error:  # noqa: BLE001  such as a queue that may not be declared
            LOG.warning("The server for agents could not be started, trying again: %s", error)
            self.has_failed = True
        if self.has_failed:
            # Only cycles have its connection, whose consumers would keep calls.
            gc.collect()
            return
        with self._lock:
            self._serving = not self._stopped
        if not self._serving:
            self._server.stop()  # stop() does not stop a server that has just started

    def record_silence(self, ids: Collection[str]) -> None:
        """Do nothing: only GuardedAgentServer answers probes."""

    @property
    def is_serving(self) -> bool:
        """Whether it receives calls."""
        return self._serving and not self._stopped

    def take_outage(self) -> bool:
        """Return whether a call has failed since the last time as the database does not answer."""
        is_set = self._endpoint.outage.is_set()
        self._endpoint.outage.clear()
        return is_set

    @property
    def consumers(self) -> int:
        """How many consumers of each queue it has."""
        return int(self._server.consumers)

    def execute(self, function: Callable[[], object]) -> None:
        """Execute a function in one of its threads, before the calls that wait."""
        self._server.execute(function)

    def pause(self) -> None:
        """Leave calls to other managers, but for one more of each host; keep the queues."""
        self._queues.paused.set()

    def resume(self) -> None:
        """End a pause."""
        self._queues.paused.clear()

    def stop(self) -> None:
        """Accept no more calls, and finish those that were accepted."""
        self._new_hosts.stop()
        with self._lock:
            self._stopped = True
        if self._serving:
            self._server.stop()
            self._server.wait()


Method = TypeVar("Method", bound=Callable[..., Any])


def _noting_outages(method: Method) -> Method:
    """Decorate a method of the endpoint: note that the database does not answer."""

    @functools.wraps(method)
    def noting(self: "AgentEndpoint", *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except exception.DatabaseUnavailable:
            self.outage.set()
            raise

    return cast("Method", noting)


class AgentEndpoint:
    """The calls of agents; AttachdErrors are answers.

    :ivar outage: set: a call has failed because the database does not answer
    """

    target = messaging.Target(version=agent_manager_api.VERSION)

    def __init__(self) -> None:
        self.outage = threading.Event()

    @expected_errors
    @_noting_outages
    def report(
        self, _context: RequestContext, host: str, key: str, report: agent_manager_api.Report
    ) -> list[agent_manager_api.DesiredState]:
        """See agent_manager_api.report()."""
        report_schema.check_credentials(host, key)
        machine = _check_or_register(host, key, report)
        report_schema.check_report(report)
        while True:
            with contextlib.suppress(machines.Changed):
                return _store_report(machine, report)
            machine = agent_store.check_key(host, key)

    @expected_errors
    @_noting_outages
    def renew(
        self, _context: RequestContext, host: str, key: str, renewal: agent_manager_api.Renewal
    ) -> bool:
        """See agent_manager_api.renew()."""
        report_schema.check_credentials(host, key)
        machine = agent_store.check_key(host, key)
        report_schema.check_renewal(renewal)
        with contextlib.suppress(machines.Changed):
            return _renew(machine, renewal)
        return False

    @expected_errors
    @_noting_outages
    def desired_state(
        self,
        _context: RequestContext,
        host: str,
        key: str,
        process: str,
        attachment_id: str,
    ) -> agent_manager_api.DesiredState | None:
        """See agent_manager_api.desired_state()."""
        _check(host, key, process, attachment_id=attachment_id)
        return desired_state.get_desired(host, attachment_id)

    @expected_errors
    @_noting_outages
    def connected(
        self,
        _context: RequestContext,
        host: str,
        key: str,
        process: str,
        attachment_id: str,
        generation: int,
        device: str,
    ) -> None:
        """See agent_manager_api.connected()."""
        values: dict[str, object] = {"attachment_id": attachment_id, "generation": generation}
        machine = _check(host, key, process, device=device, **values)
        desired_state.record_connected(attachment_id, host, generation, device, machine)

    @expected_errors
    @_noting_outages
    def failed(
        self,
        _context: RequestContext,
        host: str,
        key: str,
        process: str,
        attachment_id: str,
        generation: int,
        error: str,
    ) -> None:
        """See agent_manager_api.failed()."""
        _check(host, key, process, attachment_id=attachment_id, generation=generation, error=error)
        agent_transitions.record_failure(attachment_id, host, generation, error)

    @expected_errors
    @_noting_outages
    def disconnected(
        self,
        context: RequestContext,
        host: str,
        key: str,
        process: str,
        attachment_id: str,
        generation: int,
    ) -> None:
        """See agent_manager_api.disconnected()."""
        machine = _check(host, key, process, attachment_id=attachment_id, generation=generation)
        desired_state.record_disconnected(context, attachment_id, host, generation, machine)

    @expected_errors
    @_noting_outages
    def detach_refused(
        self,
        _context: RequestContext,
        host: str,
        key: str,
        process: str,
        attachment_id: str,
        generation: int,
        error: str,
    ) -> None:
        """See agent_manager_api.detach_refused()."""
        _check(host, key, process, attachment_id=attachment_id, generation=generation, error=error)
        agent_transitions.refuse_detach(attachment_id, host, generation, error)


def _check(host: str, key: str, process: str, **values: object) -> MachineRow:
    """Check that a call comes from the agent of the host, and then its form.

    :returns: the row of the agent, as of machines.read()
    :raises Forbidden: another agent has the key of the host
    :raises AgentNotFound: the host is not registered
    :raises AgentConflict: two machines report for the host
    :raises Conflict: another process of the agent has reported
    :raises InvalidInput: a value has a wrong form
    """
    report_schema.check_credentials(host, key)
    machine = agent_store.check_key(host, key)
    report_schema.check_values(process=process, **values)
    machines.check_caller(machine, process)
    return machine


def _store_report(
    machine: MachineRow, report: agent_manager_api.Report
) -> list[agent_manager_api.DesiredState]:
    """Store a report of the machine of a host, and return the answer.

    :param machine: as of machines.read()
    :raises Changed: another report was stored since that was read
    """
    host, claim = machine["host"], machines.get_claim(report)
    accepted = machines.accept(machine, claim)
    desired, host_lease = _list_desired(machine, with_secrets=report["libvirt_secrets"])
    stops_writers = report["stops_writers"]
    host_lease = host_lease if stops_writers else None
    stored = {name: value for name, value in report.items() if name not in _NOT_STORED} | accepted
    stored["content_number"] = claim.number if stops_writers else None
    assigned = {item["attachment_id"] for item in desired}
    reported = None if report["lease"] == host_lease else report["lease"] or 0
    if agent_store.record_report(
        host, stored, assigned, host_lease=host_lease, reported_lease=reported, read=machine
    ):
        LOG.warning("Host %s: its agent was lost, and reports again", host)
        notifications.host("found", host, notifications.HostStep())
    if machine["conflict"] is None:
        _lift_fence({**machine, **accepted}, report)
    if stops_writers:
        _check_not_fenced(host, report)
    if host_lease is not None:
        for item in desired:
            item["lease"] = host_lease
    return desired


def _renew(machine: MachineRow, renewal: agent_manager_api.Renewal) -> bool:
    """Renew the lease of a host that has nothing new to report, and for which nothing is new.

    :param machine: as of machines.read()
    :returns: False: that is not so, and nothing was stored
    """
    host, claim = machine["host"], machines.get_claim(renewal)
    accepted = machines.accept(machine, claim)
    if not machines.is_current(machine, claim, renewal["content_number"]):
        return False
    if machine["any_host_fenced"] and host_fences.find_fence(host) is not None:
        return False
    desired, host_lease = _list_desired(machine, with_secrets=bool(machine["libvirt_secrets"]))
    if host_lease != renewal["lease"] or desired_states.digest(desired) != renewal["desired"]:
        return False
    return host_leases.renew_unchanged(machine, accepted, host_lease)


def _list_desired(
    machine: MachineRow, *, with_secrets: bool
) -> tuple[list[agent_manager_api.DesiredState], int | None]:
    """Return the answer to a report, and how many seconds the lease of the host lasts."""
    desired, host_lease = desired_state.list_desired(machine["host"])
    if with_secrets:
        desired += desired_state.list_secrets(machine["host"])
    return desired, host_lease


def _check_or_register(host: str, key: str, report: agent_manager_api.Report) -> MachineRow:
    """Check that the caller is the agent of a host, or register the first caller as its agent.

    A host that has attachments is not registered by a caller: their secrets are for the agent that
    had the former key, or for one to which an administrator gives a new key.

    :returns: as :func:`_check`
    :raises Forbidden: another agent has the key, or the host is not registered and must not be
    """
    try:
        return agent_store.check_key(host, key)
    except exception.AgentNotFound:
        if refusal := _registration_refusal(host):
            raise exception.Forbidden(
                f"No agent of host {host} is known, and {refusal}. An administrator makes it "
                f"known, with its key: attachd-manage agent add {host}"
            ) from None
        report_schema.check_report(report)
        if agent_store.create(host, key):
            LOG.info("Host %s: registered a new agent", host)
        return agent_store.check_key(host, key)  # another caller may have registered first


def _lift_fence(machine: MachineRow, report: agent_manager_api.Report) -> None:
    """Lift a fence that ends by itself, if its host was started again and has no device left.

    That Compute has none there either is not proved by a report; that it has one is believed.

    It is that of the agent's own host, by its exact name: the boot id in it is of this agent.

    :param machine: the row of the agent, as of machines.read()
    """
    host, boot_id = machine["host"], report["boot_id"]
    if not CONF.agent.lift_fences or report["devices"] or report["error"]:
        return
    fence = host_fences.find(host)
    if fence is None or fence["fenced_at"] is None or fence["lift"] != Lift.AUTO:
        return
    if fence["boot_id"] in {None, boot_id} or machines.get_wait(machine):
        return
    if _has_other_device(report):
        return
    if host_fences.lift(host, generation=fence["generation"]):
        LOG.warning("Host %s: fence lifted: it was started again and has no device", host)
        notifications.host("unfence", host, notifications.HostStep.from_fence(fence))


def _has_other_device(report: agent_manager_api.Report) -> bool:
    """Return whether a host has a device of this service that its agent has not made."""
    devices = report["observed"]["devices"] if report["observed"] else ()
    return observed_devices.has_known_volume(
        {device["volume_id"] for device in devices if device["path"]}
    )


def _check_not_fenced(host: str, report: agent_manager_api.Report) -> None:
    """Check that a host is not fenced, or was started again since.

    :raises HostFenced: it may have writers of the time before the fence
    """
    fence = host_fences.find_fence(host)
    if fence is not None and fence["boot_id"] in {None, report["boot_id"]}:
        host_fences.check(fence["host"])


def _registration_refusal(host: str) -> str:
    """Return why a caller must not be registered as the agent of a new host; "" if it may."""
    if not CONF.agent.allow_new:
        return "new hosts are not registered ([agent]allow_new)"
    if agent_store.list_attachment_ids(host):
        return "it has attachments, whose secrets a new agent must not read"
    return ""
