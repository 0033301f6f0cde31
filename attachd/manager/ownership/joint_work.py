# SPDX-License-Identifier: Apache-2.0
"""Work on the attachments of one volume: alone, or together with others that do the same.

The lease of a volume is exclusive, and storing the begin and the end of one connect takes longer
than most backends take for it.  If many hosts connect to a volume, or disconnect from it, those
that wait at the same time form a *group*, with a driver that grants in parallel.  The first one
acquires the lease for all of them and moves their rows in one transaction.  Then each calls the
driver in its own thread.  Those that have finished store their results together.  The lease is
released with the last result.

All of a group do the same, connect or disconnect, on different attachments of different hosts.
Each row has its own generation and result as if its work was done alone, so that recovery takes
the rows of a dead process over one by one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
import enum
import threading
from typing import Any, Final, Protocol

from oslo_context import context as oslo_context

from attachd import exception, host_identity
from attachd.db.attachments import attachment_rows, attachment_store
from attachd.db.attachments.attachment_rows import Guard, LockedVolume, Transitioned
from attachd.db.row_types import AttachmentRow
from attachd.host_identity import host_key
from attachd.manager.ownership.volume_lease import VolumeLease
from attachd.rpc import deadlines
from attachd.states import AttachmentKind, Event
from attachd.telemetry import tracing

MAX_MEMBERS: Final = 16
"""How many attachments of a volume are connected or disconnected at the same time."""

MAX_WAITING: Final = 2 * MAX_MEMBERS
"""How many calls for a volume have a thread: a group, and those that may form the next one."""

LINGER: Final = 0.01
"""Seconds that the first result of a group waits for others, to be stored with them."""

AcquireLease = Callable[[], AbstractContextManager[VolumeLease]]


@dataclass(frozen=True)
class Begin:
    """The first transition of work on an attachment.

    :ivar event: CONNECT or DISCONNECT
    :ivar guard: as in attachment_store.transition()
    :ivar host: whose attachments the guard locks; "": of none
    """

    attachment_id: str
    volume_id: str
    event: Event
    guard: Guard
    host: str = ""


class VolumeWork(Protocol):
    """Work on one attachment that has begun.

    :ivar transitioned: the result of the first transition
    :ivar volume_lease: of the volume
    :ivar ends_lease: whether the lease ends with this work
    """

    transitioned: Transitioned
    volume_lease: VolumeLease
    ends_lease: bool

    def record_granted(self, values: Mapping[str, Any]) -> None:
        """Store that the host is connected, and end the work.

        :raises: as attachment_store.transition()
        """

    def record_revoked(self) -> Transitioned:
        """Remove the attachment, and end the work; raises as attachment_store.transition()."""

    def others(self) -> list[AttachmentRow]:
        """Return the other rows whose hosts keep their access if that of this one is revoked."""


class WorkAlone:
    """Work of a thread that has the lease for itself; see :class:`VolumeWork`."""

    ends_lease = True

    def __init__(self, transitioned: Transitioned, volume_lease: VolumeLease) -> None:
        self.transitioned = transitioned
        self.volume_lease = volume_lease

    def record_granted(self, values: Mapping[str, Any]) -> None:
        """Store that the host is connected."""
        row = self.transitioned.attachment
        attachment_store.transition_without_volume(
            row, Event.GRANTED, values, row["generation"], self.volume_lease.token
        )

    def record_revoked(self) -> Transitioned:
        """Remove the attachment."""
        return attachment_store.finish_disconnect(self.transitioned, self.volume_lease.token)

    def others(self) -> list[AttachmentRow]:
        """Return the other rows as they were at the first transition."""
        return self.transitioned.others


@contextlib.contextmanager
def begin_alone(begin: Begin, acquire: AcquireLease) -> Iterator[WorkAlone]:
    """Begin work under a lease of its own.

    :raises: as attachment_store.transition(), and Unavailable: the lease is not free in time
    """
    with acquire() as volume_lease:
        yield WorkAlone(_transition(begin, volume_lease), volume_lease)


def _transition(begin: Begin, volume_lease: VolumeLease) -> Transitioned:
    return volume_lease.run_with_lease(
        lambda token: attachment_store.transition(
            begin.attachment_id,
            begin.volume_id,
            begin.event,
            guard=begin.guard,
            volume_lease=token,
        )
    )


class _Role(enum.Enum):
    """What a thread does next."""

    WAIT = enum.auto()
    START = enum.auto()
    """A leader begins its work."""
    LEAD = enum.auto()
    FOLLOW = enum.auto()


class _Postponed(attachment_rows.Refusal):
    """The work cannot be done together with that of the others."""


@dataclass(eq=False)
class _Member:
    """A thread that wants to work on a volume, or does.

    :ivar alone: it works in no group
    :ivar started: the result of the first transition, or its error
    """

    begin: Begin
    role: _Role = _Role.WAIT
    alone: bool = False
    changed: threading.Event = field(default_factory=threading.Event)
    group: "_Group | None" = None
    started: Transitioned | Exception | None = None

    def assign(self, role: _Role) -> None:
        """Wake the thread in a role."""
        self.role = role
        self.changed.set()


class _Waiting:
    """The threads that want to work on each volume; the first one leads the next group."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        # A path is a key as long as a thread leads.
        self._by_path: dict[str, list[_Member]] = {}

    def enter(self, path: str, member: _Member) -> None:
        """Wait for a role; raises Unavailable if there is none in time."""
        with self._mutex:
            members = self._by_path.get(path)
            if members is None:
                self._by_path[path] = []
                member.role = _Role.LEAD
                return
            members.append(member)
        timeout = deadlines.seconds_left()
        while not member.changed.wait(timeout):
            with self._mutex:
                if member.role is _Role.WAIT:
                    self._by_path[path].remove(member)
                    raise exception.Unavailable(
                        reason=f"Volume {member.begin.volume_id} is busy: other calls for it "
                        f"have not ended in {timeout:.0f} s. Try again later."
                    )

    def take(self, path: str, leader: _Member) -> list[_Member]:
        """Remove those who can work together with a leader; return all, the leader first."""
        taken = [leader]
        ids = {leader.begin.attachment_id}
        with self._mutex:
            members = self._by_path[path]
            for member in () if leader.alone else list(members):
                begin = member.begin
                same = begin.event is leader.begin.event and not member.alone
                if same and begin.attachment_id not in ids and len(taken) < MAX_MEMBERS:
                    ids.add(begin.attachment_id)
                    member.role = _Role.START
                    taken.append(member)
                    members.remove(member)
        return taken

    def put_back(self, path: str, members: Sequence[_Member]) -> None:
        """Let members work alone, one after the other, before all others."""
        with self._mutex:
            for member in members:
                member.role, member.alone = _Role.WAIT, True
            self._by_path[path][:0] = members

    def leave(self, path: str) -> None:
        """Let the next one lead."""
        with self._mutex:
            members = self._by_path[path]
            if members:
                members.pop(0).assign(_Role.LEAD)
            else:
                del self._by_path[path]


_waiting = _Waiting()


@contextlib.contextmanager
def join(begin: Begin, acquire: AcquireLease, path: str) -> Iterator[VolumeWork]:
    """Begin work, together with other threads of this process that wait for the same volume.

    :param path: identifies the volume in this process
    :raises: as :func:`begin_alone`
    """
    member = _Member(begin)
    with tracing.operation() as operation:
        with tracing.step("wait"):
            _waiting.enter(path, member)
        if member.role is _Role.FOLLOW:
            assert member.group is not None
            with member.group.member_work(member) as work:
                yield work
            return
        try:
            with acquire() as volume_lease, tracing.resumed(operation):
                yield from _lead(member, volume_lease, path)
        finally:
            _waiting.leave(path)


def _lead(leader: _Member, volume_lease: VolumeLease, path: str) -> Iterator[VolumeWork]:
    members = _waiting.take(path, leader)
    if len(members) > 1:
        group = _Group(volume_lease, members)
        _waiting.put_back(path, group.begin())
        try:
            if not isinstance(leader.started, _Postponed):
                with group.member_work(leader) as work:
                    yield work
                return
            group.leave(leader)
        finally:
            group.wait_until_left()
    yield WorkAlone(_transition(leader.begin, volume_lease), volume_lease)


class _Result:
    """The place for the result of storing an outcome; None: it is not stored yet."""

    def __init__(self, outcome: attachment_store.Outcome) -> None:
        self.outcome = outcome
        self.transitioned: Transitioned | Exception | None = None


class _Group:
    """Threads that work on a volume under one lease.

    :param members: the leader is the first
    """

    def __init__(self, volume_lease: VolumeLease, members: Sequence[_Member]) -> None:
        self._lease = volume_lease
        self._members = list(members)
        self._changed = threading.Condition()
        self._working = set(members)
        self._calling = set(members)  # the driver
        self._failed: set[str] = set()  # the attachments that get no access
        self._results: list[_Result] = []
        self._storing = False

    def begin(self) -> list[_Member]:
        """Do the first transition of all members, and wake the followers.

        :returns: the followers that have to work alone
        :raises: as db.begin_together(); the followers get the same error
        """
        leader = self._members[0]
        # Groups of other volumes lock the same hosts.
        ordered = sorted(self._members, key=lambda member: host_key(member.begin.host))
        begins = [(member.begin.attachment_id, guard) for member, guard in _guards(ordered)]
        try:
            started = self._lease.run_with_lease(
                lambda token: attachment_store.begin_together(
                    token.volume_id, leader.begin.event, begins, token
                )
            )
        except BaseException as error:
            reason = "Work on the volume ended. Try again later."
            seen = error if isinstance(error, Exception) else exception.Unavailable(reason=reason)
            self._start([seen] * len(self._members))
            raise
        results = dict(zip(map(id, ordered), started, strict=True))
        return self._start([results[id(member)] for member in self._members])

    def _start(self, started: Sequence[Transitioned | Exception]) -> list[_Member]:
        postponed = []
        for member, result in zip(self._members, started, strict=True):
            member.started, member.group = result, self
            if member is self._members[0]:
                continue
            if isinstance(result, _Postponed):
                postponed.append(member)
                self.leave(member)
        for member in self._members[1:]:
            if member not in postponed:
                member.assign(_Role.FOLLOW)
        return postponed

    @contextlib.contextmanager
    def member_work(self, member: _Member) -> Iterator["_JointWork"]:
        """Work on the attachment of a member, in its thread; raises why it could not begin."""
        try:
            if isinstance(member.started, Exception):
                raise member.started
            assert member.started is not None
            with self._lease.ownership():
                yield _JointWork(self, member, member.started, self._lease)
        finally:
            self.leave(member)

    def leave(self, member: _Member) -> None:
        """End the work of a member; without a result its host has no access."""
        with self._changed:
            if member in self._calling:
                self._calling.remove(member)
                self._failed.add(member.begin.attachment_id)
            self._working.discard(member)
            self._changed.notify_all()

    def wait_until_left(self) -> None:
        """Wait until all members have ended."""
        with self._changed:
            self._changed.wait_for(lambda: not self._working)

    def wait_for_failed(self, member: _Member) -> set[str]:
        """Wait until the driver has answered to all; return the attachments without access."""
        with self._changed:
            self._calling.discard(member)
            self._failed.add(member.begin.attachment_id)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._calling)
            return set(self._failed)

    def store(self, member: _Member, outcome: attachment_store.Outcome) -> Transitioned:
        """Store the result of a member, with those of others that have ended."""
        result = _Result(outcome)
        with self._changed:
            self._calling.discard(member)
            self._results.append(result)
            self._changed.notify_all()
            self._changed.wait_for(lambda: result.transitioned is not None or not self._storing)
            if result.transitioned is None:
                self._storing = True
                self._changed.wait_for(self._all_ended, LINGER)
                together, self._results = self._results, []
                last = len(together) == len(self._working)
        if result.transitioned is None:
            self._store_together(together, last=last)
        if isinstance(result.transitioned, Exception):
            raise result.transitioned
        assert result.transitioned is not None
        return result.transitioned

    def _all_ended(self) -> bool:
        return len(self._results) == len(self._working)

    def _store_together(self, together: Sequence[_Result], *, last: bool) -> None:
        transitioned: Sequence[Transitioned | Exception] = []
        try:
            outcomes = [result.outcome for result in together]
            transitioned = attachment_store.finish_together(outcomes, self._lease.token, last=last)
        except Exception as error:  # noqa: BLE001  each member raises it
            transitioned = [error] * len(together)
        finally:
            with self._changed:
                self._storing = False
                for result, its in zip(together, transitioned, strict=False):
                    result.transitioned = its
                self._changed.notify_all()


def _guards(members: Sequence[_Member]) -> list[tuple[_Member, Guard]]:
    """Return the guards of members, which admit a host once, in the order of the transaction."""
    hosts: set[str] = set()

    def guard_of(member: _Member) -> Guard:
        def guard(locked: LockedVolume) -> Mapping[str, Any]:
            if member is members[0]:
                hosts.clear()  # The transaction may be repeated.
            values = member.begin.guard(locked)
            admitted: Any = {**locked.attachment, **values}
            keys = _host_keys(admitted)
            if not keys or keys & hosts or _has_connections(locked):
                raise _Postponed
            hosts.update(keys)
            return values

        return guard

    return [(member, guard_of(member)) for member in members]


def _host_keys(row: AttachmentRow) -> set[str]:
    """Return the names by which a backend may know the host of a row."""
    identity = host_identity.of_row(row)
    return {*identity.identifiers, *([identity.name.lower()] if identity.name else [])}


def _has_connections(locked: LockedVolume) -> bool:
    """Return whether the older calls are concerned: connections are closed with attachments."""
    rows = [locked.attachment, *locked.others]
    return any(row["kind"] == AttachmentKind.CONNECTION for row in rows)


class _JointWork:
    """Work of a member of a group; see :class:`VolumeWork`."""

    ends_lease = False

    def __init__(
        self, group: _Group, member: _Member, transitioned: Transitioned, volume_lease: VolumeLease
    ) -> None:
        self._group = group
        self._member = member
        self.transitioned = transitioned
        self.volume_lease = volume_lease

    def record_granted(self, values: Mapping[str, Any]) -> None:
        """Store that the host is connected."""
        self._record(Event.GRANTED, values)

    def record_revoked(self) -> Transitioned:
        """Remove the attachment."""
        return self._record(Event.REVOKED, {})

    def _record(self, event: Event, values: Mapping[str, Any]) -> Transitioned:
        row = self.transitioned.attachment
        outcome = attachment_store.Outcome(row, event, values, _attribution())
        return self._group.store(self._member, outcome)

    def others(self) -> list[AttachmentRow]:
        """Return the rows of the others, as soon as the driver has answered to all."""
        failed = self._group.wait_for_failed(self._member)
        return [row for row in self.transitioned.others if row["id"] not in failed]


def _attribution() -> Callable[[], AbstractContextManager[None]]:
    """Return a context manager that makes this thread's request and operation those of another.

    Events have the caller, and the duration of the operation.
    """
    request, operation = oslo_context.get_current(), tracing.current()

    @contextlib.contextmanager
    def attributed() -> Iterator[None]:
        own = oslo_context.get_current()
        _set_request(request)
        try:
            with tracing.resumed(operation):
                yield
        finally:
            _set_request(own)

    return attributed


def _set_request(request: Any) -> None:
    if request is not None:
        request.update_store()
