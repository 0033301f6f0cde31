# SPDX-License-Identifier: Apache-2.0
"""Grants again what a restarted backend has forgotten; started by service.py."""

from collections.abc import Sequence
import functools

from oslo_log import log

from attachd import exception
from attachd.db import attachments as attachments_db
from attachd.manager import driver_args, measuring
from attachd.manager.attempts import attempt
from attachd.manager.backends import Backend
from attachd.manager.ha.periodic_task import Rounds

LOG = log.getLogger(__name__)


class Healer(Rounds):
    """One backend in one process: its exports, after each restart."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._boot_id: str | None = None
        self._forgotten: list[attachments_db.Row] = []

    def once(self) -> None:
        """Look whether the backend was restarted, and grant what it has forgotten."""
        if self._backend.error is not None:
            return
        try:
            boot_id = self._backend.driver.boot_id()
        except exception.BackendError as error:
            LOG.warning("Backend %s does not tell whether it lives: %s", self._backend.name, error)
            return
        if boot_id != self._boot_id:
            self._forgotten = attachments_db.live_of_backend(self._backend.host)
            self._boot_id = boot_id
            LOG.info(
                "Backend %s: %d attachments to grant again",
                self._backend.name,
                len(self._forgotten),
            )
        left = heal(self._backend, self._forgotten)
        measuring.acted(self._backend, "regrant", len(self._forgotten) - len(left))
        self._forgotten = left


def heal(backend: Backend, rows: Sequence[attachments_db.Row]) -> list[attachments_db.Row]:
    """Grant attachments anew after the backend was restarted.

    :param rows: of live attachments
    :returns: those whose hosts still do not reach their volumes, to be tried again
    """
    return [
        row
        for row in rows
        if not attempt(row["id"], functools.partial(driver_args.grant_again, backend, row))
    ]
