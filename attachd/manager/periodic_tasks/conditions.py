# SPDX-License-Identifier: Apache-2.0
"""The condition of attachments: what agents report of the devices, and drivers list of sessions.

Only what has changed is stored.  Agents and hosts do not wait for it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
import datetime
import logging
from typing import Any, Final, NamedTuple, cast

from oslo_log import log

from attachd import host_identity, notifications
from attachd.conf import CONF
from attachd.db import models
from attachd.db.agents import agent_store, observed_devices
from attachd.db.agents.agent_store import DeviceReportRow
from attachd.db.agents.observed_devices import AgentIndex
from attachd.db.attachments import attachment_conditions, backend_attachments
from attachd.db.attachments.attachment_conditions import Condition, Growth
from attachd.db.attachments.backend_attachments import DriverAttachmentRow
from attachd.db.row_types import AgentRow
from attachd.db.volumes import volume_queries
from attachd.drivers import abilities
from attachd.host_identity import HostIdentity
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
_ATTACHMENTS_OF_PAGE: Final = 5000
"""Attachments with agents that are read at a time, unless one host alone has more."""
_HOSTS_OF_PAGE: Final = 500
"""Hosts whose attachments are read at a time."""
_REPORTS_OF_PAGE: Final = 50
"""Hosts whose reports are read at a time; one may have 256 KiB."""
_OTHERS_OF_PAGE: Final = 500
"""Attachments without an agent that are compared with reports at a time."""


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


Sessions = Mapping[str, frozenset[str]] | None
"""The names of the hosts with sessions, by volume; None: the backend lists none."""


def observe(backend: Backend) -> None:
    """Store how the attachments of a backend are now, and notify of those that have changed.

    Attachments and reports are read of a page of hosts at a time: those of all may be large.

    :raises Unavailable: the database does not answer
    """
    started_at, sessions = models.now(), _list_sessions(backend)
    for hosts in _pages(backend_attachments.count_by_agent(backend.host)):
        attachments = defaultdict[str, list[DriverAttachmentRow]](list)
        for row in backend_attachments.list_of_agents(backend.host, hosts):
            if _is_older(row, started_at):
                attachments[str(row["agent"])].append(row)
        _observe_agents(backend, attachments, sessions)
    has_others = observed_devices.has_agents()
    observed_only = sessions is None and not has_others
    for volume_ids in volume_queries.page_ids(backend.host):
        rows = backend_attachments.list_without_agent(volume_ids, observed_only=observed_only)
        rows = [row for row in rows if _is_older(row, started_at)]
        for first in range(0, len(rows), _OTHERS_OF_PAGE):
            of_page = rows[first : first + _OTHERS_OF_PAGE]
            _observe_others(backend, of_page, sessions, has_agents=has_others)


def _pages(attachments: Mapping[str, int]) -> Iterator[list[str]]:
    """Divide hosts into pages of a limited size; yield the names of each page.

    :param attachments: the number of attachments of each host
    """
    page: list[str] = []
    total = 0
    for host, number in attachments.items():
        if page and (len(page) == _HOSTS_OF_PAGE or total + number > _ATTACHMENTS_OF_PAGE):
            yield page
            page, total = [], 0
        page.append(host)
        total += number
    if page:
        yield page


def _is_older(row: DriverAttachmentRow, moment: datetime.datetime) -> bool:
    """Return whether an attachment was attached before a moment.

    What is seen may be older than a later one, which is observed again soon.
    """
    return row["attached_at"] is None or row["attached_at"] <= moment


def _identity(row: DriverAttachmentRow) -> HostIdentity:
    fields: Any = row
    return host_identity.of_row(fields)


def _observe_agents(
    backend: Backend, attachments: Mapping[str, Sequence[DriverAttachmentRow]], sessions: Sessions
) -> None:
    """Observe the attachments of a backend that the agents of some hosts make.

    :param attachments: by host
    """
    hosts = [*attachments]
    for first in range(0, len(hosts), _REPORTS_OF_PAGE):
        reports = agent_store.list_reports(hosts[first : first + _REPORTS_OF_PAGE])
        for host in hosts[first : first + _REPORTS_OF_PAGE]:
            _observe_agent(backend, attachments[host], reports.get(host), sessions)


def _observe_agent(
    backend: Backend,
    rows: Sequence[DriverAttachmentRow],
    report: DeviceReportRow | None,
    sessions: Sessions,
) -> None:
    """Observe the attachments of a backend that the agent of one host makes."""
    devices = {
        device["attachment_id"]: cast("DeviceReport", device)
        for device in (report and report["devices"]) or ()
    }
    for row in rows:
        device = devices.get(row["id"])
        reason = _explain_no_report(row, report, device)
        session = _has_session(backend, row, sessions)
        _store_seen(backend, row, Evidence(str(row["agent"]), reason, device, session))


def _observe_others(
    backend: Backend, rows: Sequence[DriverAttachmentRow], sessions: Sessions, *, has_agents: bool
) -> None:
    """Observe attachments whose devices no agent makes.

    :param has_agents: whether any agent reports what others have made
    """
    identities = [*map(_identity, rows)]
    agents = observed_devices.read_index(identities) if has_agents and rows else None
    for row in rows:
        session = _has_session(backend, row, sessions)
        _store_seen(backend, row, _see_other(backend, row, agents, session=session))


def _store_seen(backend: Backend, row: DriverAttachmentRow, seen: Evidence) -> None:
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
    report = agents.find(_identity(row)) if agents else None
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
    row: DriverAttachmentRow, report: DeviceReportRow | None, device: DeviceReport | None
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


def _may_be_older(report: DeviceReportRow | AgentRow, row: DriverAttachmentRow) -> bool:
    """Return whether the report of an agent that is alive may be older than an attachment."""
    seen_at, attached_at = report["seen_at"], row["attached_at"]
    assert seen_at is not None, "its agent is alive"
    assert attached_at is not None, "it is attached"
    return seen_at - attached_at <= _IN_TRANSIT


def _list_sessions(backend: Backend) -> Sessions:
    """Return the sessions that a backend lists."""
    if backend.error is not None or not backend.driver.promises.session_listing:
        return None
    if (listed := backends.list_exports(backend)) is None:
        return None
    return {
        volume_id: frozenset[str]().union(*(export.sessions for export in exports))
        for volume_id, exports in listed.items()
    }


def _has_session(backend: Backend, row: DriverAttachmentRow, sessions: Sessions) -> bool | None:
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
