# SPDX-License-Identifier: Apache-2.0
"""Rules that decide, under the volume's lock, whether one more may attach, and may write.

attachd.multiattach explains the extra specs of a type.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from attachd import exception, multiattach, states
from attachd.conf import CONF
from attachd.db import models
from attachd.db.attachments import rows as attachment_rows
from attachd.db.engine import session
from attachd.states import AttachmentKind, AttachmentState, VolumeState

Row = dict[str, Any]
_ATTACHMENTS = models.attachments

READONLY: Final = "readonly"
"""The key of a volume's admin_metadata that makes it read-only; "True" or "False"."""

_HOST_KINDS: Final = frozenset({AttachmentKind.ATTACHMENT, AttachmentKind.CONNECTION})
"""The kinds whose hosts get access; a legacy attachment has a connection beside it."""


def check_reserve(
    volume: Row, rows: Sequence[Row], new: Row, denied_rule: str | None = None
) -> None:
    """Check that one more row may join the holders of a volume.

    A server that moves to another host is attached from both for a while.

    :param volume: with ``type_specs``
    :param rows: the existing ones
    :param new: the row to be stored
    :param denied_rule: the rule that denies the caller to share the volume, if one does
    :raises VolumeNotFree: it may not
    :raises LimitReached: the limit is reached
    :raises Forbidden: the volume has another holder, and ``denied_rule`` names a rule
    """
    free = volume["state"] == VolumeState.READY and volume["status"] != "error"
    holders = attachment_rows.holding(rows)
    server = new.get("instance_uuid")
    others = [row for row in holders if server is None or row["instance_uuid"] != server]
    if not free or (others and not volume["multiattach"]):
        named = ", ".join(attachment_rows.describe(row) for row in holders[:3])
        raise exception.VolumeNotAvailable(
            volume_id=volume["id"],
            status=volume["status"],
            holder=f"; it is held by {named}" if named else "",
        )
    check_shareable(other_holders(new, rows), denied_rule)
    check_limit(volume, [*rows, new])


def other_holders(new: Row, rows: Sequence[Row]) -> list[Row]:
    """Return the other holders of a volume, without the same server on its way to another host.

    Such a server has two attachments. With a third one, some of them are for another purpose.
    """
    holders = attachment_rows.holding(rows)
    server = new.get("instance_uuid")
    if server is None:
        return holders
    same = [row for row in attachment_rows.visible(holders) if row["instance_uuid"] == server]
    return holders if len(same) > 1 else [row for row in holders if row["instance_uuid"] != server]


def check_shareable(strangers: Sequence[Row], denied_rule: str | None) -> None:
    """Check that the caller may share a volume with other holders.

    :raises Forbidden: naming the rule
    """
    if strangers and denied_rule:
        raise exception.Forbidden(action=denied_rule)


def check_connect_limits(
    connection: sa.Connection, volume: Row, new: Row, others: Sequence[Row]
) -> None:
    """Check the limits for one more host with access, or the same host once more.

    :param volume: with ``type_specs``
    :param new: the row after the transition, with ``host``
    :raises LimitReached: a limit is reached
    """
    counts = {**new, "state": AttachmentState.CONNECTING.value}
    check_limit(volume, [*others, counts])
    limit = multiattach.parse(volume["type_specs"] or {}).max_attachments_per_host
    beside = [row for row in _connected(others) if row["host"] == new["host"]]
    if limit is not None and len(beside) >= limit:
        raise exception.AttachmentLimitExceeded(
            what=f"Volume {volume['id']} on host {new['host']}",
            count=len(beside),
            limit=limit,
            name=f"{multiattach.MAX_ATTACHMENTS_PER_HOST} of its type",
        )
    _check_host_limit(connection, new)


def _connected(rows: Sequence[Row]) -> list[Row]:
    return [row for row in attachment_rows.holding(rows) if row["kind"] in _HOST_KINDS]


def check_limit(volume: Row, rows: Sequence[Row]) -> None:
    """Check the number of holders of a volume against the limit of its type.

    :param volume: with ``type_specs``
    :param rows: with the newest one
    :raises LimitReached: there is one too many
    """
    limit = multiattach.parse(volume["type_specs"] or {}).max_attachments
    if limit is None or not volume["multiattach"]:
        return
    count = _count_holders(rows)
    if count > limit:
        raise exception.AttachmentLimitExceeded(
            what=f"Volume {volume['id']}",
            count=count - 1,
            limit=limit,
            name=f"{multiattach.MAX_ATTACHMENTS} of its type",
        )


def _count_holders(rows: Sequence[Row]) -> int:
    """Count servers, and hosts without a server; a user's hold and connection are of one of them.

    A server counts once while it moves, when it has two attachments, and not for more than that.
    """
    attached = attachment_rows.holding(attachment_rows.visible(rows))
    connections = attachment_rows.holding(attachment_rows.of_kind(rows, AttachmentKind.CONNECTION))
    unknown = [row for row in connections if row["parent_id"] is None]
    held = attachment_rows.of_kind(rows, AttachmentKind.HOLD)
    servers = Counter(row.get("instance_uuid") or row["id"] for row in attached)
    users = {row["user_id"] for row in (*held, *unknown)}
    return sum(max(1, number - 1) for number in servers.values()) + sum(
        max(len(attachment_rows.of_user(held, user)), len(attachment_rows.of_user(unknown, user)))
        for user in users
    )


def _check_host_limit(connection: sa.Connection, new: Row) -> None:
    """Count the attachments of the host over all volumes, while no other transaction adds one."""
    limit: int = CONF.manager.max_attachments_per_host
    if not limit or not new["host"]:
        return
    session.lock_row(connection, models.host_locks, new["host"])
    statement = sa.select(sa.func.count()).where(
        _ATTACHMENTS.c.host == new["host"],
        _ATTACHMENTS.c.id != new["id"],
        _ATTACHMENTS.c.kind.in_(_HOST_KINDS),
        _ATTACHMENTS.c.state.not_in(states.INACTIVE),
    )
    count = connection.execute(statement).scalar_one()
    if count >= limit:
        raise exception.AttachmentLimitExceeded(
            what=f"Host {new['host']}",
            count=count,
            limit=limit,
            name="[manager]max_attachments_per_host",
        )


def decide_mode(volume: Row, current: Row, others: Sequence[Row], requested: str | None) -> str:
    """Return the access mode of a host: "rw" or "ro".

    :param volume: with ``type_specs``
    :param current: the attachment in question
    :param requested: "rw", "ro", or None: as much as is allowed
    :raises ModeNotAllowed: it may only read, and "rw" was requested
    """
    why = "" if requested == "ro" else read_only_reason(volume, current, others)
    if why and requested == "rw":
        raise exception.InvalidVolumeAttachMode(volume_id=volume["id"], reason=why)
    return "ro" if why or requested == "ro" else "rw"


def read_only_reason(volume: Row, current: Row, others: Sequence[Row]) -> str:
    """Return the reason why a host may not write; "" if it may."""
    if volume["admin_metadata"].get(READONLY) == "True":
        return "it is read-only"
    rules = multiattach.parse(volume["type_specs"] or {})
    if rules.mode is multiattach.Mode.RW:
        return ""
    if not rules.multiattach:
        return "its type says mode='RO'"
    writers = _other_writers(current, others)
    if writers:
        writer = attachment_rows.describe(writers[0])
        return f"its type allows one writer, mode='RO', and that is {writer}"
    return ""


def _other_writers(current: Row, others: Sequence[Row]) -> list[Row]:
    writers = [
        row
        for row in attachment_rows.holding(others)
        if row["mode"] == "rw"
        and row["id"] != current.get("parent_id")
        and current["id"] not in {row["id"], row["parent_id"]}
    ]
    known = {row["id"] for row in writers}
    # A connection and its parent are one.
    apart = [row for row in writers if row["parent_id"] not in known]
    strangers = {row["id"] for row in other_holders(current, apart)}
    return [row for row in apart if row["id"] in strangers]
