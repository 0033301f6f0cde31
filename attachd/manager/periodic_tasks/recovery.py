# SPDX-License-Identifier: Apache-2.0
"""Finish operations that were interrupted, or that have failed with an unknown result;
ensure_exports.py restores what a backend has lost.

All input comes from the rows.  Each operation goes through the same functions as a client's call,
under the same lease: the work of a living process is left to it, and that of a dead process is
taken over with its lease.

Operations may be slow, and fail again and again, such as those of a project on storage that it has
spoilt.  So they are tried in an order that is fair to the others, and the rows are read again
after some seconds.
"""

from collections import Counter
from collections.abc import Callable, Iterable
import datetime
import functools
import time
from typing import Final, NamedTuple

from oslo_log import log

from attachd import exception
from attachd.db import models
from attachd.db.attachments import attachment_moves, attachment_store
from attachd.db.row_types import (
    AttachmentRow,
    AttachmentWithVolumeRow,
    RecoverableAttachmentRow,
    RecoverableSnapshotRow,
    RecoverableVolumeRow,
    VolumeRow,
)
from attachd.db.volumes import snapshot_store, volume_store
from attachd.manager import (
    attach,
    background_tasks,
    detach,
    image_cache,
    image_transfers,
    moves,
    notify,
    snapshot_uploads,
    snapshots,
    telemetry,
    volumes,
)
from attachd.manager.backends import Backend
from attachd.manager.periodic_tasks import purge
from attachd.manager.periodic_tasks.periodic_task import PeriodicTask, run_safely
from attachd.periodics import Backoff
from attachd.states import AttachmentState, SnapshotState, VolumeState

LOG = log.getLogger(__name__)

GRACE_PERIOD = 3.0
"""Seconds in which a message should have come to a manager."""

PASS_TIME: Final = 3.0
"""Seconds after which a pass begins no further operation, and the rows are read again."""


class RecoveryLoop(PeriodicTask):
    """Recovery of rows, and expiry of reservations, for one backend in one process.

    It takes as long as the backend takes, so it has a thread of its own: neither the heartbeat of
    the backend nor the export of a thousand volumes must wait for it.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._backoff = Backoff()
        self._turns = Turns(PASS_TIME)
        self._boot_id = backend.boot_id
        self._resumed = False

    def on_failure(self) -> None:
        """Recover all rows next time: without the database, threads could not store results."""
        self._resumed = False

    def run_once(self) -> None:
        """Finish interrupted operations, as many as a pass has time for."""
        if self._backend.error is not None:
            self._resumed = False
            self._backoff.clear()
            release_orphaned_leases(self._backend)  # Managers of other machines may go on.
            return
        if self._boot_id != self._backend.boot_id:
            self._boot_id = self._backend.boot_id
            self._backoff.clear()  # What has failed with the former start may succeed now.
        recover = recover_stale if self._resumed else recover_all
        recover(self._backend, self._backoff, self._turns)
        self._resumed = True
        if self._turns.is_cut:
            self.wake()  # Rows that are left are found as stale ones.
        purge.expire_attachments(self._backend)


RecoverableRow = RecoverableAttachmentRow | RecoverableSnapshotRow | RecoverableVolumeRow


class PendingWork(NamedTuple):
    """The operation that one row still needs.

    :ivar rank: of its kind; those of a lower one begin first
    :ivar volume_id: of the lease that the operation takes; the snapshot's if it is one of that
    :ivar row: as it was read
    """

    rank: int
    volume_id: str
    row: RecoverableRow
    run: Callable[[], object]

    @property
    def row_id(self) -> str:
        """The id of the volume or attachment."""
        return str(self.row["id"])

    @property
    def subject(self) -> str:
        """The volume or attachment in messages."""
        kind = "Volume" if self.row_id == self.volume_id else "Attachment"
        if "provider" in self.row and "volume_id" in self.row:
            kind = "Snapshot"
        return f"{kind} {self.row_id}"


class Turns:
    """The turns of projects in passes of a limited time.

    Operations that were not tried yet begin first; of them those of attachments, since work on
    volumes may take minutes, and a host waits for its access.

    :param pass_time: seconds after which a pass begins no further operation; None: any
    :ivar is_cut: whether the last pass has left operations to the next one
    """

    def __init__(self, pass_time: float | None = None) -> None:
        self._pass_time = float("inf") if pass_time is None else pass_time
        self._last_started: dict[str, float] = {}  # By project.
        self._deadline: float | None = None
        self.is_cut = False

    def begin_pass(self, pending: Iterable[PendingWork], backoff: Backoff) -> list[PendingWork]:
        """Return operations in the order in which they begin."""
        self._deadline, self.is_cut = None, False
        numbers: Counter[tuple[bool, int, str]] = Counter()

        def order(work: PendingWork) -> tuple[bool, int, int, float]:
            was_tried, project = backoff.has_failed(work.row_id), work.row["project_id"]
            numbers[place := (was_tried, work.rank, project)] += 1
            return was_tried, work.rank, numbers[place], self._last_started.get(project, 0.0)

        ordered = sorted(pending, key=order)
        projects = {work.row["project_id"] for work in ordered}
        self._last_started = {
            name: moment for name, moment in self._last_started.items() if name in projects
        }
        return ordered

    def may_begin(self, work: PendingWork) -> bool:
        """Return whether one more operation may begin, as the first one of a pass always may."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._pass_time
        self.is_cut = now > self._deadline
        if not self.is_cut:
            self._last_started[work.row["project_id"]] = now
        return not self.is_cut


def recover_all(backend: Backend, backoff: Backoff, turns: Turns | None = None) -> int:
    """Finish the operation of every transitional or uncertain row of this backend that is not in
    progress.

    :param backoff: former attempts
    :param turns: None: there is no limit of the time
    :returns: how many rows were left as they were, to be tried again
    """
    return _recover(backend, _pending(backend, backoff), backoff, turns or Turns())


def recover_stale(backend: Backend, backoff: Backoff, turns: Turns | None = None) -> int:
    """Finish operations of dead processes, and those that no process has begun for some time.

    In the second case the message was lost, with the API or with a manager, or the end of the
    operation could not be stored.  To be early does no harm: a message that arrives later finds
    the operation done.  The function does not wait for an operation in progress.

    Parameters and result are as of :func:`recover_all`.
    """
    before = models.now() - datetime.timedelta(seconds=GRACE_PERIOD)

    def is_due(work: PendingWork) -> bool:
        if work.row["orphaned"] or backend.background_tasks.has_task(work.row_id):
            return True
        is_old = backoff.has_failed(work.row_id) or _last_change(work.row) < before
        return is_old and backend.is_idle(work.volume_id)

    due = [work for work in _pending(backend, backoff) if is_due(work)]
    remaining = _recover(backend, due, backoff, turns or Turns())
    release_orphaned_leases(backend)
    return remaining


def _last_change(row: RecoverableRow) -> datetime.datetime:
    return row["updated_at"] or row["created_at"]


def _recover(
    backend: Backend, pending: Iterable[PendingWork], backoff: Backoff, turns: Turns
) -> int:
    remaining = 0
    for work in turns.begin_pass(pending, backoff):
        if backend.background_tasks.has_task(work.row_id):
            backoff.restart_pause(work.row_id)
        elif not backoff.may_retry(work.row_id) or not turns.may_begin(work):
            remaining += 1
        else:
            is_done = _run(work)
            # A row that still needs work in a later pass, as after a background task, has failed.
            backoff.record_failure(work.row_id)
            done = "takeover" if work.row["orphaned"] else "finish"
            telemetry.count_recovery(backend, done if is_done else "postpone")
            remaining += not is_done
    return remaining


def _run(work: PendingWork) -> bool:
    with background_tasks.of_project(work.row["project_id"]):
        return run_safely(work.subject, work.run)


def release_orphaned_leases(backend: Backend) -> None:
    """Release leases whose operation has ended, while they could not be released."""
    for volume_id in backend.orphaned_leases():
        run_safely(f"Volume {volume_id}", functools.partial(_release_orphaned, backend, volume_id))
    for snapshot_id in backend.orphaned_snapshot_leases():
        release = functools.partial(_release_orphaned_snapshot, backend, snapshot_id)
        run_safely(f"Snapshot {snapshot_id}", release)


def _release_orphaned(backend: Backend, volume_id: str) -> None:
    with backend.lock(volume_id):
        LOG.info("Volume %s: releasing an orphaned lease", volume_id)


def _release_orphaned_snapshot(backend: Backend, snapshot_id: str) -> None:
    with backend.lock_snapshot(snapshot_id):
        LOG.info("Snapshot %s: releasing an orphaned lease", snapshot_id)


def _pending(backend: Backend, backoff: Backoff) -> list[PendingWork]:
    member_id = backend.membership.id
    snapshot_rows = snapshot_store.list_recoverable(backend.host, member_id)
    volume_rows = volume_store.list_recoverable(backend.host, member_id)
    attachment_rows = attachment_store.list_recoverable(backend.host, member_id)
    destinations = attachment_moves.list_unfinished(backend.host, member_id)
    pending = [
        *(
            PendingWork(0, row["volume_id"], row, _attachment_work(backend, row))
            for row in attachment_rows
        ),
        *(PendingWork(0, row["volume_id"], row, _move_work(backend, row)) for row in destinations),
        *(PendingWork(1, row["id"], row, _snapshot_work(backend, row)) for row in snapshot_rows),
        *(PendingWork(1, row["id"], row, _volume_work(backend, row)) for row in volume_rows),
    ]
    backoff.retain({work.row_id for work in pending})
    return pending


def _volume_work(backend: Backend, row: VolumeRow) -> Callable[[], object]:
    is_copy = row["source_volid"] or row["snapshot_id"]
    create = volumes.copy if is_copy else volumes.create
    if row["image_id"]:
        create = image_cache.copy
    work: dict[str, Callable[[], object]] = {
        VolumeState.CREATING: lambda: create(backend, row["id"]),
        VolumeState.DELETING: lambda: volumes.delete(backend, row["id"]),
        VolumeState.EXTENDING: lambda: volumes.extend(backend, row["id"]),
        VolumeState.DOWNLOADING: lambda: image_transfers.reimage(backend, row["id"]),
        VolumeState.UPLOADING: lambda: image_transfers.upload(backend, row["id"]),
        VolumeState.MANAGING: lambda: volumes.manage(backend, row["id"]),
        VolumeState.UNMANAGING: lambda: volumes.unmanage(backend, row["id"]),
        VolumeState.REVERTING: lambda: volumes.revert(backend, row["id"]),
        VolumeState.ERROR_EXTENDING: lambda: volumes.resolve_extend(backend, row["id"]),
    }
    return work[row["state"]]


def _snapshot_work(backend: Backend, row: RecoverableSnapshotRow) -> Callable[[], object]:
    if snapshot_uploads.is_of_upload(row):
        return functools.partial(snapshot_uploads.upload, backend, row["id"])
    work = snapshots.create if row["state"] == SnapshotState.CREATING else snapshots.delete
    return functools.partial(work, backend, row["id"])


def _attachment_work(backend: Backend, row: AttachmentRow) -> Callable[[], object]:
    finish = {
        AttachmentState.CONNECTING: attach.finish_attach,
        AttachmentState.CONNECT_UNKNOWN: detach.undo_connect,
    }.get(AttachmentState(row["state"]), detach.finish_detach)
    return functools.partial(finish, backend, row)


def _move_work(backend: Backend, row: AttachmentRow) -> Callable[[], object]:
    return functools.partial(moves.end_move, backend, row["id"], row["volume_id"])


def process_pending(backend: Backend, attachment_id: str) -> None:
    """Connect or disconnect an attachment whose row says so, for a caller that does not wait.

    The result is in the row, and in a message to the user; an operation that fails for now is
    left to recovery.
    """
    try:
        _process(backend, attachment_store.get(attachment_id, None))
    except (exception.NotFound, exception.InvalidTransition):
        LOG.info("Attachment %s: gone or changed by another process, nothing to do", attachment_id)
    except exception.AttachdError as error:
        LOG.warning("Attachment %s: left to recovery: %s", attachment_id, error)


def _process(backend: Backend, row: AttachmentWithVolumeRow) -> None:
    if row["state"] == AttachmentState.CONNECTING:
        attach.finish_attach(backend, row)
        notify.request_reconcile([attachment_store.get(row["id"], None)])
    elif row["state"] == AttachmentState.DISCONNECTING:
        try:
            detach.finish_detach(backend, row)
        except exception.Unavailable as error:
            attachment_store.record_error(row, f"{error}")
            raise
