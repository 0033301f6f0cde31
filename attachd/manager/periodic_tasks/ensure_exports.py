# SPDX-License-Identifier: Apache-2.0
"""Restore the exports that a restarted backend has lost."""

from collections.abc import Sequence
import functools

from oslo_log import log

from attachd import exception
from attachd.db import host_fences
from attachd.db.attachments import attachment_store, backend_attachments
from attachd.db.attachments.backend_attachments import DriverAttachmentRow
from attachd.db.volumes import volume_queries, volume_store
from attachd.drivers import abilities
from attachd.drivers.base import BackendExport
from attachd.manager import backends, telemetry
from attachd.manager.backends import Backend
from attachd.manager.periodic_tasks.periodic_task import PeriodicTask, run_safely
from attachd.periodics import Backoff
from attachd.states import WITH_ACCESS, AttachmentState

LOG = log.getLogger(__name__)


class EnsureExportsTask(PeriodicTask):
    """Restoration of exports after each restart of one backend, in one process.

    It goes through the volumes of the backend in pages, and grants what the backend does not list.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._backoff = Backoff()
        self._boot_id: str | None = None
        # the last volume of the pages that were done; None: all were
        self._after: str | None = None
        self._listed: backends.Listing | None = None
        self._failed: list[DriverAttachmentRow] = []

    def run_once(self) -> None:
        """Find out whether the backend was restarted, and grant what it has lost."""
        if self._backend.error is not None:
            return
        try:
            boot_id = self._backend.driver.boot_id()
        except exception.BackendError as error:
            LOG.warning("Backend %s: reading its boot id failed: %s", self._backend.name, error)
            return
        if boot_id != self._boot_id:
            self._listed = backends.list_exports(self._backend)
            self._after, self._failed = "", []
            self._boot_id = self._backend.boot_id = boot_id
            self._backoff.clear()
        elif self._failed:
            self._failed = self._restore(self._failed)
        while self._after is not None and self._backend.error is None:
            self._restore_page(self._after)

    def _restore_page(self, after: str) -> None:
        volume_ids = volume_queries.list_ids(self._backend.host, after)
        rows = backend_attachments.list_live(volume_ids) if volume_ids else []
        lost = find_lost(self._backend, rows, self._listed)
        if lost:
            LOG.info("Backend %s: granting %d attachments again", self._backend.name, len(lost))
            self._failed += self._restore(lost)
        self._after = volume_ids[-1] if len(volume_ids) == volume_queries.PAGE else None
        if self._after is None:
            self._listed = None

    def _restore(self, rows: Sequence[DriverAttachmentRow]) -> list[DriverAttachmentRow]:
        remaining = ensure_exports(self._backend, rows, self._backoff)
        telemetry.count_recovery(self._backend, "regrant", len(rows) - len(remaining))
        return remaining


def find_lost(
    backend: Backend, rows: Sequence[DriverAttachmentRow], listed: backends.Listing | None
) -> list[DriverAttachmentRow]:
    """Return the attachments whose exports are not among those that are listed.

    :param rows: of live attachments
    :param listed: None: it is not known, and each may have been lost
    """
    if listed is None:
        return [*rows]
    return [row for row in rows if _is_lost(backend, row, listed.get(row["volume_id"], ()))]


def _is_lost(backend: Backend, row: DriverAttachmentRow, listed: Sequence[BackendExport]) -> bool:
    assert isinstance(backend.driver, abilities.Audit), "it has listed exports"
    if row["connector"] is None:
        return False
    volume = backends.volume_ref(backend_attachments.volume_of(row))
    try:
        return bool(abilities.find_missing(backend.driver, volume, backends.export(row), listed))
    except exception.SecretUnreadable:
        return True  # Its grant fails, and says why.


def ensure_exports(
    backend: Backend, rows: Sequence[DriverAttachmentRow], backoff: Backoff
) -> list[DriverAttachmentRow]:
    """Grant attachments again after the backend was restarted.

    :param rows: of live attachments
    :param backoff: former failures
    :returns: those whose hosts still do not reach their volumes, to be tried again
    """
    remaining = []
    for row in rows:
        if backoff.may_retry(row["id"]):
            work = functools.partial(grant_again, backend, row)
            if run_safely(f"Attachment {row['id']}", work):
                continue
            backoff.record_failure(row["id"])
        remaining.append(row)
    return remaining


def grant_again(backend: Backend, row: DriverAttachmentRow) -> None:
    """Grant an attachment that the backend has lost; its row stays as it is.

    :param row: of a live attachment, as it was read some time ago
    :raises BackendError: the host does not reach its volume
    :raises HostFenced: nor does it while it is fenced
    :raises Unavailable: nor does it while the backend is down, or other work does not end
    :raises SecretUnreadable: the secret cannot be decrypted, so the host does not reach it either
    """
    backend.check_ready()
    with backend.lock(row["volume_id"]):
        current = attachment_store.get(row["id"], None)
        if AttachmentState(current["state"]) in WITH_ACCESS and current["connector"] is not None:
            host_fences.check_attachment(current)
            volume = volume_store.get_for_driver(row["volume_id"])
            backend.driver.grant(backends.volume_ref(volume), backends.export_with_secret(current))
