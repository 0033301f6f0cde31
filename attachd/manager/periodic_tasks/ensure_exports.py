# SPDX-License-Identifier: Apache-2.0
"""Restore the exports that a restarted backend has lost."""

from collections.abc import Sequence
import functools

from oslo_log import log

from attachd import exception
from attachd.db import host_fences
from attachd.db.attachments import attachment_store
from attachd.db.row_types import AttachmentRow
from attachd.db.volumes import volume_store
from attachd.manager import backends, telemetry
from attachd.manager.backends import Backend
from attachd.manager.periodic_tasks.periodic_task import PeriodicTask, run_safely
from attachd.periodics import Backoff
from attachd.states import WITH_ACCESS, AttachmentState

LOG = log.getLogger(__name__)


class EnsureExportsTask(PeriodicTask):
    """Restoration of exports after each restart of one backend, in one process."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._backoff = Backoff()
        self._boot_id: str | None = None
        self._pending: Sequence[AttachmentRow] = ()

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
            self._pending = attachment_store.list_live(self._backend.host)
            self._boot_id = self._backend.boot_id = boot_id
            self._backoff.clear()
            LOG.info(
                "Backend %s: granting %d attachments again",
                self._backend.name,
                len(self._pending),
            )
        remaining = ensure_exports(self._backend, self._pending, self._backoff)
        restored = len(self._pending) - len(remaining)
        telemetry.count_recovery(self._backend, "regrant", restored)
        self._pending = remaining


def ensure_exports(
    backend: Backend, rows: Sequence[AttachmentRow], backoff: Backoff
) -> list[AttachmentRow]:
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


def grant_again(backend: Backend, row: AttachmentRow) -> None:
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
