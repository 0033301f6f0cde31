# SPDX-License-Identifier: Apache-2.0
"""Transitions of attachments that the agent of a host reports; used by the managers' RPC server.

Each function gets the authenticated host, and the generation of the desired state that the host
has acted on. An attachment of another host's agent, or with a newer generation, is not changed. A
repeated report, after a lost answer, is stored once.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

import sqlalchemy as sa

from attachd import exception
from attachd.db import models
from attachd.db.agents import machines
from attachd.db.attachments import attachment_store
from attachd.db.attachments.attachment_rows import LockedVolume
from attachd.db.engine import session
from attachd.db.engine.retry import retried
from attachd.db.row_types import AttachmentRow, AttachmentWithVolumeRow, MachineRow
from attachd.states import ESTABLISHED, WITH_ACCESS, AttachmentState, Event

__all__ = [
    "clear_error",
    "complete",
    "record_failure",
    "record_secret",
    "refuse_detach",
    "release",
]

_ATTACHMENTS = models.attachments
_WITHDRAWING: Final = frozenset({AttachmentState.WITHDRAWING})


class _AlreadyReported(Exception):
    """The same report has been stored before."""


def complete(
    attachment_id: str, host: str, generation: int, device: str, machine: MachineRow | None = None
) -> AttachmentWithVolumeRow:
    """Store that the device exists: the attachment is complete.

    :param device: its path at the host
    :param machine: the row of the agent, as of machines.read()
    :raises AttachmentNotFound: the attachment does not exist any more
    :raises InvalidTransition: it is to be removed, or in another generation, or another host's
    """
    origin = machine and machines.get_origin(machine)
    values = {"device": device, "error": None, "device_origin": origin}
    return _move(attachment_id, host, generation, Event.COMPLETE, ESTABLISHED, values)


@retried
def record_secret(attachment_id: str, host: str, generation: int) -> None:
    """Store that the secret of libvirt is defined; the state does not change.

    :raises AttachmentNotFound: the attachment does not exist any more
    :raises InvalidTransition: it is to be removed, or in another generation, or another host's
    """
    defined = (
        sa.update(_ATTACHMENTS)
        .where(
            _ATTACHMENTS.c.id == attachment_id,
            _ATTACHMENTS.c.secret_agent == host,
            _ATTACHMENTS.c.generation == generation,
            _ATTACHMENTS.c.state.in_(sorted(WITH_ACCESS)),
        )
        .values(secret_generation=generation, error=None)
    )
    if session.write(defined) != 1:
        _refuse(attachment_store.get(attachment_id, None), host, "secret defined")


def record_failure(
    attachment_id: str, host: str, generation: int, error: str
) -> AttachmentWithVolumeRow:
    """Store why a device could not be created or removed; the state does not change.

    :raises: as :func:`complete`
    """
    if not _store_error(attachment_id, host, generation, error):
        _refuse(attachment_store.get(attachment_id, None), host, "fail at its host")
    return attachment_store.get(attachment_id, None)


@retried
def clear_error(attachment_id: str) -> None:
    """Delete the last error of an attachment, before its agent or manager is asked to try again.

    The reason of an operation that has failed is kept.
    """
    states = sorted(WITH_ACCESS | {AttachmentState.DISCONNECTING})
    cleared = (
        sa.update(_ATTACHMENTS)
        .where(_ATTACHMENTS.c.id == attachment_id, _ATTACHMENTS.c.state.in_(states))
        .values(error=None)
    )
    session.write(cleared)


def release(
    attachment_id: str, host: str, generation: int, machine: MachineRow | None = None
) -> AttachmentWithVolumeRow:
    """Store that the device is removed: the manager revokes the host's access next.

    :param machine: the row of the agent, as of machines.read()
    :returns: the row, in DISCONNECTING
    :raises Conflict: the report is no proof
    :raises: as :func:`complete`
    """
    values = {"device": None}
    reported_state = AttachmentState.DISCONNECTING
    return _move(
        attachment_id,
        host,
        generation,
        Event.DISCONNECT,
        _WITHDRAWING,
        values,
        reported_state,
        machine,
    )


def refuse_detach(
    attachment_id: str, host: str, generation: int, error: str
) -> AttachmentWithVolumeRow:
    """Store that the device has to stay: the attachment is attached again.

    :param error: the reason, such as the processes that use it
    :raises: as :func:`complete`
    """
    values = {"error": error}
    reported_state = AttachmentState.ATTACHED
    return _move(
        attachment_id, host, generation, Event.REFUSE_DETACH, _WITHDRAWING, values, reported_state
    )


def _move(
    attachment_id: str,
    host: str,
    generation: int,
    event: Event,
    sources: Collection[AttachmentState],
    values: Mapping[str, Any],
    reported_state: AttachmentState | None = None,
    prover: MachineRow | None = None,
) -> AttachmentWithVolumeRow:
    """Move an attachment as its agent reports.

    :param prover: the row of the agent, if its report has to prove that the device is gone
    :param reported_state: its state if the same report has been stored before; None: any
    """

    def guard(locked: LockedVolume) -> Mapping[str, Any]:
        current = locked.attachment
        its_own = current["agent"] == host and current["generation"] == generation
        if its_own and reported_state is not None and current["state"] == reported_state:
            raise _AlreadyReported
        if not its_own or current["state"] not in sources:
            _refuse(current, host, event.value)
        if prover is not None:
            machines.check_proof(prover, current["device_origin"])
        return values

    volume_id = attachment_store.get(attachment_id, None)["volume_id"]
    try:
        transitioned = attachment_store.transition(attachment_id, volume_id, event, guard=guard)
    except _AlreadyReported:
        return attachment_store.get(attachment_id, None)
    return {
        **transitioned.attachment,
        "volume_host": transitioned.volume["host"],
        "volume_state": transitioned.volume["state"],
        "volume_status": transitioned.volume["status"],
        "volume_multiattach": transitioned.volume["multiattach"],
    }


@retried
def _store_error(attachment_id: str, host: str, generation: int, error: str) -> bool:
    changed = (
        sa.update(_ATTACHMENTS)
        .where(
            _ATTACHMENTS.c.id == attachment_id,
            sa.or_(_ATTACHMENTS.c.agent == host, _ATTACHMENTS.c.secret_agent == host),
            _ATTACHMENTS.c.generation == generation,
            _ATTACHMENTS.c.state.in_(sorted(WITH_ACCESS)),
        )
        .values(error=models.truncate_error(error))
    )
    return session.write(changed) == 1


def _refuse(current: AttachmentRow, host: str, event: str) -> NoReturn:
    if host not in {current["agent"], current["secret_agent"]}:
        raise exception.InvalidTransition(
            f"Attachment {current['id']} does not belong to the agent of host {host}."
        )
    raise exception.InvalidTransition(
        f"Attachment {current['id']} is {current['state']} in generation "
        f"{current['generation']}, and the agent's report for event '{event}' is out of date. "
        "Fetch the desired state again."
    )
