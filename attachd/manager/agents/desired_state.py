# SPDX-License-Identifier: Apache-2.0
"""What is due at a host, and what follows when its agent has done it; used by the registry.

Who may say so is the registry's to find out; about which row, that of db/agent_moves.py.
"""

from typing import Any

from oslo_log import log

from attachd import exception, notifications
from attachd.context import RequestContext
from attachd.db import agent_moves, agents
from attachd.objects import Attachment, connections
from attachd.rpc import manager_api
from attachd.rpc.agent_manager_api import DesiredState
from attachd.states import AttachmentState

LOG = log.getLogger(__name__)


def due(host: str, attachment_id: str | None = None) -> list[DesiredState]:
    """Return what the agent of a host has to see to, oldest first.

    A connection that cannot be opened is told without its contents where nobody needs them to let
    a device be: an agent that did not hear of it would take that away.

    :param attachment_id: only this one
    :raises SecretUnreadable: that one is to be connected, and cannot be opened
    """
    asked = attachment_id is not None
    return [_duty(row, asked=asked) for row in agents.work(host, attachment_id)]


def _connection(row: agents.Row, *, needed: bool) -> dict[str, Any]:
    try:
        return connections.flat(row) if row["connection_info"] else {}
    except exception.SecretUnreadable as error:
        if needed:
            raise
        LOG.warning("Attachment %s: %s", row["id"], error)
        return {}


def _duty(row: agents.Row, *, asked: bool) -> DesiredState:
    leaves = row["state"] == AttachmentState.WITHDRAWING
    backend = (row["volume_host"] or "").partition("#")[0]
    return {
        "attachment_id": row["id"],
        "volume_id": row["volume_id"],
        "target_state": "disconnected" if leaves else "connected",
        "complete": row["state"] == AttachmentState.ATTACHED,
        "connection_info": _connection(row, needed=asked and not leaves),
        "mode": row["mode"] or "rw",
        "size_gib": row["volume_size_gib"],
        "generation": row["generation"],
        "shared_targets": row["volume_shared_targets"],
        "service_uuid": connections.service_uuid(backend) if backend else None,
    }


def completed(attachment_id: str, host: str, generation: int, device: str) -> None:
    """Note that a device is there, and tell listeners if that is new.

    :raises: as agent_moves.complete()
    """
    before = [row["state"] for row in agents.work(host, attachment_id)]
    row = agent_moves.complete(attachment_id, host, generation, device)
    if before == [AttachmentState.CONNECTED]:
        notifications.volume("attach.end", row["volume_id"])


def released(context: RequestContext, attachment_id: str, host: str, generation: int) -> None:
    """Note that a device is gone, and have the backend shut the host out.

    That goes on when whoever asked for it is dead.

    :raises: as agent_moves.release()
    """
    row = agent_moves.release(attachment_id, host, generation)
    let_go = Attachment(id=row["id"], volume_id=row["volume_id"], volume_host=row["volume_host"])
    try:
        manager_api.process_pending(context, let_go)
    except exception.AttachdError as error:
        LOG.info("Attachment %s is left to recovery: %s", attachment_id, error)
