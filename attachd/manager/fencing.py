# SPDX-License-Identifier: Apache-2.0
"""Fencing of one attachment: revoke the access of its host, and prove that it is gone.

The host takes no part, and is not believed: it may be dead, frozen or taken over.
"""

from collections.abc import Sequence
from typing import Final

from oslo_log import log

from attachd import exception
from attachd.closed_hosts.fences import Proof
from attachd.db import models
from attachd.drivers import abilities
from attachd.drivers.base import Driver, Export, VolumeRef
from attachd.manager import storage_identity
from attachd.rpc.manager_api import Fencing

LOG = log.getLogger(__name__)

_OBSERVATIONS: Final = 2

NOT_CONNECTED: Final = Proof(
    result=Fencing.PROVED.value,
    observed_at=[],
    observed=["No host has access by it."],
)
"""The proof of an attachment without a connection."""


def get_fencing(driver: Driver) -> Fencing:
    """Return how sure the fencing of a host is; it follows from what the driver declares."""
    promises = driver.promises
    is_listed = promises.complete_listing or promises.frozen_host_cut_off
    if isinstance(driver, abilities.Audit) and is_listed:
        return Fencing.PROVED
    if promises.session_end or promises.detach_proof:
        return Fencing.ASSERTED
    return Fencing.NONE


def fence(driver: Driver, volume: VolumeRef, export: Export, others: Sequence[Export]) -> Proof:
    """Revoke the access of one host to a volume, and prove it.

    :param others: the other live exports of the volume, which must not be disturbed
    :raises BackendError: the host may still reach the volume
    """
    ability = get_fencing(driver)
    if ability is Fencing.NONE:
        raise exception.BackendError(
            f"Its backend cannot end the access of a host. Turn the host off, and then delete "
            f"attachment {export.attachment_id} by force.",
            final=True,
        )
    storage_identity.check_has_volume(driver, volume, export.attachment_id)
    if isinstance(driver, abilities.RememberClients):
        driver.end_remembered_clients(volume, export)
    _revoke(driver, volume, export, others)
    if ability is Fencing.PROVED and isinstance(driver, abilities.Audit):
        return _prove(driver, volume, export, others)
    return Proof(
        result=ability.value,
        observed_at=[_now()],
        observed=["The backend has ended the access, and cannot list who has any."],
    )


def _revoke(driver: Driver, volume: VolumeRef, export: Export, others: Sequence[Export]) -> None:
    """Revoke; if that fails although the backend answers, revoke all access but that of others."""
    try:
        driver.revoke(volume, export, others)
    except exception.BackendUnreachable:
        raise
    except exception.BackendError as error:
        if not isinstance(driver, abilities.Evict):
            raise
        LOG.warning("Volume %s: revoking all but the live exports, as %s", volume.id, error)
        driver.revoke_all_except(volume, others)


def _prove(
    driver: abilities.Audit, volume: VolumeRef, export: Export, others: Sequence[Export]
) -> Proof:
    """Observe several times that the backend lists nothing of the host but what others need.

    :raises BackendError: it lists more, or the host has another attachment of the volume
    """
    names = list_holders(driver, volume, [export])
    if shared := names & list_holders(driver, volume, others):
        raise exception.BackendError(
            f"Host {export.connector.get('host')} has another attachment of volume {volume.id}, "
            f"with the same access ({', '.join(sorted(shared))}). Fence the whole host.",
            final=True,
        )
    proof = Proof(result=Fencing.PROVED.value, observed_at=[], observed=[])
    for _ in range(_OBSERVATIONS):
        proof["observed_at"].append(_now())
        proof["observed"].append(_observe(driver, volume, names))
    return proof


def _observe(driver: abilities.Audit, volume: VolumeRef, names: frozenset[str]) -> str:
    """Return what the backend lists of a volume now; raises if one of these names is among it."""
    listed = list(driver.list_volume_exports(volume))
    holders = frozenset().union(*(item.holders for item in listed))
    sessions = frozenset().union(*(item.sessions for item in listed))
    for what, found in (("access", holders & names), ("a session", sessions & names)):
        if found:
            raise exception.BackendError(
                f"The backend still lists {what} of {', '.join(sorted(found))}."
            )
    return (
        f"No access and no session of {', '.join(sorted(names)) or 'the host'}; "
        f"{len(holders)} others have access, {len(sessions)} have a session."
    )


def list_holders(
    driver: abilities.Audit, volume: VolumeRef, exports: Sequence[Export]
) -> frozenset[str]:
    """Return the names by which a backend lists the hosts of exports."""
    expected = driver.expected_exports(volume, exports)
    return frozenset().union(*(item.holders for item in expected))


def _now() -> str:
    return models.now().isoformat()
