# SPDX-License-Identifier: Apache-2.0
"""Check that a host has no device of an attachment that is deleted, and that no agent connects.

Such a device was made by Compute, or by hand.  If access ended while the host has it, a server
could still have the disk.  The agent of the host is asked for a report: only one that was made
after the question counts, since the device was there until a moment ago in most cases.

A host cannot keep others from a volume by what it claims: it concerns its own attachments, and a
deletion by force or a fence does not ask it.
"""

from collections.abc import Collection, Sequence
import math
from time import monotonic
from typing import Final
import uuid

from oslo_log import log

from attachd import exception, host_identity
from attachd.api import polling
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db.agents import agent_store, observed_devices
from attachd.db.attachments import attachment_queries, attachment_store
from attachd.db.row_types import AgentRow, AttachmentRow
from attachd.host_identity import HostIdentity
from attachd.objects import Attachment
from attachd.rpc import agent_api, bulkheads
from attachd.states import WITH_ACCESS, AttachmentState

LOG = log.getLogger(__name__)

TIMEOUT: Final = 5.0
"""Seconds to wait for a report.  Agents that are up report within a fraction of one."""

ABSENCE_TTL: Final = 10.0
"""Seconds for which a process remembers that no agent reports what others have made."""


class _Absence:
    """The knowledge of a process that no agent reports what others have made."""

    def __init__(self) -> None:
        self._known_at = -math.inf
        self._read_at = -math.inf

    def is_known(self) -> bool:
        """Return whether there was no such agent a moment ago."""
        return monotonic() - self._known_at < ABSENCE_TTL

    def update(self) -> None:
        """Read whether there is one, unless that was read a moment ago."""
        present = monotonic()
        if present - self._read_at >= ABSENCE_TTL:
            self._read_at = present
            self._known_at = -math.inf if observed_devices.has_agents() else present


_absence: Final = _Absence()


def check_attachment(ctx: RequestContext, attachment: Attachment) -> None:
    """Check that the host of an attachment without agent has no device of it any more.

    It passes if no agent answers.

    :raises DevicePresent: the host has one; nothing was changed
    """
    if attachment.agent is not None or AttachmentState(attachment.state) not in WITH_ACCESS:
        return
    # The older calls load no connector; then the name of the host has to do.
    connector = attachment.connector if attachment.obj_attr_is_set("connector") else None
    identity = host_identity.of_row({"host": attachment.host, "connector": connector})
    _check(ctx, attachment.volume_id, {attachment.id}, identity)


def check_connections(ctx: RequestContext, rows: Sequence[AttachmentRow]) -> None:
    """Do as :func:`check_attachment` for what os-initialize_connection has connected.

    Where a volume has several connections, a host keeps its device for another one of them.

    :param rows: those that are closed; they may lack their connectors
    """
    if len(rows) == 1 and AttachmentState(rows[0]["state"]) in WITH_ACCESS:
        row = rows[0]
        _check(ctx, row["volume_id"], {row["id"]}, host_identity.of_row({**row}))


def _check(
    ctx: RequestContext, volume_id: str, ids: Collection[str], identity: HostIdentity
) -> None:
    if not CONF.agent.enabled or not identity.name or _absence.is_known():
        return
    agent = observed_devices.find_agent(identity)
    if agent is None:
        _absence.update()
    if agent is None or agent_store.state(agent) != "up":
        return
    attachment_id = min(ids)
    report = _ask(ctx, agent["host"], volume_id, attachment_id)
    device = report and observed_devices.find_device(report, volume_id, ids)
    if not device or device["path"] is None:
        return
    if device["attachment_id"] is None and _is_for_others(volume_id, ids, identity):
        return
    LOG.warning(
        "Attachment %s of volume %s: not deleted, host %s has %s (%s)",
        attachment_id,
        volume_id,
        agent["host"],
        device["path"],
        device["target"],
    )
    raise exception.DevicePresent(
        volume_id=volume_id,
        host=agent["host"],
        device=device["path"],
        attachment_id=attachment_id,
    )


def _ask(ctx: RequestContext, host: str, volume_id: str, attachment_id: str) -> AgentRow | None:
    """Return the row of an agent with a report that was made after this call; None: no answer.

    :raises TooManyCalls: the volume or the project has too many waiting calls
    """
    try:
        with bulkheads.slot(f"the agent of host {host}", volume_id, ctx.project_id):
            return _await_report(ctx, host, attachment_id)
    except (
        exception.AgentNotFound,
        exception.AgentTimeout,
        exception.AgentUnavailable,
        exception.Unavailable,
    ) as error:
        LOG.warning(
            "Attachment %s: host %s does not say whether it has a device of volume %s: %s",
            attachment_id,
            host,
            volume_id,
            error,
        )
        return None


def _await_report(ctx: RequestContext, host: str, attachment_id: str) -> AgentRow:
    request_id = uuid.uuid4().hex
    row = None

    def is_awaited() -> bool:
        nonlocal row
        row = agent_store.get(host)
        return row["observed"] is None or request_id not in row["observed"]["asked"]

    agent_api.report(ctx, host, request_id)
    if not polling.wait_while(is_awaited, TIMEOUT) or row is None:
        raise exception.AgentTimeout(host=host, attachment_id=attachment_id)
    return row


def _is_for_others(volume_id: str, ids: Collection[str], identity: HostIdentity) -> bool:
    """Return whether other attachments of a volume may use the same device of a host."""
    return any(
        host_identity.is_same_host(host_identity.of_row({**row}), identity)
        for row in attachment_store.list_of_volumes([volume_id])
        if not {row["id"], row["parent_id"]} & {*ids}
        and AttachmentState(row["state"]) in attachment_queries.USING_CONNECTION
    )
