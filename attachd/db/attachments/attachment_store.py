# SPDX-License-Identifier: Apache-2.0
"""The attachments table: reservations, transitions and reads; used by the objects and the manager.

Each writing function is one transaction. It locks the volume's row first, so that all transitions
of one volume follow each other, and what is derived from its attachments is derived from what is
stored.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
from contextlib import AbstractContextManager
import datetime
import functools
from typing import Any, Final, NamedTuple, TypedDict

import sqlalchemy as sa

from attachd import exception, states
from attachd.conf import CONF
from attachd.db import models, quotas
from attachd.db.agents import host_limits
from attachd.db.attachments import (
    attachment_rows,
    connect_rules,
    duplicates,
    events,
    legacy_rows,
    statements,
)
from attachd.db.attachments.attachment_rows import Guard, LockedVolume, Transitioned
from attachd.db.cluster import volume_leases
from attachd.db.cluster.volume_leases import VolumeLeaseToken
from attachd.db.engine import session
from attachd.db.engine.compiled import CompiledStatement
from attachd.db.engine.retry import retried
from attachd.db.engine.session import RowT
from attachd.db.row_types import (
    AttachmentRow,
    AttachmentVersion,
    AttachmentWithVolumeRow,
    LockedVolumeRow,
    RecoverableAttachmentRow,
)
from attachd.states import AttachmentKind, AttachmentState, Event

TAKEOVER_ERRORS: Final = (exception.InvalidTransition, exception.NotFound, exception.TakenOver)
"""Raised where the outcome of work is recorded that another manager has taken over."""

_ATTACHMENTS = models.attachments

_UNREAD: Final = "in other hands"
"""The state of a row that is not known."""
_LOCK_VOLUME = statements.LOCK_VOLUME
_LOCK_STATEMENTS = {
    Event.CONNECT: statements.LOCK_VOLUME_TO_CONNECT,
    Event.DISCONNECT: statements.LOCK_VOLUME_TO_DISCONNECT,
}
# Transitions of which a manager that holds the lease records only the outcome.  A request without
# a lease, which a manager executes later, is recorded at once.
_STARTED_BY_MANAGER = frozenset({Event.CONNECT, Event.DISCONNECT})
_RECOVERABLE = states.ACCESS_UNKNOWN | {AttachmentState.CONNECTING, AttachmentState.DISCONNECTING}


@retried
def reserve(
    volume_id: str,
    values: Mapping[str, Any],
    denied_rule: str | None = None,
    first: session.Precondition | None = None,
    *,
    may_be_free: bool = True,
) -> AttachmentRow:
    """Reserve the volume and store an attachment, or return the duplicate that exists already.

    :param values: columns of the new row; ``state`` and ``volume_id`` are set here, and ``id``
        where it is absent. There may be a duplicate, see duplicates.find_duplicate(); one in
        ``connect_failed`` does not hold the volume until it is connected
    :param denied_rule: the rule that denies the caller to share the volume, if one does
    :param first: executed first in the transaction, for a request with an idempotency key: such a
        request has no duplicate
    :param may_be_free: the caller has read a volume that is available and not multiattach. Only
        then is it worth while to try the one statement that reserves such a volume
    :raises VolumeNotFound: the volume does not exist any more
    :raises VolumeNotAvailable: the volume has another holder, or is in no state for it
    :raises AttachmentLimitExceeded: a limit of attachments is reached
    :raises QuotaExceeded: the project has as many attachments as it may have
    :raises InvalidVolumeAttachMode: the volume may only be read, and "rw" was requested
    :raises Forbidden: the volume has another holder, and ``denied_rule`` names a rule
    :raises AgentNotFound: ``agent`` has been deleted
    :raises HostLimitExceeded: the host of ``agent`` can take no more attachments
    """
    row = attachment_rows.new_row(volume_id, AttachmentKind.ATTACHMENT, values)
    row["state"] = AttachmentState.RESERVED.value
    if CONF.quota.quota_attachments == quotas.UNLIMITED:
        with contextlib.suppress(_QuotaSet):
            return _reserve(row, denied_rule, first, may_be_free=may_be_free, may_be_limited=False)
    return _reserve(row, denied_rule, first, may_be_free=may_be_free, may_be_limited=True)


class _QuotaSet(Exception):
    """The attachments of the project are limited."""


def _reserve(
    row: AttachmentRow,
    denied_rule: str | None,
    first: session.Precondition | None,
    *,
    may_be_free: bool,
    may_be_limited: bool,
) -> AttachmentRow:
    """Do as :func:`reserve`.

    :param may_be_limited: count the attachments of the project, under the lock of its quota
    :raises _QuotaSet: they have a limit, and were not to be counted
    """
    statement = statements.RESERVE_FREE_VOLUME_WITHOUT_QUOTA
    with session.writer() as connection:
        if first is not None:
            first(connection)
        if may_be_limited:
            limit = quotas.lock_attachments(connection, row["project_id"])
            statement = statements.RESERVE_FREE_VOLUME
        if not (may_be_free and _reserve_free_volume(connection, row, statement)):
            volume, holders = _lock_to_reserve(connection, row)
            if not may_be_limited and volume["attachments_quota"] != quotas.UNLIMITED:
                raise _QuotaSet
            duplicate = _find_or_join(connection, row, volume, holders, denied_rule, first)
            if duplicate is not None:
                return duplicate
        if may_be_limited:
            quotas.check_attachments(connection, row["project_id"], limit)
        _insert(connection, row)
    return row


class Reservation(NamedTuple):
    """One of several volumes that are reserved together.

    :ivar values: columns of the new row, with ``id``
    :ivar denied_rule: as of :func:`reserve`
    """

    volume_id: str
    values: Mapping[str, Any]
    denied_rule: str | None


@retried
def reserve_together(
    reservations: Sequence[Reservation], first: session.Precondition
) -> list[AttachmentRow]:
    """Reserve several volumes, all of them or none, for agents and without servers.

    Volumes are locked in the order of their ids, and what belongs to several volumes after all of
    them, so that two such transactions, or one and a :func:`reserve`, do not wait for each other.

    :param first: executed first in the transaction
    :returns: the rows, in the same order
    :raises: as :func:`reserve`
    """
    rows = {}
    for item in reservations:
        row = attachment_rows.new_row(item.volume_id, AttachmentKind.ATTACHMENT, item.values)
        row["state"] = AttachmentState.RESERVED.value
        rows[item.volume_id] = row
    with session.writer() as connection:
        first(connection)
        projects = sorted({row["project_id"] for row in rows.values()})
        limits = {name: quotas.lock_attachments(connection, name) for name in projects}
        for item in sorted(reservations, key=lambda item: item.volume_id):
            row = rows[item.volume_id]
            volume, holders = _lock_to_reserve(connection, row)
            _find_or_join(connection, row, volume, holders, item.denied_rule, first)
        for row in rows.values():
            quotas.check_attachments(connection, row["project_id"], limits[row["project_id"]])
            _insert(connection, row)
    return list(rows.values())


def _reserve_free_volume(
    connection: sa.Connection, row: AttachmentRow, statement: CompiledStatement
) -> bool:
    volume = {"match_id": row["volume_id"], "match_project": row["project_id"]}
    server = row.get("instance_uuid") if row.get("connector") else None
    params = {**volume, "match_server": server, "updated_at": models.now()}
    return statement.execute(connection, params) == 1


def _lock_to_reserve(
    connection: sa.Connection, row: AttachmentRow
) -> tuple[LockedVolumeRow, list[AttachmentRow]]:
    volume, holders = attachment_rows.lock_with_rows(
        connection, row["volume_id"], statements.LOCK_VOLUME_TO_RESERVE
    )
    attachment_rows.check_project(volume, row["project_id"])
    return volume, holders


def _find_or_join(
    connection: sa.Connection,
    row: AttachmentRow,
    volume: LockedVolumeRow,
    holders: Sequence[AttachmentRow],
    denied_rule: str | None,
    first: session.Precondition | None,
) -> AttachmentRow | None:
    """Return a duplicate; else allow one more attachment beside the existing ones, or raise an
    error that names the holders.

    A duplicate that does not hold the volume has to be allowed like a new one.
    """
    duplicate = None if first else duplicates.find_duplicate(connection, row, holders)
    if duplicate is not None and duplicate["state"] not in states.INACTIVE:
        return duplicate
    others = [holder for holder in holders if holder is not duplicate]
    request = connect_rules.Request(connect_rules.Action.RESERVE, denied_rule=denied_rule)
    connect_rules.decide(LockedVolume(connection, volume, row, others), request)
    if duplicate is None:
        attachment_rows.update_volume(connection, volume, [*holders, row], joined=True)
    return duplicate


def _insert(connection: sa.Connection, row: AttachmentRow) -> None:
    agent = row.get("agent")
    if agent is not None:
        host_limits.check_in(connection, agent)
    attachment_rows.insert(connection, row)


class Preview(NamedTuple):
    """What would become of an attachment that is not stored.

    :ivar mode: of the host's access; None: it would be refused, or is not decided yet
    :ivar refusal: why it would be refused
    :ivar is_duplicate: the request would get an attachment that is stored already
    :ivar holders: the rows that hold the volume now
    """

    mode: str | None
    refusal: exception.AttachdError | None
    is_duplicate: bool
    holders: list[AttachmentRow]


@retried
def preview(volume_id: str, values: Mapping[str, Any], request: connect_rules.Request) -> Preview:
    """Decide about an attachment as :func:`reserve` and a connect do, and store nothing.

    :param values: columns of the new row, as of :func:`reserve`
    :param request: RESERVE or CONNECT
    :raises VolumeNotFound: the volume does not exist any more
    """
    row = attachment_rows.new_row(volume_id, AttachmentKind.ATTACHMENT, values)
    row["state"] = AttachmentState.RESERVED.value
    reserves = request.action is connect_rules.Action.RESERVE
    mode, refusal = None, None
    with session.writer() as connection:
        limit = quotas.lock_attachments(connection, row["project_id"]) if reserves else 0
        volume, rows = _lock_to_reserve(connection, row)
        holders = attachment_rows.holding(rows)
        duplicate = duplicates.find_duplicate(connection, row, rows)
        if duplicate is not None and duplicate["state"] not in states.INACTIVE:
            return Preview(duplicate["mode"], None, True, holders)
        others = [item for item in rows if item is not duplicate]
        try:
            decided = connect_rules.decide(LockedVolume(connection, volume, row, others), request)
            mode = decided.mode
            if reserves and duplicate is None:
                quotas.check_attachments(connection, row["project_id"], limit)
                if row["agent"] is not None:
                    # The caller looks up whether the host has an agent.
                    with contextlib.suppress(exception.AgentNotFound):
                        host_limits.check_in(connection, row["agent"])
        except exception.AttachdError as error:
            refusal = error
    return Preview(mode, refusal, duplicate is not None, holders)


@retried
def transition(
    attachment_id: str,
    volume_id: str,
    event: Event,
    values: Mapping[str, Any] | None = None,
    guard: Guard | None = None,
    generation: int | None = None,
    volume_lease: VolumeLeaseToken | None = None,
    *,
    last: bool = False,
) -> Transitioned:
    """Take an attachment through one transition, and its volume with it.

    :param values: columns to store with the transition
    :param guard: gets all rows under the volume's lock and may forbid the transition
    :param generation: only if the row still has this generation: the caller still owns it
    :param volume_lease: of the work that this is part of; the first transition acquires it
    :param last: the work ends with this transition, which releases the lease
    :raises AttachmentNotFound: the attachment does not exist any more
    :raises volume_leases.VolumeLeaseHeld: another process works on the volume
    :raises TakenOver: another process has taken the lease from the caller
    :raises InvalidTransition: the attachment is in no state for this event, or in another
        generation
    """
    with session.writer() as connection:
        volume = attachment_rows.lock_volume(
            connection, volume_id, _LOCK_STATEMENTS.get(event, _LOCK_VOLUME)
        )
        stored = volume_leases.acquire(connection, volume, volume_lease) if volume_lease else {}
        rows = attachment_rows.list_rows(connection, volume_id)
        current = _find(rows, attachment_id)
        ended = {"lease_holder": None} if last else {}
        transitioned = transition_locked(
            connection,
            volume,
            rows,
            current,
            event,
            values or {},
            guard,
            generation,
            {**stored, **ended} if volume_lease else None,
        )
    if volume_lease:
        volume_leases.confirm(volume_lease, stored, ended=last)
    return transitioned


def transition_locked(
    connection: sa.Connection,
    volume: LockedVolumeRow,
    rows: Sequence[AttachmentRow],
    current: AttachmentRow,
    event: Event,
    values: Mapping[str, Any],
    guard: Guard | None = None,
    generation: int | None = None,
    volume_lease: Mapping[str, Any] | None = None,
) -> Transitioned:
    """Take one of the rows of a locked volume through a transition, and the volume with it.

    :param volume_lease: other changes of the volume's row, see volume_leases.acquire(); None:
        there is no lease
    :raises: as :func:`transition`
    """
    others = [row for row in rows if row is not current]
    if volume["state"] in states.BEING_REMOVED and current["state"] in states.INACTIVE:
        # It did not prevent the removal of its volume, and goes with it: if it counted again, the
        # volume's data would be removed and its row could not.
        raise exception.Conflict(reason=f"Volume {volume['id']} is {volume['state']}.")
    source = AttachmentState(current["state"])
    stored = dict(values)
    if guard is not None:
        stored.update(guard(LockedVolume(connection, volume, current, others)))
    target = attachment_rows.swap(connection, current, event, stored, generation)
    # A manager records the outcome of its work, not the start.
    if source != target and (volume_lease is None or event not in _STARTED_BY_MANAGER):
        attachment_rows.record(connection, current, event, stored)
    changed = attachment_rows.volume_changes(volume, current, source, event)
    if event is Event.REVOKED and current["kind"] == AttachmentKind.CONNECTION:
        others, changed = legacy_rows.end_connection(connection, volume, current, others)
    remaining: Sequence[AttachmentRow] = others if target is None else [*others, current]
    attachment_rows.update_volume(
        connection, volume, remaining, {**changed, **(volume_lease or {})}
    )
    return Transitioned(volume, current, others, source)


@retried
def transition_without_volume(
    row: AttachmentRow,
    event: Event,
    values: Mapping[str, Any],
    generation: int,
    volume_lease: VolumeLeaseToken | None = None,
) -> None:
    """Move an attachment along a transition that does not change its volume, and end the work.

    :param row: as the first transition of the work left it
    :param volume_lease: is released
    :raises TakenOver: another process works on the volume by now
    :raises InvalidTransition: the attachment is in no state for this event, or in another
        generation
    """
    assert states.preserves_status(event), event
    with session.writer() as connection:
        if volume_lease:
            volume_leases.release_with_result(connection, volume_lease)
        attachment_rows.compare_and_swap(
            connection, {**row, "state": _UNREAD}, event, dict(values), generation
        )
    if volume_lease:
        volume_leases.confirm(volume_lease, {}, ended=True)


@retried
def begin_together(
    volume_id: str,
    event: Event,
    begins: Sequence[tuple[str, Guard]],
    volume_lease: VolumeLeaseToken,
) -> list[Transitioned | Exception]:
    """Move several attachments of a volume along one transition, in one transaction.

    :param event: CONNECT or DISCONNECT
    :param begins: the attachment, and its guard as in :func:`transition`, of each
    :param volume_lease: is acquired
    :returns: of each what :func:`transition` returns, with the other rows as they are after all
        transitions; or what it would raise, and then the attachment is unchanged
    :raises VolumeNotFound, volume_leases.VolumeLeaseHeld, TakenOver: no state was changed
    """
    with session.writer() as connection:
        volume = attachment_rows.lock_volume(
            connection, volume_id, _LOCK_STATEMENTS.get(event, _LOCK_VOLUME)
        )
        stored = volume_leases.acquire(connection, volume, volume_lease)
        rows = attachment_rows.list_rows(connection, volume_id)

        def begin(attachment_id: str, guard: Guard) -> Transitioned:
            return transition_locked(
                connection,
                volume,
                rows,
                _find(rows, attachment_id),
                event,
                {},
                guard,
                volume_lease=stored,
            )

        transitioned = [_caught(functools.partial(begin, *pair)) for pair in begins]
    if any(isinstance(item, Transitioned) for item in transitioned):  # else nothing was stored
        volume_leases.confirm(volume_lease, stored)
    return [
        item
        if isinstance(item, Exception)
        else item._replace(others=[row for row in rows if row is not item.attachment])
        for item in transitioned
    ]


class Outcome(NamedTuple):
    """The successful end of work that :func:`begin_together` has begun.

    :ivar row: as the beginning left it
    :ivar event: GRANTED or REVOKED
    :ivar values: columns to store with it
    :ivar attributed: makes the thread's request and operation those of the work
    """

    row: AttachmentRow
    event: Event
    values: Mapping[str, Any]
    attributed: Callable[[], AbstractContextManager[None]]


@retried
def finish_together(
    outcomes: Sequence[Outcome], volume_lease: VolumeLeaseToken, *, last: bool
) -> list[Transitioned | Exception]:
    """Store the ends of works on one volume in one transaction.

    :param last: nothing else is done under the lease: it is released, if all could be stored
    :returns: of each as of :func:`begin_together`
    :raises TakenOver: another process works on the volume by now, and nothing was stored
    """
    with session.writer() as connection:
        volume = attachment_rows.lock_volume(connection, volume_lease.volume_id)
        volume_leases.acquire(connection, volume, volume_lease)  # only checks it: it is held
        rows = attachment_rows.list_rows(connection, volume_lease.volume_id)

        def finish(outcome: Outcome) -> Transitioned:
            with outcome.attributed():
                transitioned = transition_locked(
                    connection,
                    volume,
                    rows,
                    _find(rows, outcome.row["id"]),
                    outcome.event,
                    outcome.values,
                    generation=outcome.row["generation"],
                )
            if outcome.event is Event.REVOKED:
                rows.remove(transitioned.attachment)
            return transitioned._replace(volume=volume.copy())

        with events.inserted_together(connection):
            transitioned = [_caught(functools.partial(finish, outcome)) for outcome in outcomes]
        ended = last and not any(isinstance(item, Exception) for item in transitioned)
        if ended:
            volume_leases.release_with_result(connection, volume_lease)
    volume_leases.confirm(volume_lease, {}, ended=ended)
    return transitioned


def _find(rows: Sequence[AttachmentRow], attachment_id: str) -> AttachmentRow:
    row = next((row for row in rows if row["id"] == attachment_id), None)
    if row is None:
        raise exception.AttachmentNotFound(attachment_id=attachment_id)
    return row


def _caught(transition_one: Callable[[], Transitioned]) -> Transitioned | Exception:
    """Return a refusal, which has written nothing, instead of raising it."""
    try:
        return transition_one()
    except (exception.AttachdError, attachment_rows.Refusal) as error:
        return error


class CompletedRow(TypedDict):
    """What the event of a completed attachment needs of it."""

    id: str
    project_id: str
    volume_id: str
    kind: str
    host: str | None
    instance_uuid: str | None


def complete(row: CompletedRow) -> None:
    """Move an attachment along COMPLETE, and its volume with it, without reading either.

    :param row: as it was read; its state may have changed since
    :raises: as :func:`transition`
    """
    try:
        _complete_first(row)
    except exception.InvalidTransition:
        transition(row["id"], row["volume_id"], Event.COMPLETE)  # reads the state, for the error


@retried
def _complete_first(row: CompletedRow) -> None:
    with session.writer() as connection:
        params = {"match_id": row["volume_id"], "updated_at": models.now()}
        statements.SET_VOLUME_ATTACHED.execute(connection, params)
        unread: Any = {**row, "state": _UNREAD}
        attachment_rows.compare_and_swap(
            connection, unread, Event.COMPLETE, {}, None, statements.COMPLETE_FIRST
        )


def finish_disconnect(started: Transitioned, volume_lease: VolumeLeaseToken) -> Transitioned:
    """Remove an attachment whose access is revoked, and end the work on it.

    Where the volume has no other attachment and has not changed since, nothing is read again: the
    volume's row has the time of its last change.

    :param started: the result of the transition along DISCONNECT
    :raises: as :func:`transition`
    """
    row = started.attachment
    if (
        not started.others
        and row["kind"] in states.VISIBLE_KINDS
        and "updated_at" in started.volume
    ):
        try:
            return _finish_unchanged(started, volume_lease)
        except _VolumeChanged:
            pass
    return transition(
        row["id"],
        row["volume_id"],
        Event.REVOKED,
        generation=row["generation"],
        volume_lease=volume_lease,
        last=True,
    )


class _VolumeChanged(Exception):
    """The volume has changed since it was read."""


@retried
def _finish_unchanged(started: Transitioned, volume_lease: VolumeLeaseToken) -> Transitioned:
    volume: Any = started.volume.copy()
    row = started.attachment.copy()
    source = AttachmentState(row["state"])
    changed = attachment_rows.volume_changes(volume, row, source, Event.REVOKED)
    derived = states.derive(states.VolumeState(changed["state"]), ())
    volume |= {**changed, **derived._asdict(), "pending_detaches": 0, "lease_holder": None}
    volume["updated_at"] = models.now()
    stored = {name: volume[name] for name in (*changed, *_FINISHED_COLUMNS)}
    seen = {f"match_{name}": started.volume[name] for name in statements.SEEN_COLUMNS}
    with session.writer() as connection:
        if statements.UPDATE_VOLUME_IF_UNCHANGED.execute(connection, seen | stored) != 1:
            raise _VolumeChanged
        attachment_rows.compare_and_swap(connection, row, Event.REVOKED, {}, row["generation"])
    volume_leases.confirm(volume_lease, {}, ended=True)
    return Transitioned(volume, row, [], source)


_FINISHED_COLUMNS: Final = (
    *states.VolumeStatus._fields,
    "pending_detaches",
    "lease_holder",
    "updated_at",
)


@retried
def record_error(row: AttachmentVersion, reason: str) -> None:
    """Store why what is requested of an attachment cannot begin now, unless it has changed.

    :param row: as it was read
    """
    is_unchanged = (
        _ATTACHMENTS.c.id == row["id"],
        _ATTACHMENTS.c.generation == row["generation"],
        _ATTACHMENTS.c.state == row["state"],
    )
    changed = sa.update(_ATTACHMENTS).where(*is_unchanged)
    session.write(changed.values(error=models.truncate_error(reason)))


@retried
def get(attachment_id: str, project_id: str | None) -> AttachmentWithVolumeRow:
    """Return one attachment, with columns of its volume.

    :param project_id: only if it belongs to this project; None: of any project
    :raises AttachmentNotFound: there is none
    """
    statement, params = statements.GET, {"match_id": attachment_id}
    if project_id is not None:
        statement, params = statements.GET_IN_PROJECT, {**params, "match_project": project_id}
    with session.reader() as connection:
        row = statement.fetch_one(connection, params)
    if row is None:
        raise exception.AttachmentNotFound(attachment_id=attachment_id)
    return row


@retried
def list_of_volumes(volume_ids: Sequence[str]) -> list[AttachmentRow]:
    """Return all attachments of some volumes, secrets included, oldest first."""
    statement = sa.select(_ATTACHMENTS).where(_ATTACHMENTS.c.volume_id.in_(volume_ids))
    return _list(statement, AttachmentRow)


@retried
def list_recoverable(backend: str, holder: str) -> list[RecoverableAttachmentRow]:
    """Return the attachments of ``host@backend`` whose work was interrupted, or has failed with an
    unknown result, oldest first.

    :param holder: the process that is going to finish the work; volumes on which another living
        process works are left out
    """
    return _list(
        statements.WITH_VOLUME.add_columns(
            volume_leases.is_orphaned(holder).label("orphaned")
        ).where(
            _ATTACHMENTS.c.state.in_(_RECOVERABLE),
            models.on_backend(backend),
            volume_leases.is_free(holder),
        ),
        RecoverableAttachmentRow,
    )


def _list(statement: sa.Select[Any], row_type: type[RowT]) -> list[RowT]:
    ordered = statement.order_by(_ATTACHMENTS.c.created_at, _ATTACHMENTS.c.id)
    return session.fetch_all(ordered, row_type)


_VOLUMES = models.volumes

EXPIRY_BATCH = 100
"""The maximum number of reservations returned at once."""


FAILED_TTL = 24 * 3600
"""Seconds after which an attachment whose connect has failed is removed."""


def values_of_failed_connect(row: AttachmentRow) -> dict[str, Any]:
    """Return what a row gets when its connect has surely failed: its host has no access.

    No mode was decided after all, nor whether a destination of a move is going to write, and the
    row expires: its client may be gone.  Compute keeps the id of its own, and connects it again
    when a shelved server is unshelved.
    """
    ttl = datetime.timedelta(seconds=FAILED_TTL)
    return {
        "mode": row["asked_mode"],
        "own_connection": None,
        "expires_at": None if attachment_rows.is_of_compute(row) else models.now() + ttl,
    }


class ExpiredRow(TypedDict):
    """An attachment that was not connected in time."""

    id: str
    volume_id: str
    state: str


@retried
def list_expired(backend: str) -> list[ExpiredRow]:
    """Return the attachments at ``host@backend`` that were not connected in time.

    :returns: in the order of expiry
    """
    statement = (
        sa.select(_ATTACHMENTS.c.id, _ATTACHMENTS.c.volume_id, _ATTACHMENTS.c.state)
        .join(_VOLUMES, _VOLUMES.c.id == _ATTACHMENTS.c.volume_id)
        .where(
            _ATTACHMENTS.c.expires_at <= models.now(),
            _ATTACHMENTS.c.state.in_(sorted(states.NOT_CONNECTED)),
            models.on_backend(backend),
        )
        .order_by(_ATTACHMENTS.c.expires_at)
        .limit(EXPIRY_BATCH)
    )
    return session.fetch_all(statement, ExpiredRow)
