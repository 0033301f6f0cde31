# SPDX-License-Identifier: Apache-2.0
"""Drains of hosts: detach what is asked for, some attachments at a time, and show what is done.

What is to be detached is stored first.  How far it is follows from the attachments: one that is to
be detached and is not there any more is detached.  A process of the API begins, and one manager
goes on with what is left, so that a drain needs neither that process nor its caller.
"""

from collections.abc import Container, Mapping, Sequence
import datetime
from typing import Final, Literal, TypedDict

from oslo_log import log

from attachd import exception, notifications
from attachd.closed_hosts import detaches
from attachd.context import RequestContext
from attachd.db import host_fences
from attachd.db.agents import agent_store
from attachd.db.row_types import AttachmentWithVolumeRow, HostFenceRow
from attachd.states import AttachmentKind, AttachmentState

LOG = log.getLogger(__name__)

ALL: Final = "all"
Status = Literal["attached", "waiting", "detaching", "detached", "failed", "left"]
AgentStates = Mapping[str, str]
"""The states of agents, as of agent_store.state(), by host; a missing one was removed."""

AT_ONCE: Final = 8
"""How many attachments of a host are detached at the same time."""
_DETACHING: Final = frozenset({AttachmentState.WITHDRAWING, AttachmentState.DISCONNECTING})

_NOT_REMOVED: Final = (
    "No agent has made it, and its device may be in use: detach it on the host, or by name in a "
    "drain (--detach), which ends the access at once."
)
_DOWN: Final = (
    "The agent of host {agent} is down, and has to remove the device first. Start it; or, if "
    "the host is dead, fence it: openstack volume host fence {agent}"
)
_CONFLICT: Final = (
    "Two machines report as the agent of host {agent}, which has to remove the device first. "
    "Choose one: attachd-manage agent accept {agent} --boot BOOT_ID"
)
_REMOVED: Final = (
    "The agent of host {agent} was removed, and has to remove the device first. Add it again; or, "
    "if the host is off, delete the attachment by force."
)


class Detach(TypedDict):
    """An attachment of a host that is drained.

    :ivar status: "attached": it is not asked to go; "waiting": it is, and that has not begun;
        "detaching"; "detached": it is gone; "failed": it is still there; "left": only another
        service or its user can detach it
    :ivar reason: why it has failed, is not done yet, or is left, and what to do; null
    """

    attachment_id: str
    volume_id: str
    instance_uuid: str | None
    status: Status
    reason: str | None


class Drain(TypedDict):
    """The drain of a host.

    :ivar drained_at: since when nothing new is attached there
    :ivar user_id: who drained it
    :ivar counts: how many attachments there are of each status that occurs
    :ivar attachments: those that are asked to go, and all that give the host access
    """

    drained_at: datetime.datetime
    reason: str | None
    user_id: str | None
    counts: dict[str, int]
    attachments: list[Detach]


def check_ids(
    host: str,
    host_row: HostFenceRow | None,
    rows: Sequence[AttachmentWithVolumeRow],
    ids: Sequence[str],
) -> None:
    """Check that these are attachments of a host, or were detached by its drain.

    :raises InvalidInput: one is not
    """
    former = (host_row["drain_detach"] if host_row else None) or {}
    known = {row["id"] for row in rows} | former.keys()
    for number, attachment_id in enumerate(ids):
        if attachment_id not in known:
            raise exception.InvalidInput(
                field=f"drain.detach.{number}",
                value=attachment_id,
                reason=f"Host {host} has no access to a volume by such an attachment. Show the "
                "host to see its attachments.",
            )


def request(
    host_row: HostFenceRow, rows: Sequence[AttachmentWithVolumeRow], asked: str | Sequence[str]
) -> None:
    """Store which attachments of a drained host are to be detached, beside those stored before.

    :param rows: the attachments of the host
    :param asked: ALL, or ids that :func:`check_ids` has checked; what no agent has made must be
        named, as no agent removes the device before the access ends
    :raises Conflict: the host was resumed meanwhile
    """
    volume_ids = {
        row["id"]: row["volume_id"]
        for row in rows
        if (_has_agent(row) or _left_reason(row) if asked == ALL else row["id"] in asked)
    }
    if not host_fences.add_detaches(host_row, volume_ids):
        raise exception.Conflict(
            reason=f"Host {host_row['host']} was resumed by another request: nothing is detached. "
            "Drain it again if it is to go."
        )


def advance(ctx: RequestContext, host: str, tried: set[str] | None = None) -> bool:
    """Begin to detach what a drain asks for, as much as may be in progress at the same time.

    :param ctx: of the request, or an administrator's: the rule of the drain has decided
    :param tried: what a request has tried, which this call adds to: what has failed before is
        tried once again, after the rest; None: it is not
    :returns: whether the work on anything is in progress, so that waiting is worth it
    """
    host_row = host_fences.find(host)
    if host_row is None or host_row["drained_at"] is None:
        return False
    asked, rows = host_row["drain_detach"] or {}, host_fences.list_attachments(host)
    agents = get_agent_states(rows)
    shown = [(row, _show(row, asked, agents)) for row in rows]
    in_progress = [item for _row, item in shown if _is_in_progress(item)]
    ready = [row for row, item in shown if item["status"] == "waiting" and not item["reason"]]
    if tried is not None:
        ready += [row for row, item in shown if row["id"] not in tried and _has_failed(row, item)]
    ready = ready[: max(AT_ONCE - len(in_progress), 0)]
    for row in ready:
        detaches.begin(ctx, row)
    if tried is not None:
        tried.update(row["id"] for row in ready)
    return bool(in_progress or ready)


def _is_in_progress(item: Detach) -> bool:
    return item["status"] == "detaching" and item["reason"] is None


def _has_failed(row: AttachmentWithVolumeRow, item: Detach) -> bool:
    """Return whether something has failed that its agent or manager can try again now."""
    is_refused = row["error"] is not None and item["reason"] == row["error"]
    return item["status"] == "failed" or (item["status"] == "detaching" and is_refused)


def notify_end(host: str) -> None:
    """Notify once that a drain has detached what it could, if it waits for nothing more."""
    host_row = host_fences.find(host)
    rows = host_fences.list_attachments(host)
    drain = show(host_row, rows, get_agent_states(rows))
    if host_row is None or drain is None or drain["counts"].keys() & {"waiting", "detaching"}:
        return
    if host_fences.claim_drain_end(host_row):
        step = notifications.HostStep.from_drain(host_row)
        notifications.host("drain.end", host, step, attachments=drain["attachments"])


def get_agent_states(rows: Sequence[AttachmentWithVolumeRow]) -> AgentStates:
    """Return the states of the agents of attachments."""
    states = {}
    for agent in {row["agent"] for row in rows if row["agent"] is not None}:
        try:
            states[agent] = agent_store.state(agent_store.get(agent))
        except exception.AgentNotFound:
            continue
    return states


def show(
    host_row: HostFenceRow | None, rows: Sequence[AttachmentWithVolumeRow], agents: AgentStates
) -> Drain | None:
    """Return the drain of a host; None: it is not drained.

    :param rows: the attachments of the host
    :param agents: of these attachments
    """
    if host_row is None or host_row["drained_at"] is None:
        return None
    asked, present = host_row["drain_detach"] or {}, {row["id"] for row in rows}
    attachments = [
        *(_gone(name, volume_id) for name, volume_id in asked.items() if name not in present),
        *(_show(row, asked, agents) for row in rows),
    ]
    statuses = [item["status"] for item in attachments]
    return {
        "drained_at": host_row["drained_at"],
        "reason": host_row["drain_reason"],
        "user_id": host_row["drain_user_id"],
        "counts": {status: statuses.count(status) for status in sorted({*statuses})},
        "attachments": attachments,
    }


def _gone(attachment_id: str, volume_id: str) -> Detach:
    return {
        "attachment_id": attachment_id,
        "volume_id": volume_id,
        "instance_uuid": None,
        "status": "detached",
        "reason": None,
    }


def _show(row: AttachmentWithVolumeRow, asked: Container[str], agents: AgentStates) -> Detach:
    status, reason = _status(row, asked, agents)
    return {
        "attachment_id": row["id"],
        "volume_id": row["volume_id"],
        "instance_uuid": row["instance_uuid"],
        "status": status,
        "reason": reason,
    }


def _status(
    row: AttachmentWithVolumeRow, asked: Container[str], agents: AgentStates
) -> tuple[Status, str | None]:
    if row["id"] not in asked:
        return "attached", None if _has_agent(row) else _NOT_REMOVED
    if left := _left_reason(row):
        return "left", left
    blocked = _blocked_reason(row, agents)
    if row["state"] in _DETACHING:
        return "detaching", blocked or row["error"]
    if row["error"] or row["state"] == AttachmentState.DISCONNECT_FAILED:
        return "failed", row["error"]
    return "waiting", blocked


def _has_agent(row: AttachmentWithVolumeRow) -> bool:
    return row["agent"] is not None


def _blocked_reason(row: AttachmentWithVolumeRow, agents: AgentStates) -> str | None:
    """Return why the agent that has to remove the device does not; None: it does, or need not."""
    if not detaches.needs_agent(row):
        return None
    state = agents.get(str(row["agent"]))
    if state == "up":
        return None
    reason = _REMOVED if state is None else _CONFLICT if state == "conflict" else _DOWN
    return reason.format(agent=row["agent"])


def _left_reason(row: AttachmentWithVolumeRow) -> str | None:
    """Return why the drain must not detach an attachment, and what to do; None: it may."""
    if row["instance_uuid"] is not None:
        return (
            f"Server {row['instance_uuid']} has it: migrate the server to another host, or detach "
            "the volume from it, through the Compute API."
        )
    if row["kind"] != AttachmentKind.ATTACHMENT:
        return (
            "It was made by os-initialize_connection or os-attach: the service that made it "
            f"detaches volume {row['volume_id']}."
        )
    return None
