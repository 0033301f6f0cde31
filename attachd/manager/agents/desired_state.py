# SPDX-License-Identifier: Apache-2.0
"""The desired state of a host, and the results that its agent reports.

rpc_server.py checks who reports, and db/agents/agent_transitions.py to which rows a result may
apply.
"""

import contextlib
from typing import Any, Final

from oslo_log import log

from attachd import exception, lost_agents, notifications
from attachd.context import RequestContext
from attachd.db.agents import agent_store, agent_transitions, host_leases, orphan_devices
from attachd.db.row_types import MachineRow
from attachd.db.secrets import encryption
from attachd.objects import Attachment, flat_connection, redact, service_uuid
from attachd.rpc import manager_api
from attachd.rpc.agent_manager_api import IN_LIBVIRT, DesiredState
from attachd.states import AttachmentState

LOG = log.getLogger(__name__)

LIBVIRT_KEY: Final = "key"
"""What drivers keep for the agent of a host, see drivers.base.Export.key_holder."""


def list_desired(host: str) -> tuple[list[DesiredState], int | None]:
    """Return what the agent of a host has to bring about, oldest first, without connections.

    :returns: the desired states; and how many seconds the lease of the host lasts, None: it is
        not fenced when its agent is lost
    """
    rows = agent_store.list_desired(host)
    host_lease = lost_agents.get_timeout(host_leases.rules_of(rows), lost_agents.Action.FENCE)
    return [_desired_state(row, {}, secrets_withheld=True) for row in rows], host_lease


def list_secrets(host: str) -> list[DesiredState]:
    """Return the secrets of libvirt that the agent of a host has to define, without keys."""
    return [_desired_secret(row, {}) for row in agent_store.list_desired_secrets(host)]


def get_desired(host: str, attachment_id: str) -> DesiredState | None:
    """Return the desired state of one attachment; None: it is not one of this host.

    Its connection has secrets only until the agent has reported the device: a host keeps them in
    its journal.

    :raises SecretUnreadable: it is to be connected, and its connection cannot be decrypted
    :raises Conflict: it is to be connected, and another host has an orphan device of the volume
    """
    row = next(iter(agent_store.list_assigned(host, attachment_id)), None)
    if row is None:
        return _find_secret(host, attachment_id)
    _check_nowhere_else(row, host)
    connection, shared = _connection_info(row, host), agent_store.is_shared(row)
    if row["state"] == AttachmentState.CONNECTED:
        desired = _desired_state(row, connection, secrets_withheld=False)
    else:
        redacted = redact(connection)
        desired = _desired_state(row, redacted, secrets_withheld=redacted != connection)
    return {**desired, "shared": shared}


def _find_secret(host: str, attachment_id: str) -> DesiredState | None:
    """Return the desired state of a secret of libvirt; None: the attachment has none.

    Its key is returned each time: libvirt forgets it when it ends.
    """
    for row in agent_store.list_secrets(host, attachment_id):
        secrets = encryption.decrypted(row, "provider_secrets") or {}
        return _desired_secret(row, {LIBVIRT_KEY: secrets[LIBVIRT_KEY]})
    return None


def _desired_secret(row: agent_store.DesiredRow, connection: dict[str, Any]) -> DesiredState:
    desired = _desired_state(row, connection, secrets_withheld=not connection)
    is_defined = row["secret_generation"] == row["generation"]
    return {**desired, "target_state": IN_LIBVIRT, "complete": is_defined}


def _check_nowhere_else(row: agent_store.AssignedRow, host: str) -> None:
    """Check that a host may have the device of a row, which may have come back from a backup.

    :raises Conflict: another host has a device of the volume; the row gets the reason as error
    """
    if row["volume_multiattach"] or row["state"] == AttachmentState.WITHDRAWING:
        return
    try:
        orphan_devices.check_nowhere_else(row["volume_id"], host)
    except exception.Conflict as error:
        _record_error(row, host, error)
        raise


def _record_error(row: agent_store.AssignedRow, host: str, error: Exception) -> None:
    with contextlib.suppress(exception.AttachdError):  # The row has changed meanwhile.
        agent_transitions.record_failure(row["id"], host, row["generation"], f"{error}")


def _desired_state(
    row: agent_store.DesiredRow, connection: dict[str, Any], *, secrets_withheld: bool
) -> DesiredState:
    disconnect = row["state"] == AttachmentState.WITHDRAWING
    backend = (row["volume_host"] or "").partition("#")[0]
    return {
        "attachment_id": row["id"],
        "volume_id": row["volume_id"],
        "target_state": "disconnected" if disconnect else "connected",
        "complete": row["state"] == AttachmentState.ATTACHED,
        "connection_info": connection,
        "secrets_withheld": secrets_withheld,
        "mode": row["mode"] or "rw",
        "size_gib": row["volume_size_gib"],
        "generation": row["generation"],
        "shared_targets": row["volume_shared_targets"],
        "service_uuid": service_uuid(backend) if backend else None,
    }


def _connection_info(row: agent_store.AssignedRow, host: str) -> dict[str, Any]:
    """Return the connection of a row; if it cannot be read, the row gets the reason as error."""
    try:
        return flat_connection(row) if row["connection_info"] else {}
    except exception.SecretUnreadable as error:
        if row["state"] != AttachmentState.WITHDRAWING:
            _record_error(row, host, error)
            raise
        LOG.warning("Attachment %s: %s", row["id"], error)
        return {}


def record_connected(
    attachment_id: str,
    host: str,
    generation: int,
    device: str,
    machine: MachineRow | None = None,
) -> None:
    """Record that a host has the device, and send a notification if that is new; or the secret.

    :param machine: as of machines.read()
    :raises: as agent_transitions.complete()
    """
    before = [row["state"] for row in agent_store.list_assigned(host, attachment_id)]
    if not before and agent_store.list_secrets(host, attachment_id):
        agent_transitions.record_secret(attachment_id, host, generation)
        return
    row = agent_transitions.complete(attachment_id, host, generation, device, machine)
    if before == [AttachmentState.CONNECTED]:
        notifications.volume("attach.end", row["volume_id"])


def record_disconnected(
    context: RequestContext,
    attachment_id: str,
    host: str,
    generation: int,
    machine: MachineRow | None = None,
) -> None:
    """Record that a host has removed the device, and have the manager revoke its access.

    The manager does so even if the caller that requested the detach is dead.

    :param machine: as of machines.read()
    :raises: as agent_transitions.release()
    """
    row = agent_transitions.release(attachment_id, host, generation, machine)
    released = Attachment(id=row["id"], volume_id=row["volume_id"], volume_host=row["volume_host"])
    try:
        manager_api.process_pending(context, released)
    except exception.AttachdError as error:
        LOG.info("Attachment %s: left to recovery: %s", attachment_id, error)
