# SPDX-License-Identifier: Apache-2.0
"""Tells agents of hosts to look at what a manager has changed; they find it by themselves, later.

Nothing depends on it, so nothing fails by it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from oslo_log import log

from attachd import context, exception
from attachd.rpc import agent_api
from attachd.states import WITH_ACCESS, AttachmentState

LOG = log.getLogger(__name__)


def agents_of(rows: Iterable[Mapping[str, Any]]) -> None:
    """Have the agents look that see to any of these attachments, and may have its device."""
    for row in rows:
        if row["agent"] is not None and AttachmentState(row["state"]) in WITH_ACCESS:
            _nudge(row["agent"], row["id"])


def _nudge(host: str, attachment_id: str) -> None:
    try:
        agent_api.request_reconcile(context.get_admin_context(), host, attachment_id)
    except exception.AttachdError as error:
        LOG.info("The agent of host %s looks later at %s: %s", host, attachment_id, error)
    except Exception:
        LOG.exception("The agent of host %s could not be told of %s", host, attachment_id)
