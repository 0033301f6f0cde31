# SPDX-License-Identifier: Apache-2.0
"""The decision whether a host may attach a volume, in which mode, and beside which other rows.

:func:`decide` takes the volume, its rows, the request and the verdict of policy, and returns the
access mode or raises the refusal.  All callers use it, under the lock of the volume's row:

* reserve: POST /attachments (attachment_store.reserve()) and os-reserve (legacy.reserve());
* connect: POST with a connector, PUT and agents (manager/attach.py), the same without waiting
  (async_requests.py), and recovery;
* os-initialize_connection (manager/legacy_connections.py) and os-attach (legacy.attach()).

Which other rows count is decided in :func:`other_holders`.  A repeated request is recognized by
duplicates.py.  A volume that is neither multiattach nor attached is reserved by one statement,
``statements.RESERVE_FREE_VOLUME``, because nothing is left to be decided then but the mode, which
the API checks before.  attachd.multiattach explains the extra specs of types.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import enum
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from attachd import exception, host_identity, multiattach, states
from attachd.conf import CONF
from attachd.db import host_fences, models
from attachd.db.agents import host_limits
from attachd.db.attachments import attachment_moves, attachment_rows, duplicates, legacy_rules
from attachd.db.attachments.attachment_rows import LockedVolume
from attachd.db.engine import session
from attachd.db.row_types import AttachmentRow, LockedVolumeRow
from attachd.states import AttachmentKind, AttachmentState, Event, VolumeState

Connector = Mapping[str, Any]

_ATTACHMENTS = models.attachments

READONLY: Final = "readonly"
"""The key of a volume's admin_metadata that makes it read-only; "True" or "False"."""

_HOST_KINDS: Final = frozenset({AttachmentKind.ATTACHMENT, AttachmentKind.CONNECTION})
"""The kinds whose hosts get access; a legacy attachment has a connection beside it."""

_NO_MOUNTPOINT: Final = "na"
"""The Block Storage API's value for a connector without a mountpoint."""


class Action(enum.Enum):
    """What a request does with a volume."""

    RESERVE = enum.auto()
    """Store a reservation or a hold: the row is not stored yet."""
    CONNECT = enum.auto()
    """Connect an attachment, beside others of the same server."""
    CONNECT_EXCLUSIVE = enum.auto()
    """Connect an attachment; an ordinary volume must have no other connection at all."""
    INITIALIZE = enum.auto()
    """Open a connection by os-initialize_connection, which names no attachment."""
    RECORD = enum.auto()
    """Store an attachment by os-attach, whose host may be connected before or after."""
    RESUME = enum.auto()
    """Finish or repeat what was allowed before: recovery, and os-attach of an attachment."""


_CONNECTS: Final = frozenset({Action.CONNECT, Action.CONNECT_EXCLUSIVE})


@dataclasses.dataclass(frozen=True)
class Request:
    """A request to attach a volume.

    :ivar action: what it does
    :ivar connector: of the host that gets access; None: no host does now
    :ivar mode: "rw", "ro", or None: as the row or the connector asks, else as much as is allowed
    :ivar denied_rule: the policy rule that denies the caller to share the volume, if one does
    """

    action: Action
    connector: Connector | None = None
    mode: str | None = None
    denied_rule: str | None = None


class Decision(NamedTuple):
    """What a request is allowed to do.

    :ivar mode: "rw" or "ro"
    :ivar connector: to use: that of a connection which may exist is used again
    :ivar parent: columns that assign a connection to the attachment it serves
    """

    mode: str
    connector: Connector | None
    parent: Mapping[str, Any]

    def columns(self) -> dict[str, Any]:
        """Return the columns that are stored when a connect begins."""
        connector = self.connector or {}
        return {
            "connector": connector,
            "host": connector.get("host"),
            "mountpoint": connector.get("mountpoint") or _NO_MOUNTPOINT,
            "mode": self.mode,
            "error": None,
            **self.parent,
        }


def decide(locked: LockedVolume, request: Request) -> Decision:
    """Decide whether a row may hold its volume or connect it, beside the volume's other rows.

    The first check that fails decides the error: the host's fence, and its drain if the row has no
    connection yet; the same connect again; the other end of a move; other holders, unless the
    volume is multiattach; the volume's status; policy on sharing; the access mode; the limits.
    Recovery finishes what was decided before, so it skips holders, status and policy.

    :param locked: with ``type_specs`` of the volume; ``attachment`` is the row as it is, or as it
        is going to be stored
    :raises HostFenced: an administrator has fenced the host, or drained it (HostDrained)
    :raises AlreadyConnected: the same host is connected already
    :raises ConnectorConflict: the attachment connects another host
    :raises InvalidTransition: the attachment is one of os-attach
    :raises AttachmentNotFound, Conflict: the attachment that is to move cannot
    :raises VolumeNotAvailable, NotMultiattach, InvalidVolume: the volume has another holder; the
        class depends on the action, as the Block Storage API does
    :raises VolumeNotAvailable, Conflict, InvalidVolume: the volume's status does not allow it
    :raises Forbidden: the volume has another holder, and policy denies the caller to share it
    :raises InvalidVolumeAttachMode: the host asks to write, and may only read
    :raises AttachmentLimitExceeded: the limit of the type or of the host is reached
    :raises HostLimitExceeded: the host of an agent can take no more attachments
    """
    connector = _reuse_connector(locked.attachment, request)
    parent: Mapping[str, Any] = {}
    if connector is not None:
        locked = _with_reservation(locked)
        if locked.volume["any_host_closed"]:
            is_new = AttachmentState(locked.attachment["state"]) not in states.CONNECTOR_FIXED
            identity = host_identity.of_connector(connector)
            host_fences.check_in(locked.connection, identity, is_new=is_new)
        duplicates.check_connector(locked.attachment, connector)
    if locked.attachment.get("move_from"):
        is_new = request.action is Action.RESERVE
        attachment_moves.check(
            locked, connector or locked.attachment.get("connector"), is_new=is_new
        )
    if request.action is Action.INITIALIZE:
        host, user_id = (connector or {}).get("host"), locked.attachment["user_id"]
        parent = legacy_rules.find_parent(locked.volume, locked.others, host, user_id)
        served: Any = {**locked.attachment, **parent}
        locked = locked._replace(attachment=served)
    if request.action is not Action.RESUME:
        _check_holders(locked, request)
    mode = _decide_mode(locked, request)
    _check_limits(locked, connector)
    return Decision(mode, connector, parent)


def _with_reservation(locked: LockedVolume) -> LockedVolume:
    """Return an attachment that was completed without a connector as the reservation that it is.

    Compute completes those of a shelved server, and connects them when it is unshelved.

    :raises InvalidTransition: it is one of os-attach, which has its connections beside it
    """
    current = locked.attachment
    if current["state"] != AttachmentState.ATTACHED or current["connector"] is not None:
        return locked
    if current["kind"] == AttachmentKind.LEGACY:
        raise exception.InvalidTransition(
            kind="Attachment",
            id=current["id"],
            source=current["state"],
            event=Event.CONNECT.value,
        )
    reservation: AttachmentRow = {**current, "state": AttachmentState.RESERVED.value}
    return locked._replace(attachment=reservation)


def _reuse_connector(current: AttachmentRow, request: Request) -> Connector | None:
    """Return the connector to use: a connection that may exist keeps its own.

    The older calls find a connection by its host, other keys of the connector may differ.
    """
    fixed = AttachmentState(current["state"]) in states.CONNECTOR_FIXED
    reused = fixed and request.action is Action.INITIALIZE
    return current["connector"] if reused else request.connector


# ---- Other holders ----


def _check_holders(locked: LockedVolume, request: Request) -> None:
    """Check the other holders of the volume, its status, and policy on sharing it."""
    volume, action = locked.volume, request.action
    holders = other_holders(locked, request)
    if holders and not volume["multiattach"]:
        raise _refusal(locked, action, holders)
    if _status_refuses(locked, action):
        raise _refusal(locked, action, ())
    if holders and request.denied_rule and not _is_admitted(locked.attachment, action):
        raise exception.Forbidden(action=request.denied_rule)


def other_holders(locked: LockedVolume, request: Request) -> list[AttachmentRow]:
    """Return the rows that hold the volume for another consumer than the row in question.

    A connect that surely failed holds nothing.  Of the others, these belong to the same consumer:

    * the source of its move, and the destination;
    * the attachments of the same server: it has two while it moves to another host.  If it has
      more of a multiattach volume, some of them are for another purpose, and all rows count.
      They count as well while an attachment of the server moves by ``move_from``: a further one
      could write beside the two ends.
      CONNECT_EXCLUSIVE counts also the server's connections, of an ordinary volume;
    * for the older calls, which name no consumer, those that may belong to the same attach: see
      legacy_rules.py.
    """
    volume, current = locked.volume, locked.attachment
    rows = attachment_rows.of_others(current, attachment_rows.holding(locked.others))
    if request.action is Action.INITIALIZE:
        host = (request.connector or {}).get("host")
        return legacy_rules.others_of_connection(volume, current, rows, host)
    if request.action is Action.RECORD:
        return legacy_rules.others_of_legacy_attachment(volume, current, rows)
    if request.action is Action.CONNECT_EXCLUSIVE and not volume["multiattach"]:
        others = _of_other_servers(volume, current, rows)
        return [row for row in rows if row["state"] in states.CONNECTOR_FIXED or row in others]
    return _of_other_servers(volume, current, rows)


def _of_other_servers(
    volume: LockedVolumeRow, current: AttachmentRow, rows: Sequence[AttachmentRow]
) -> list[AttachmentRow]:
    server = current.get("instance_uuid")
    if server is None:
        return list(rows)
    same = [row for row in attachment_rows.visible(rows) if row["instance_uuid"] == server]
    if attachment_moves.has_open_move(same) or (volume["multiattach"] and len(same) > 1):
        return list(rows)
    return [row for row in rows if row["instance_uuid"] != server]


def _is_admitted(current: AttachmentRow, action: Action) -> bool:
    """Return whether policy on sharing was evaluated when the row came to hold the volume."""
    state = AttachmentState(current["state"])
    if action in _CONNECTS:
        return state not in states.INACTIVE
    return action is Action.INITIALIZE and state not in states.NOT_CONNECTED


def _status_refuses(locked: LockedVolume, action: Action) -> bool:
    volume, status = locked.volume, _status(locked, action)
    if action in _CONNECTS:
        return "error" in status or volume["state"] == VolumeState.DOWNLOADING
    return bool(volume["state"] != VolumeState.READY or status == "error")


def _status(locked: LockedVolume, action: Action) -> str:
    """Return the volume's status, as far as a row that is connected is not itself the cause."""
    volume = locked.volume
    if action in {Action.RESERVE, Action.RECORD}:
        return str(volume["status"])
    attachments = [AttachmentState(row["state"]) for row in locked.others]
    return states.derive(VolumeState(volume["state"]), attachments).status


def _refusal(
    locked: LockedVolume, action: Action, holders: Sequence[AttachmentRow]
) -> exception.AttachdError:
    """Return the error of each action for a volume with another holder or in a wrong status."""
    volume_id, status = locked.volume["id"], _status(locked, action)
    if action is Action.RESERVE:
        named = _describe(attachment_rows.holding(locked.others))
        return exception.VolumeNotAvailable(
            volume_id=volume_id, status=status, holder=f"; it is held by {named}" if named else ""
        )
    named = _describe(holders)
    if action in _CONNECTS and holders:
        return exception.NotMultiattach(volume_id=volume_id, holder=named)
    if action in _CONNECTS:
        return exception.Conflict(reason=f"Volume {volume_id} is in status {status}.")
    verb = "attached" if action is Action.RECORD else "connected"
    reason = (
        f"it is not multiattach and is held by {named}" if named else f"its status is {status}"
    )
    return exception.InvalidVolume(reason=f"Volume {volume_id} cannot be {verb}: {reason}.")


def _describe(rows: Sequence[AttachmentRow]) -> str:
    return ", ".join(attachment_rows.describe(row) for row in rows[:3])


# ---- Mode ----


def _decide_mode(locked: LockedVolume, request: Request) -> str:
    current, connector = locked.attachment, request.connector
    if connector is not None and _keeps_mode(current):
        return str(current["mode"])
    requested = request.mode or current.get("asked_mode")
    if connector is not None and not requested and connector.get("mode") in {"rw", "ro"}:
        requested = connector["mode"]
    if request.action is Action.INITIALIZE and legacy_rules.serves_reader(locked):
        requested = "ro"
    others = locked.others
    if connector is None and request.action is not Action.RESERVE:
        others = [row for row in others if not legacy_rules.may_serve(row, current)]
    return decide_mode(locked.volume, current, others, requested)


def _keeps_mode(current: AttachmentRow) -> bool:
    """Return whether access may have been granted: it is granted again in the same mode."""
    return AttachmentState(current["state"]) in states.CONNECTOR_FIXED and bool(current["mode"])


def decide_mode(
    volume: LockedVolumeRow,
    current: AttachmentRow,
    others: Sequence[AttachmentRow],
    requested: str | None,
) -> str:
    """Return the mode of a host's access: "rw" or "ro".

    :param volume: with ``type_specs``
    :param current: the attachment in question
    :param requested: "rw", "ro", or None: as much as is allowed
    :raises InvalidVolumeAttachMode: it may only read, and asks to write
    """
    reason = "" if requested == "ro" else _read_only_reason(volume, current, others)
    if reason and requested == "rw":
        raise exception.InvalidVolumeAttachMode(volume_id=volume["id"], reason=reason)
    return "ro" if reason or requested == "ro" else "rw"


def _read_only_reason(
    volume: LockedVolumeRow, current: AttachmentRow, others: Sequence[AttachmentRow]
) -> str:
    """Return why a host may not write; "" if it may."""
    if volume["admin_metadata"].get(READONLY) == "True":
        return "it is read-only"
    rules = multiattach.parse(volume["type_specs"] or {})
    if rules.mode is multiattach.Mode.RW:
        return ""
    if not rules.multiattach:
        return "its type says mode='RO'"
    writers = _other_writers(volume, current, others)
    if writers:
        writer = attachment_rows.describe(writers[0])
        return f"its type allows one writer, mode='RO', and that is {writer}"
    return ""


def _other_writers(
    volume: LockedVolumeRow, current: AttachmentRow, others: Sequence[AttachmentRow]
) -> list[AttachmentRow]:
    writers = [
        row
        for row in attachment_rows.of_others(current, attachment_rows.holding(others))
        if attachment_rows.may_write(row)
        and row["id"] != current.get("parent_id")
        and current["id"] not in {row["id"], row["parent_id"]}
    ]
    known = {row["id"] for row in writers}
    # A connection and the attachment that it serves are one writer.
    apart = [row for row in writers if row["parent_id"] not in known]
    return _of_other_servers(volume, current, apart)


# ---- Limits ----


def _check_limits(locked: LockedVolume, connector: Connector | None) -> None:
    """Check the limits of the volume's type, and where a host gets access, of the host.

    A row that is connected already, or may be, counts already.
    """
    volume, current, others = locked.volume, locked.attachment, locked.others
    if connector is None:
        _check_limit_of_type(volume, [*others, current])
        return
    if AttachmentState(current["state"]) not in states.NOT_CONNECTED:
        return
    connecting: AttachmentRow = {**current, "state": AttachmentState.CONNECTING.value}
    _check_limit_of_type(volume, [*others, connecting])
    _check_limit_per_host(volume, connector, others)
    _check_limit_of_host(locked.connection, current, connector)
    if current["state"] in states.INACTIVE and current.get("agent"):
        # It has not counted since its connect failed.  Its agent may have been deleted since.
        with contextlib.suppress(exception.AgentNotFound):
            host_limits.check_in(locked.connection, str(current["agent"]))


def _check_limit_of_type(volume: LockedVolumeRow, rows: Sequence[AttachmentRow]) -> None:
    """Check how many consumers a volume has, ``rows`` included."""
    limit = multiattach.parse(volume["type_specs"] or {}).max_attachments
    if limit is None or not volume["multiattach"]:
        return
    count = _count_consumers(rows)
    if count > limit:
        raise exception.AttachmentLimitExceeded(
            what=f"Volume {volume['id']}",
            count=count - 1,
            limit=limit,
            name=f"{multiattach.MAX_ATTACHMENTS} of its type",
        )


def _count_consumers(rows: Sequence[AttachmentRow]) -> int:
    """Count servers, hosts without one, and the consumers of the older calls.

    A server counts once while it moves, with two attachments; each further one counts.  So does a
    host without a server whose attachment moves.
    """
    attached = attachment_rows.holding(attachment_rows.visible(rows))
    servers = Counter(
        row.get("instance_uuid") or row.get("move_from") or row["id"] for row in attached
    )
    attachments = sum(max(1, number - 1) for number in servers.values())
    return attachments + legacy_rules.count_consumers(rows)


def _check_limit_per_host(
    volume: LockedVolumeRow, connector: Connector, others: Sequence[AttachmentRow]
) -> None:
    """Check how many attachments of the volume a host has."""
    limit = multiattach.parse(volume["type_specs"] or {}).max_attachments_per_host
    connected = [row for row in attachment_rows.holding(others) if row["kind"] in _HOST_KINDS]
    on_host = _on_host(connected, connector)
    if limit is not None and len(on_host) >= limit:
        raise exception.AttachmentLimitExceeded(
            what=f"Volume {volume['id']} on host {connector.get('host')}",
            count=len(on_host),
            limit=limit,
            name=f"{multiattach.MAX_ATTACHMENTS_PER_HOST} of its type",
        )


def _on_host(rows: Sequence[AttachmentRow], connector: Connector) -> list[AttachmentRow]:
    identity = host_identity.of_connector(connector)
    return [row for row in rows if host_identity.is_same_host(host_identity.of_row(row), identity)]


def _check_limit_of_host(
    connection: sa.Connection, current: AttachmentRow, connector: Connector
) -> None:
    """Count the host's attachments of all volumes, under a lock that keeps others from adding.

    Users name hosts as they like: what users of other projects have made does not count.
    """
    limit: int = CONF.manager.max_attachments_per_host
    if not limit or not connector.get("host"):
        return
    keys = host_identity.columns(connector.get("host"), connector)
    session.lock_row(connection, models.host_locks, str(keys["host_key"]))
    of_project = _ATTACHMENTS.c.project_id == current["project_id"]
    statement = sa.select(_ATTACHMENTS.c.host, _ATTACHMENTS.c.connector).where(
        sa.or_(*(_ATTACHMENTS.c[name] == value for name, value in keys.items() if value)),
        _ATTACHMENTS.c.id != current["id"],
        sa.or_(of_project, _ATTACHMENTS.c.by_service.is_(True)),
        _ATTACHMENTS.c.kind.in_(_HOST_KINDS),
        _ATTACHMENTS.c.state.not_in(states.INACTIVE),
    )
    rows: list[Any] = [dict(row._mapping) for row in connection.execute(statement)]
    count = len(_on_host(rows, connector))
    if count >= limit:
        raise exception.AttachmentLimitExceeded(
            what=f"Host {connector.get('host')}",
            count=count,
            limit=limit,
            name="[manager]max_attachments_per_host",
        )
