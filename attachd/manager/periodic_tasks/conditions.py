# SPDX-License-Identifier: Apache-2.0
"""The condition of attachments: what agents report of the devices, and drivers list of sessions.

Only what has changed is stored.  Agents and hosts do not wait for it.
"""

from collections.abc import Mapping
import datetime
import logging
from typing import Any, Final, NamedTuple, cast

from oslo_log import log

from attachd import host_identity, notifications
from attachd.conf import CONF
from attachd.db import models
from attachd.db.agents import agent_store, observed_devices
from attachd.db.agents.observed_devices import AgentIndex
from attachd.db.attachments import attachment_conditions, backend_attachments
from attachd.db.attachments.attachment_conditions import Condition, Growth
from attachd.db.attachments.backend_attachments import DriverAttachmentRow
from attachd.db.row_types import AgentRow
from attachd.db.volumes import volume_queries
from attachd.drivers import abilities
from attachd.manager import backends, fencing
from attachd.manager.backends import Backend
from attachd.manager.periodic_tasks.periodic_task import PeriodicTask
from attachd.rpc import agent_manager_api
from attachd.rpc.agent_manager_api import DeviceReport
from attachd.states import ConditionState

LOG = log.getLogger(__name__)

_IN_TRANSIT: Final = datetime.timedelta(seconds=agent_manager_api.TIMEOUT)
"""For how long a report may be under way: it may be older than an attach that it does not show."""

_PAUSE: Final = 60.0


class ConditionTask(PeriodicTask):
    """Observation of the condition of all attachments of one backend, in one process."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._is_first = True

    def interval(self) -> float:
        """Return the seconds between two observations."""
        return float(CONF.manager.condition_interval or _PAUSE)

    def on_failure(self) -> None:
        """Skip the next observation: agents may not have been able to report either."""
        self._is_first = True

    def run_once(self) -> None:
        """Observe once, unless agents may just have begun to report, as after an outage."""
        if CONF.manager.condition_interval and not self._is_first:
            observe(self._backend)
        self._is_first = False


class Evidence(NamedTuple):
    """What is seen of an attachment.

    :ivar agent: the host whose agent reports about it; None: none does
    :ivar no_report: why the agent's report says nothing; "": it does
    :ivar device: the device in the report; None: it has none
    :ivar session: whether the backend lists a session of the host; None: it cannot tell
    :ivar is_made_by_agent: whether the agent makes the device; else Compute, or another caller
    """

    agent: str | None = None
    no_report: str = ""
    device: DeviceReport | None = None
    session: bool | None = None
    is_made_by_agent: bool = True


def derive(seen: Evidence) -> Condition:
    """Return the condition that follows from what is seen; ``changed_at`` is not known."""
    condition = attachment_conditions.NOT_OBSERVED.copy()
    if seen.agent is not None and not seen.no_report:
        device = seen.device if seen.device and seen.device["path"] else None
        condition["device_present"] = device is not None
        if device is not None:
            condition["paths"] = [{**path} for path in device.get("paths", ())]
            condition["last_io_error"] = device.get("last_io_error")
            condition["growth"] = _growth(device)
    condition["session"] = seen.session
    state, message = _judge(seen, condition)
    condition["state"], condition["message"] = state.value, message
    return condition


def _growth(device: DeviceReport) -> Growth | None:
    """Return the sizes in a report; None: it has none."""
    size = device["size_bytes"]
    if size is None or "filesystem" not in device:
        return None
    return {
        "device_bytes": size,
        "filesystem": device["filesystem"],
        "filesystem_bytes": device.get("filesystem_bytes"),
        "message": device.get("growth"),
    }


def _judge(seen: Evidence, condition: Condition) -> tuple[ConditionState, str | None]:
    """Return the state of a condition, and why it is not ok."""
    if condition["device_present"] is None:
        return _judge_without_report(seen)
    if not condition["device_present"]:
        return _judge_missing(seen)
    paths = condition["paths"]
    failed = ", ".join(path["name"] for path in paths if path["state"] == "failed")
    if failed and all(path["state"] == "failed" for path in paths):
        return ConditionState.FAILED, f"All paths of host {seen.agent} have failed: {failed}."
    if failed:
        return ConditionState.DEGRADED, f"Paths of host {seen.agent} have failed: {failed}."
    if seen.session is False:
        return ConditionState.DEGRADED, f"The backend lists no session of host {seen.agent}."
    return ConditionState.OK, None


def _judge_missing(seen: Evidence) -> tuple[ConditionState, str]:
    message = f"Host {seen.agent} has no device of it"
    if seen.is_made_by_agent:
        return ConditionState.FAILED, f"{message}."
    return ConditionState.UNKNOWN, f"{message}, as while its server is stopped after a restart."


def _judge_without_report(seen: Evidence) -> tuple[ConditionState, str | None]:
    if seen.agent is not None:
        return ConditionState.UNKNOWN, seen.no_report
    if seen.session:
        return ConditionState.OK, None
    if seen.session is None:
        return ConditionState.UNKNOWN, "No agent reports it, and the backend cannot show it."
    message = "The backend lists no session of its host, which may be off, or not use it now."
    return ConditionState.UNKNOWN, message


class Observation(NamedTuple):
    """What agents and a backend show at one moment.

    :ivar started_at: before it
    :ivar reports: the last ones of all agents, by host
    :ivar devices: those in the reports, by host and attachment
    :ivar others: the agents that report devices that they have not made
    :ivar sessions: the names of the hosts with sessions, by volume; None: the backend lists none
    """

    started_at: datetime.datetime
    reports: Mapping[str, AgentRow]
    devices: Mapping[tuple[str, str], DeviceReport]
    others: AgentIndex | None
    sessions: Mapping[str, frozenset[str]] | None

    @classmethod
    def make(cls, backend: Backend) -> "Observation":
        """Read reports and sessions."""
        started_at, agents = models.now(), agent_store.list_all()
        devices = {
            (row["host"], device["attachment_id"]): cast("DeviceReport", device)
            for row in agents
            for device in row["devices"] or ()
        }
        observing = [row for row in agents if row["observed"] is not None]
        others = AgentIndex(observing) if observing else None
        reports = {row["host"]: row for row in agents}
        return cls(started_at, reports, devices, others, _list_sessions(backend))


def observe(backend: Backend) -> None:
    """Store how the attachments of a backend are now, and notify of those that have changed.

    :raises Unavailable: the database does not answer
    """
    observation = Observation.make(backend)
    observable_only = observation.others is None and observation.sessions is None
    for volume_ids in volume_queries.page_ids(backend.host):
        rows = backend_attachments.list_attached(volume_ids, observable_only=observable_only)
        for row in rows:
            attached_at = row["attached_at"]
            # The observation may be older than a later one, and is made again soon.
            if attached_at is None or attached_at <= observation.started_at:
                _observe_one(backend, row, observation)


def _observe_one(backend: Backend, row: DriverAttachmentRow, observation: Observation) -> None:
    host, session = row["agent"], _has_session(backend, row, observation.sessions)
    if host is None:
        seen = _see_other(backend, row, observation.others, session=session)
    else:
        device = observation.devices.get((host, row["id"]))
        reason = _explain_no_report(row, observation.reports.get(host), device)
        seen = Evidence(host, reason, device, session)
    if row["observed"] is not None or not _is_nothing_known(seen):
        _store(backend, row, derive(seen))


def _see_other(
    backend: Backend,
    row: DriverAttachmentRow,
    agents: AgentIndex | None,
    *,
    session: bool | None,
) -> Evidence:
    """Return what is seen of an attachment whose device no agent makes.

    The backend is asked rather than the host: a session that it lists is there.
    """
    fields: Any = row
    report = agents.find(host_identity.of_row(fields)) if agents else None
    if report is None or not report["alive"]:
        return Evidence(session=session)
    device: Any = observed_devices.find_device(report, row["volume_id"], {row["id"]})
    is_missing = device is None or device["path"] is None
    knows_absence = (
        backend.driver.KERNEL_DEVICES
        and not session
        and observed_devices.shows_all(report, row["volume_id"])
        and not _may_be_older(report, row)
    )
    if is_missing and not knows_absence:
        return Evidence(session=session)
    seen: Any = device and {**device, "filesystem": None}  # What is on it is its user's.
    return Evidence(report["host"], "", seen, session, is_made_by_agent=False)


def _is_nothing_known(seen: Evidence) -> bool:
    """Return whether neither an agent nor the backend shows anything, as just after an attach."""
    return bool(seen.no_report) or (seen.agent is None and seen.session is None)


def _explain_no_report(
    row: DriverAttachmentRow, report: AgentRow | None, device: DeviceReport | None
) -> str:
    """Return why the report of a host says nothing about an attachment; "": it does."""
    host = row["agent"]
    if report is None:
        return f"No agent of host {host} is known."
    if not report["alive"]:
        return f"The agent of host {host} does not report."
    if report["error"]:
        # Only administrators may read it: it can name other hosts.
        return f"Host {host} has a problem, which attachd agent-show {host} shows."
    is_missing = device is None or device["path"] is None
    if is_missing and _may_be_older(report, row):
        return f"The agent of host {host} has not reported since the attach."
    return ""


def _may_be_older(report: AgentRow, row: DriverAttachmentRow) -> bool:
    """Return whether the report of an agent that is alive may be older than an attachment."""
    seen_at, attached_at = report["seen_at"], row["attached_at"]
    assert seen_at is not None, "its agent is alive"
    assert attached_at is not None, "it is attached"
    return seen_at - attached_at <= _IN_TRANSIT


def _list_sessions(backend: Backend) -> Mapping[str, frozenset[str]] | None:
    """Return the names of the hosts with sessions, by volume; None: it cannot list them."""
    if backend.error is not None or not backend.driver.promises.session_listing:
        return None
    if (listed := backends.list_exports(backend)) is None:
        return None
    return {
        volume_id: frozenset[str]().union(*(export.sessions for export in exports))
        for volume_id, exports in listed.items()
    }


def _has_session(
    backend: Backend,
    row: DriverAttachmentRow,
    sessions: Mapping[str, frozenset[str]] | None,
) -> bool | None:
    """Return whether the host of an attachment has a session; None: it cannot be told."""
    if sessions is None or row["connector"] is None:
        return None
    assert isinstance(backend.driver, abilities.Audit)
    volume = backends.volume_ref(backend_attachments.volume_of(row))
    names = fencing.list_holders(backend.driver, volume, [backends.export(row)])
    return bool(names & sessions.get(volume.id, frozenset())) if names else None


def _store(backend: Backend, row: DriverAttachmentRow, condition: Condition) -> None:
    """Store a condition if it has changed, and notify of it if its state has."""
    former = row["observed"] or {}
    is_same_state = condition["state"] == row["condition_state"]
    condition["changed_at"] = former["changed_at"] if is_same_state else models.now().isoformat()
    if condition == former or not attachment_conditions.record(row, condition):
        return
    is_good = condition["state"] == ConditionState.OK
    LOG.log(
        logging.INFO if is_good else logging.WARNING,
        "Attachment %s: its condition is %s: %s",
        row["id"],
        condition["state"],
        condition["message"] or "its host reaches the volume.",
    )
    said = {"attachment_id": row["id"], **condition}
    notifications.volume("attach.condition", row["volume_id"], host=backend.host, condition=said)
