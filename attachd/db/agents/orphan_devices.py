# SPDX-License-Identifier: Apache-2.0
"""Devices that hosts report for attachments that the database does not have.

A database that was restored from a backup may show a volume as available although a host has a
device of it, of an attachment that is newer than the backup. Only the host's report shows that.
It counts when an administrator has said that the database was restored: else a host could keep
others from a volume that it never had.
"""

from collections.abc import Iterable, Mapping
import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from attachd import exception
from attachd.conf import CONF
from attachd.db import host_fences, models
from attachd.db.attachments import events
from attachd.db.engine import session
from attachd.db.engine.retry import retried

_AGENTS = models.agents
_ATTACHMENTS = models.attachments
_EVENTS = models.events


class OrphanDevice(NamedTuple):
    """A device without an attachment, as its host reported it."""

    host: str
    attachment_id: str
    path: str


def check_nowhere_else(volume_id: str, host: str) -> None:
    """Check that no other host has an orphan device of a volume.

    :raises Conflict: one has, by a report that is believed
    """
    found = find_orphan(volume_id, host)
    if found is not None:
        raise exception.Conflict(
            reason=f"Host {found.host} still has volume {volume_id} as {found.path}, by "
            f"attachment {found.attachment_id}, which does not exist. Its agent removes the "
            "device as soon as it is unused: end what uses it, then repeat the request. If the "
            "report is wrong, an administrator ends that it counts: attachd-manage db restored "
            f"--end {found.host}"
        )


@retried
def find_orphan(volume_id: str, host: str) -> OrphanDevice | None:
    """Return a device of a volume at another host that has no attachment.

    It counts if the report of the host is believed, because the database was restored, and if the
    host is not fenced.  The devices of deleted attachments do not count: their hosts remove them.
    That is known for as long as events are kept, so older reports are not used.

    :param host: whose own devices do not count
    """
    kept = models.now() - datetime.timedelta(seconds=CONF.events.retention)
    statement = sa.select(_AGENTS.c.host, _AGENTS.c.orphan_devices).where(
        _AGENTS.c.believed_until > models.now(),
        _AGENTS.c.host != host,
        _AGENTS.c.seen_at > kept,
        _AGENTS.c.orphan_devices.is_not(None),
    )
    with session.reader() as connection:
        devices = [
            item
            for row in connection.execute(statement)
            for item in _devices_of_volume(row.host, row.orphan_devices, volume_id)
        ]
        known = _known_ids(connection, [item.attachment_id for item in devices])
    unknown = (item for item in devices if item.attachment_id not in known)
    return next((item for item in unknown if host_fences.find_fence(item.host) is None), None)


def _devices_of_volume(
    host: str, devices: Iterable[Mapping[str, Any]], volume_id: str
) -> Iterable[OrphanDevice]:
    for device in devices:
        if device["volume_id"] == volume_id and device["path"]:
            yield OrphanDevice(host, device["attachment_id"], device["path"])


def _known_ids(connection: sa.Connection, attachment_ids: list[str]) -> set[str]:
    """Return those that exist, or that have been deleted."""
    if not attachment_ids:
        return set()
    existing = sa.select(_ATTACHMENTS.c.id).where(_ATTACHMENTS.c.id.in_(attachment_ids))
    deleted = sa.select(_EVENTS.c.attachment_id).where(
        _EVENTS.c.attachment_id.in_(attachment_ids), _EVENTS.c.type == events.DELETED
    )
    return set(connection.execute(sa.union_all(existing, deleted)).scalars())
