# SPDX-License-Identifier: Apache-2.0
"""What the older calls for attaching store: holds, connections, attachments made of a word alone.

Each of those calls does one thing, and none of them names what another one has done: so each
has a row of its own, and what belongs together is found out here.  Every writing function is
one transaction under the volume's lock; used by the handlers of legacy and by the manager.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypedDict

import sqlalchemy as sa

from attachd import exception
from attachd.db import api, models
from attachd.db import attachment_statements as statements
from attachd.db import attachment_steps as steps
from attachd.db.attachment_queries import BRIEF
from attachd.db.volume_changes import READONLY
from attachd.states import AttachmentKind, AttachmentState, Event, VolumeState

Row = dict[str, Any]
_T = models.attachments


class Claim(TypedDict):
    """Who says that a volume is attached, and where: columns of the new row.

    :ivar host: a host's name, where no server is named
    :ivar mode: "rw" or "ro"
    """

    project_id: str
    user_id: str | None
    instance_uuid: str | None
    host: str | None
    mountpoint: str
    mode: str


@api.retried
def rows(volume_id: str) -> list[Row]:
    """Return the rows of a volume, of all kinds, without secrets, oldest first."""
    statement = (
        sa.select(*BRIEF).where(_T.c.volume_id == volume_id).order_by(_T.c.created_at, _T.c.id)
    )
    with api.reader() as connection:
        return [dict(row._mapping) for row in connection.execute(statement)]


@api.retried
def hold(volume_id: str, project_id: str, user_id: str | None) -> None:
    """Take a volume for somebody who will say later what for.

    :raises VolumeNotFree: somebody else was faster, or the volume is in no state for it
    """
    who = {"project_id": project_id, "user_id": user_id}
    new = steps.new_row(volume_id, AttachmentKind.HOLD, who)
    new["state"] = AttachmentState.HELD.value
    with api.writer() as connection:
        volume, held = _locked(connection, volume_id)
        steps.check_free(volume, held, None)
        connection.execute(statements.INSERT, new)
        steps.store(connection, volume, [*held, new])


@api.retried
def release(volume_id: str, hold_ids: Collection[str]) -> None:
    """Give holds of a volume back, those that are still there.

    :param hold_ids: what the caller has seen: whoever took the volume since keeps it
    """
    with api.writer() as connection:
        volume, held = _locked(connection, volume_id)
        for row in steps.of_kind(held, AttachmentKind.HOLD):
            if row["id"] in hold_ids:
                steps.swap(connection, row, Event.RELEASE, {}, None)
                held.remove(row)
        steps.store(connection, volume, held)


@api.retried
def begin_detaching(volume_id: str) -> None:
    """Note that one of a volume's attachments is about to be detached.

    :raises InvalidVolume: it has none of which that is not known already
    """
    with api.writer() as connection:
        volume, held = _locked(connection, volume_id)
        if volume["status"] != "in-use":
            raise exception.InvalidVolume(
                reason=f"Volume {volume_id} must be in-use to begin detaching, but its status is "
                f"{volume['status']}."
            )
        steps.store(connection, volume, held, {"leaving": volume["leaving"] + 1})


@api.retried
def roll_detaching(volume_id: str) -> None:
    """Note that one of the attachments is not going to be detached after all."""
    with api.writer() as connection:
        volume, held = _locked(connection, volume_id)
        steps.store(connection, volume, held, {"leaving": max(volume["leaving"] - 1, 0)})


@api.retried
def attach(volume_id: str, claim: Claim) -> Row:
    """Note that a volume is in use, by whoever holds it or by somebody who simply says so.

    Saying it again changes nothing.  A reservation of the same server becomes attached.

    :returns: the attachment's row
    :raises InvalidVolume: the volume is somebody else's, or in no state for it
    """
    with api.writer() as connection:
        volume, held = _locked(connection, volume_id)
        _check_mode(volume, claim["mode"])
        there = steps.counted(steps.shown(held))
        mine = next((row for row in there if _is_of(row, claim)), None)
        changed: Row = {"leaving": 0}
        if mine is None:
            _check_takable(volume, held)
            mine = _insert(connection, volume_id, claim)
            held.append(mine)
            changed["admin_metadata"] = {
                READONLY: "False",
                **volume["admin_metadata"],
                steps.ATTACHED_MODE: claim["mode"],
            }
        else:
            steps.swap(connection, mine, Event.COMPLETE, {}, None)
        _bind(connection, volume, held, mine)
        steps.store(connection, volume, _released(connection, held), changed)
    return mine


@api.retried
def open_connection(
    volume_id: str,
    project_id: str,
    user_id: str | None,
    choose: Callable[[Sequence[Row]], Row | None],
    guard: steps.Guard,
) -> steps.Moved:
    """Move a connection along CONNECT: one that is there, or a new one.

    :param choose: picks among the volume's connections
    :param guard: see attachments.move(); what it raises leaves no new row
    """
    who = {"project_id": project_id, "user_id": user_id}
    with api.writer() as connection:
        volume, held = _locked(connection, volume_id, Event.CONNECT)
        mine = choose(steps.of_kind(held, AttachmentKind.CONNECTION))
        if mine is None:
            new = steps.new_row(volume_id, AttachmentKind.CONNECTION, who)
            new["state"] = AttachmentState.RESERVED.value
            connection.execute(statements.INSERT, new)
            mine = dict.fromkeys(column.name for column in _T.c) | new
            held.append(mine)
        return steps.move(connection, volume, held, mine, Event.CONNECT, {}, guard)


def _locked(
    connection: sa.Connection, volume_id: str, event: Event | None = None
) -> tuple[Row, list[Row]]:
    volume = steps.lock_volume(connection, volume_id, event)
    return volume, steps.of_volume(connection, volume_id)


def _released(connection: sa.Connection, held: Sequence[Row]) -> list[Row]:
    """Give the oldest hold back; return what remains."""
    oldest = next(iter(steps.of_kind(held, AttachmentKind.HOLD)), None)
    if oldest is not None:
        steps.swap(connection, oldest, Event.RELEASE, {}, None)
    return [row for row in held if row is not oldest]


def _check_mode(volume: Row, mode: str) -> None:
    if volume["admin_metadata"].get(READONLY) == "True" and mode != "ro":
        raise exception.BadRequest(
            reason=f"Invalid attaching mode '{mode}' for volume {volume['id']}: it is read-only, "
            "attach it with mode 'ro'."
        )


def _is_of(row: Row, claim: Claim) -> bool:
    """Tell whether an attachment is of the server that is named, or else of the host."""
    if claim["instance_uuid"] is not None:
        return bool(row["instance_uuid"] == claim["instance_uuid"])
    return row["instance_uuid"] is None and bool(row["host"] == claim["host"])


def _check_takable(volume: Row, held: Sequence[Row]) -> None:
    """Let a volume be attached that is free, or held for whoever comes now.

    :raises InvalidVolume: it is not
    """
    others = steps.counted(steps.shown(held))
    if volume["state"] != VolumeState.READY or volume["status"] == "error":
        reason = f"its status is {volume['status']}"
    elif others and not volume["multiattach"]:
        named = ", ".join(steps.name(row) for row in others[:3])
        reason = f"it is not multiattach and is held by {named}"
    else:
        return
    raise exception.InvalidVolume(reason=f"Volume {volume['id']} cannot be attached: {reason}.")


def _insert(connection: sa.Connection, volume_id: str, claim: Claim) -> Row:
    row = steps.new_row(volume_id, AttachmentKind.LEGACY, claim)
    row |= {"state": AttachmentState.ATTACHED.value, "attached_at": models.now()}
    connection.execute(statements.INSERT, row)
    return dict.fromkeys(column.name for column in _T.c) | row


def _bind(connection: sa.Connection, volume: Row, held: Sequence[Row], mine: Row) -> None:
    """Write down which connections an attachment was made for: those are closed with it."""
    free = [row for row in steps.of_kind(held, AttachmentKind.CONNECTION) if row["serves"] is None]
    if volume["multiattach"]:
        there = [row for row in free if row["host"] == mine["host"]]
        # Several unknown ones may be of several servers: then nobody can tell.
        free = there or (free if len(free) == 1 else [])
    for row in free:
        bound = {"serves": mine["id"], "instance_uuid": mine["instance_uuid"]}
        connection.execute(statements.UPDATE, {"the_id": row["id"], **bound})
        row.update(bound)


def serving(volume: Row, held: Sequence[Row], host: str | None) -> Mapping[str, Any]:
    """Return the columns that bind a connection which is opened after the attachment was made.

    :param held: the volume's rows
    :param host: that is connected
    """
    made = [row for row in held if row["kind"] == AttachmentKind.LEGACY]
    if volume["multiattach"]:
        made = [row for row in made if row["host"] == host]
    if not made:
        return {}
    return {"serves": made[0]["id"], "instance_uuid": made[0]["instance_uuid"]}
