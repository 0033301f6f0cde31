# SPDX-License-Identifier: Apache-2.0
"""Begin to remove an attachment without waiting for it, for drains and for sets."""

from oslo_log import log

from attachd import exception
from attachd.context import RequestContext
from attachd.db.agents import agent_transitions
from attachd.db.attachments import async_requests, attachment_store
from attachd.db.row_types import AttachmentWithVolumeRow
from attachd.objects import Attachment
from attachd.rpc import agent_api, manager_api
from attachd.states import WITH_ACCESS, AttachmentState, Event

LOG = log.getLogger(__name__)


def begin(ctx: RequestContext, row: AttachmentWithVolumeRow) -> None:
    """Store that an attachment is to be removed, and have its agent or manager begin.

    A reservation is removed at once.  An error is stored with the attachment.
    """
    if row["error"]:
        agent_transitions.clear_error(row["id"])  # A later one is of this attempt.
    try:
        if row["state"] == AttachmentState.RESERVED:
            attachment_store.transition(row["id"], row["volume_id"], Event.CANCEL)
        elif needs_agent(row):
            async_requests.withdraw(row["id"], row["volume_id"])
            agent_api.reconcile(ctx, str(row["agent"]), row["id"])
        else:
            async_requests.disconnect(row["id"], row["volume_id"])
            manager_api.process_pending(ctx, Attachment.from_row(ctx, row))
    except (exception.NotFound, exception.InvalidTransition) as error:
        LOG.info("Attachment %s: changed by another process: %s", row["id"], error)
    except (exception.Unavailable, exception.AgentUnavailable) as error:
        LOG.warning("Attachment %s: found later by its agent or manager: %s", row["id"], error)
    except exception.AttachdError as error:
        LOG.warning("Attachment %s: not detached: %s", row["id"], error)
        attachment_store.record_error(row, f"{error}")


def needs_agent(row: AttachmentWithVolumeRow) -> bool:
    """Return whether an agent may have the device, which it has to remove first."""
    return row["agent"] is not None and AttachmentState(row["state"]) in WITH_ACCESS
