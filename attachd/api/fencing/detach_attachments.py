# SPDX-License-Identifier: Apache-2.0
"""Detach the attachments of a host that is drained, one after another, and show how far that is.

What is to be detached is stored first.  How far it is follows from the attachments: an attachment
that is to be detached and is not there any more is detached.  A request that ends early, for any
reason, is repeated.
"""

from collections.abc import Container, Mapping, Sequence
import copy
import datetime
import time
from typing import Final, Literal, TypedDict

from oslo_log import log

from attachd import exception, notifications
from attachd.api.attachments import agent_detach
from attachd.conf import CONF
from attachd.context import RequestContext
from attachd.db import host_fences
from attachd.db.row_types import AttachmentWithVolumeRow, HostFenceRow
from attachd.objects import Attachment
from attachd.states import AttachmentKind, AttachmentState

LOG = log.getLogger(__name__)

ALL: Final = "all"
_NOT_REMOVED: Final = (
    "No agent has made it, and its device may be in use: detach it on the host, or by name in a "
    "drain (--detach), which ends the access at once."
)
Status = Literal["attached", "waiting", "detaching", "detached", "failed", "left"]

_DETACHING: Final = frozenset({AttachmentState.WITHDRAWING, AttachmentState.DISCONNECTING})

_REASONS: Final = {
    "down": (
        "The agent of host {agent} is down, and has to remove the device first. Start it; or, if "
        "the host is dead, fence it: openstack volume host fence {agent}"
    ),
    "conflict": (
        "Two machines report as the agent of host {agent}, which has to remove the device first. "
        "Choose one: attachd-manage agent accept {agent} --boot BOOT_ID"
    ),
}
"""Why agents remove no devices, by their states."""


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


def request(
    host_row: HostFenceRow, rows: Sequence[AttachmentWithVolumeRow], asked: str | Sequence[str]
) -> None:
    """Store which attachments of a drained host are to be detached, beside those stored before.

    :param rows: the attachments of the host
    :param asked: ALL, or ids that :func:`check_ids` has checked; what no agent has made must be
        named, as nobody removes the device before the access ends
    :raises Conflict: the host was resumed meanwhile
    """
    volume_ids = {
        row["id"]: row["volume_id"]
        for row in rows
        if (_has_agent(row) or _left_reason(row) if asked == ALL else row["id"] in asked)
    }
    if volume_ids and not host_fences.add_detaches(host_row, volume_ids):
        raise exception.Conflict(
            reason=f"Host {host_row['host']} was resumed by another request: nothing is detached. "
            "Drain it again if it is to go."
        )


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


def detach(ctx: RequestContext, host_row: HostFenceRow) -> dict[str, str]:
    """Detach what is asked, until it is done, [rpc]attach_timeout is over, or the host resumed.

    Those that have failed before come last.

    :returns: errors by the ids of attachments
    """
    # The rule of the drain decides, also for attachments of other projects.
    ctx = copy.copy(ctx)
    ctx.is_admin = True
    host, errors = host_row["host"], dict[str, str]()
    deadline = time.monotonic() + CONF.rpc.attach_timeout
    rows = host_fences.list_attachments(host)
    for row in sorted(rows, key=lambda row: bool(row["error"]) or row["state"] in _DETACHING):
        asked = _list_asked(host_row)
        if asked is None or time.monotonic() > deadline:
            break
        if row["id"] not in asked or _left_reason(row):
            continue
        try:
            agent_detach.disconnect(ctx, Attachment.from_row(ctx, row), None)
        except exception.NotFound:
            LOG.info("Attachment %s: another request has detached it", row["id"])
        except exception.TooManyCalls as error:
            LOG.info("Host %s: the drain waits: %s", host, error)
            break
        except exception.AttachdError as error:
            LOG.warning("Attachment %s: not detached by the drain: %s", row["id"], error)
            errors[row["id"]] = f"{error}"
        except Exception:
            LOG.exception("Attachment %s: detaching failed", row["id"])
            errors[row["id"]] = "An unforeseen error; the log of the API has more."
    return errors


def _list_asked(host_row: HostFenceRow) -> Container[str] | None:
    """Return the ids of what a drain is to detach, as of now; None: it has ended."""
    current = host_fences.find(host_row["host"])
    if current is None or current["drained_at"] != host_row["drained_at"]:
        return None
    return current["drain_detach"] or {}


def show(
    host_row: HostFenceRow | None,
    rows: Sequence[AttachmentWithVolumeRow],
    errors: Mapping[str, str] | None = None,
    agent_state: str | None = None,
) -> Drain | None:
    """Return the drain of a host; None: it is not drained.

    :param rows: the attachments of the host
    :param agent_state: of its agent; one that is "down" or in "conflict" removes no devices
    :param errors: as of :func:`detach`; else those that the attachments have
    """
    if host_row is None or host_row["drained_at"] is None:
        return None
    asked, present = host_row["drain_detach"] or {}, {row["id"] for row in rows}
    errors = {**(errors or {}), **_blocked(rows, agent_state)}
    attachments = [
        *(_gone(name, volume_id) for name, volume_id in asked.items() if name not in present),
        *(_show(row, asked, errors.get(row["id"])) for row in rows),
    ]
    statuses = [item["status"] for item in attachments]
    return {
        "drained_at": host_row["drained_at"],
        "reason": host_row["drain_reason"],
        "user_id": host_row["drain_user_id"],
        "counts": {status: statuses.count(status) for status in sorted({*statuses})},
        "attachments": attachments,
    }


def notify_end(host: str, step: notifications.HostStep, drain: Drain | None) -> None:
    """Notify that a drain has detached what it could, if nothing is still to be waited for."""
    if drain is not None and not drain["counts"].keys() & {"waiting", "detaching"}:
        notifications.host("drain.end", host, step, attachments=drain["attachments"])


def _blocked(rows: Sequence[AttachmentWithVolumeRow], agent_state: str | None) -> dict[str, str]:
    """Return why attachments wait for an agent that removes no devices, by their ids."""
    reason = _REASONS.get(agent_state or "")
    return {
        row["id"]: reason.format(agent=row["agent"])
        for row in rows
        if reason is not None and row["state"] == AttachmentState.WITHDRAWING
    }


def _gone(attachment_id: str, volume_id: str) -> Detach:
    return {
        "attachment_id": attachment_id,
        "volume_id": volume_id,
        "instance_uuid": None,
        "status": "detached",
        "reason": None,
    }


def _show(row: AttachmentWithVolumeRow, asked: Container[str], error: str | None) -> Detach:
    status, reason = _status(row, asked, error or row["error"])
    return {
        "attachment_id": row["id"],
        "volume_id": row["volume_id"],
        "instance_uuid": row["instance_uuid"],
        "status": status,
        "reason": reason,
    }


def _status(
    row: AttachmentWithVolumeRow, asked: Container[str], error: str | None
) -> tuple[Status, str | None]:
    if row["id"] not in asked:
        return "attached", None if _has_agent(row) else _NOT_REMOVED
    if left := _left_reason(row):
        return "left", left
    if row["state"] in _DETACHING:
        return "detaching", error
    if error or row["state"] == AttachmentState.DISCONNECT_FAILED:
        return "failed", error
    return "waiting", None


def _has_agent(row: AttachmentWithVolumeRow) -> bool:
    return row["agent"] is not None


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
