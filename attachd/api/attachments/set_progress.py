# SPDX-License-Identifier: Apache-2.0
"""Wait until managers and agents have attached or detached several volumes, and show the results.

All attachments are read by one statement; their rows have what managers and agents report.
"""

from collections.abc import Callable, Collection, Mapping
import dataclasses
from typing import TypedDict

from attachd import exception
from attachd.api import errors, polling
from attachd.api.agents import presence
from attachd.api.attachments.dry_run import Reason
from attachd.conf import CONF
from attachd.db.agents import agent_store
from attachd.db.agents.agent_store import Progress
from attachd.db.row_types import AttachmentRow
from attachd.states import AttachmentState


@dataclasses.dataclass
class Member:
    """One attachment of a request.

    :ivar host: whose agent makes the device; None: there is no agent
    :ivar error: why it has failed; None: it has not
    """

    volume_id: str | None
    attachment_id: str
    host: str | None = None
    error: exception.AttachdError | None = None


class Result(TypedDict):
    """What has become of one attachment of a request.

    :ivar volume_id: null: the attachment does not exist
    :ivar attachment_id: null: it was not made, or was removed again
    :ivar status: of the attachment; null: there is none, or none any more
    :ivar device: its path at the host; null: there is none
    :ivar error: why it has failed; null: it has not
    """

    volume_id: str | None
    attachment_id: str | None
    status: str | None
    device: str | None
    error: Reason | None


Judge = Callable[[Member, Progress | None], bool]
"""Returns whether an attachment is done; raises AttachdError: it has failed."""


def wait(members: Collection[Member], judge: Judge, go_on: Callable[[bool], bool]) -> None:
    """Wait until all are done; store why one has failed.

    :param go_on: is called after each read, with whether one has failed; False: wait no longer
    """
    pending = {member.attachment_id: member for member in members if member.error is None}

    def is_at_work() -> bool:
        progress = agent_store.list_progress(pending)
        for attachment_id, member in [*pending.items()]:
            try:
                is_done = judge(member, progress.get(attachment_id))
            except exception.AttachdError as error:
                member.error, is_done = error, True
            if is_done:
                del pending[attachment_id]
        return go_on(any(member.error for member in members)) and bool(pending)

    if pending and not polling.wait_while(is_at_work, CONF.agent.work_timeout):
        for attachment_id, member in pending.items():
            member.error = exception.AgentTimeout(host=member.host, attachment_id=attachment_id)


def is_attached(member: Member, progress: Progress | None) -> bool:
    """Return whether an agent has made the device; see :data:`Judge`."""
    if progress is None:
        raise _deleted(member)
    state = AttachmentState(progress.state)
    if state is AttachmentState.ATTACHED:
        return True
    if state in {AttachmentState.CONNECT_FAILED, AttachmentState.CONNECT_UNKNOWN}:
        raise exception.ConnectFailed(
            attachment_id=member.attachment_id, reason=progress.error or "The backend failed."
        )
    if state is AttachmentState.CONNECTED:
        _check_agent(member, progress)
    elif state not in {AttachmentState.CONNECTING, AttachmentState.RESERVED}:
        raise _deleted(member)
    return False


def is_removed(member: Member, progress: Progress | None) -> bool:
    """Return whether an attachment is gone; see :data:`Judge`."""
    if progress is None:
        return True
    state = AttachmentState(progress.state)
    if state is AttachmentState.WITHDRAWING:
        _check_agent(member, progress)
    elif state is AttachmentState.ATTACHED:
        raise exception.DeviceBusy(progress.error or f"Attachment {member.attachment_id} stays.")
    elif state is AttachmentState.DISCONNECT_FAILED:
        raise exception.DisconnectFailed(
            attachment_id=member.attachment_id, reason=progress.error or "The backend failed."
        )
    return False


def _check_agent(member: Member, progress: Progress) -> None:
    if progress.error:
        raise exception.AgentError(reason=progress.error)
    if not progress.is_alive:
        since = presence.since(progress.seen_at)
        raise exception.AgentUnavailable(host=member.host, since=since)


def _deleted(member: Member) -> exception.Conflict:
    return exception.Conflict(
        reason=f"Attachment {member.attachment_id} of volume {member.volume_id} is being deleted "
        "or was deleted by another request."
    )


def show(member: Member, rows: Mapping[str, AttachmentRow]) -> Result:
    """Return the representation of a result.

    :param rows: the attachments that exist, by id
    """
    row = rows.get(member.attachment_id)
    return {
        "volume_id": member.volume_id,
        "attachment_id": None if row is None else row["id"],
        "status": None if row is None else AttachmentState(row["state"]).wire,
        "device": None if row is None else row["device"],
        "error": None if member.error is None else _reason(member.error),
    }


def _reason(error: exception.AttachdError) -> Reason:
    return {
        "code": error.code,
        "message": errors.public_message(error),
        "reason_code": error.reason_code(),
    }
