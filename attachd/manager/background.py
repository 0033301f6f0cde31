# SPDX-License-Identifier: Apache-2.0
"""Does what a row says is due, for what nobody waits for; called by the endpoint.

How it ends is in the row, and in a message to the user; what cannot be done now is left to
recovery.
"""

from oslo_log import log

from attachd import exception
from attachd.db import attachments as db
from attachd.manager import attach, detach, nudging
from attachd.manager.backends import Backend
from attachd.states import AttachmentState

LOG = log.getLogger(__name__)


def process_pending(backend: Backend, attachment_id: str) -> None:
    """Connect or disconnect an attachment that is waiting for it."""
    try:
        _process_row(backend, db.get(attachment_id, None))
    except (exception.NotFound, exception.InvalidTransition):
        LOG.info("Attachment %s is gone or in other hands, nothing is due", attachment_id)
    except exception.AttachdError as error:
        LOG.warning("What was due for attachment %s was not done: %s", attachment_id, error)


def _process_row(backend: Backend, row: db.Row) -> None:
    if row["state"] == AttachmentState.CONNECTING:
        attach.finish_attach(backend, row)
        nudging.agents_of([db.get(row["id"], None)])
    elif row["state"] == AttachmentState.DISCONNECTING:
        detach.detach(backend, row["id"], row["volume_id"])
