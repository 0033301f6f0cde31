# SPDX-License-Identifier: Apache-2.0
"""The RPC endpoint of one backend: the server of rpc/manager_api.py."""

from collections.abc import Iterable
from typing import Any

import oslo_messaging as messaging

from attachd.context import RequestContext
from attachd.db.attachments.legacy import Creator
from attachd.db.row_types import AttachmentRow
from attachd.db.secrets import encryption
from attachd.db.secrets.encryption import Encrypted
from attachd.manager import (
    attach,
    detach,
    image_cache,
    image_transfers,
    legacy_connections,
    snapshots,
    volumes,
)
from attachd.manager.audit import runner
from attachd.manager.backends import Backend
from attachd.manager.periodic_tasks import recovery
from attachd.objects import Attachment, Volume
from attachd.rpc import manager_api
from attachd.rpc.transport import expected_errors
from attachd.telemetry import log_levels

_REMAINING_COLUMNS = ("id", "volume_id", "state", "instance_uuid")
"""What callers are shown of remaining attachments: a volume may have many, and their conversion
into messages would cost more than the detach."""


Answer = dict[str, Any]


def _connected(answer: Answer, key_id: str | None) -> Answer:
    """Return the answer to a connect; the message queue sees no secret if both sides have keys.

    :param key_id: of the caller's key; None: it has none, and reads no encrypted connection
    :raises SecretUnreadable: the connection cannot be decrypted for such a caller
    """
    info = answer["connection_info"]
    if key_id and isinstance(info, Encrypted):
        return {**answer, "connection_info": None, "encrypted": info.text}
    decrypted = encryption.decrypted(answer, "connection_info")
    return {**answer, "connection_info": decrypted}


class _VolumeMethods:
    """The calls and casts for volumes themselves."""

    _backend: Backend

    def create_volume(self, _context: RequestContext, volume: Volume) -> None:
        """See manager_api.create_volume()."""
        if volume.image_id:
            image_cache.copy(self._backend, volume.id)
        else:
            create = volumes.copy if volume.is_copy else volumes.create
            create(self._backend, volume.id)

    def delete_volume(self, _context: RequestContext, volume: Volume) -> None:
        """See manager_api.delete_volume()."""
        volumes.delete(self._backend, volume.id)

    def extend_volume(self, _context: RequestContext, volume: Volume) -> None:
        """See manager_api.extend_volume()."""
        volumes.extend(self._backend, volume.id)

    def reimage_volume(self, _context: RequestContext, volume: Volume) -> None:
        """See manager_api.reimage_volume()."""
        image_transfers.reimage(self._backend, volume.id)

    def upload_volume(self, _context: RequestContext, volume: Volume) -> None:
        """See manager_api.upload_volume()."""
        image_transfers.upload(self._backend, volume.id)

    def manage_volume(self, _context: RequestContext, volume: Volume) -> None:
        """See manager_api.manage_volume()."""
        volumes.manage(self._backend, volume.id)

    def unmanage_volume(self, _context: RequestContext, volume: Volume) -> None:
        """See manager_api.unmanage_volume()."""
        volumes.unmanage(self._backend, volume.id)

    def revert_volume(self, _context: RequestContext, volume: Volume) -> None:
        """See manager_api.revert_volume()."""
        volumes.revert(self._backend, volume.id)

    def create_snapshot(self, _context: RequestContext, snapshot_id: str) -> None:
        """See manager_api.create_snapshot()."""
        snapshots.create(self._backend, snapshot_id)

    def delete_snapshot(self, _context: RequestContext, snapshot_id: str) -> None:
        """See manager_api.delete_snapshot()."""
        snapshots.delete(self._backend, snapshot_id)

    @expected_errors
    def list_manageable(self, _context: RequestContext) -> list[dict[str, Any]]:
        """See manager_api.list_manageable()."""
        return volumes.list_manageable(self._backend)

    @expected_errors
    def list_manageable_snapshots(self, _context: RequestContext) -> list[dict[str, Any]]:
        """See manager_api.list_manageable_snapshots()."""
        return snapshots.list_manageable(self._backend)

    @expected_errors
    def get_manageable(
        self, _context: RequestContext, reference: dict[str, str]
    ) -> dict[str, Any]:
        """See manager_api.get_manageable()."""
        return volumes.get_manageable(self._backend, reference)

    @expected_errors
    def get_manageable_snapshot(
        self, _context: RequestContext, volume_id: str, reference: dict[str, str]
    ) -> dict[str, Any]:
        """See manager_api.get_manageable_snapshot()."""
        return snapshots.get_manageable(self._backend, volume_id, reference)


class Endpoint(_VolumeMethods):
    """The calls and casts for one backend; AttachdErrors are answers to calls."""

    target = messaging.Target(version=manager_api.VERSION)

    def __init__(self, backend: Backend) -> None:
        self.host = backend.host
        self._backend = backend

    @expected_errors
    def attach(
        self,
        _context: RequestContext,
        attachment_id: str,
        volume_id: str,
        connector: dict[str, Any],
        denied_rule: str | None = None,
        key_id: str | None = None,
    ) -> Answer:
        """See manager_api.attach()."""
        what = (attachment_id, volume_id, connector, denied_rule)
        return _connected(attach.attach(self._backend, *what), key_id)

    @expected_errors
    def attach_exclusive(
        self,
        _context: RequestContext,
        attachment_id: str,
        volume_id: str,
        connector: dict[str, Any],
        denied_rule: str | None = None,
        key_id: str | None = None,
    ) -> Answer:
        """See manager_api.attach_exclusive()."""
        what = (attachment_id, volume_id, connector, denied_rule)
        return _connected(attach.attach_exclusive(self._backend, *what), key_id)

    @expected_errors
    def check_attach(
        self,
        _context: RequestContext,
        volume_id: str,
        connector: dict[str, Any],
        values: dict[str, Any] | None,
    ) -> str | None:
        """See manager_api.check_attach()."""
        return attach.check(self._backend, volume_id, connector, values)

    @expected_errors
    def detach(
        self,
        _context: RequestContext,
        attachment_id: str,
        volume_id: str,
        states: list[str] | None = None,
    ) -> list[Attachment]:
        """See manager_api.detach()."""
        return _remaining(detach.detach(self._backend, attachment_id, volume_id, states))

    @expected_errors
    def force_detach(
        self,
        context: RequestContext,
        attachment_id: str,
        volume_id: str,
        states: list[str] | None = None,
    ) -> list[Attachment]:
        """See manager_api.force_detach()."""
        return _remaining(
            detach.force_detach(self._backend, attachment_id, volume_id, context.user_id, states)
        )

    @expected_errors
    def finish_move(self, _context: RequestContext, attachment_id: str, volume_id: str) -> str:
        """See manager_api.finish_move()."""
        return detach.finish_move(self._backend, attachment_id, volume_id)

    def process_pending(self, _context: RequestContext, attachment_id: str) -> None:
        """See manager_api.process_pending()."""
        recovery.process_pending(self._backend, attachment_id)

    @expected_errors
    def initialize_connection(
        self,
        context: RequestContext,
        volume: Volume,
        connector: dict[str, Any],
        denied_rule: str | None = None,
        key_id: str | None = None,
    ) -> Answer:
        """See manager_api.initialize_connection()."""
        creator = Creator(volume.project_id, context.user_id, context.by_service or None)
        answer = legacy_connections.initialize(
            self._backend, volume.id, creator, connector, denied_rule
        )
        return _connected(answer, key_id)

    @expected_errors
    def terminate_connections(
        self,
        _context: RequestContext,
        volume_id: str,
        connector: dict[str, Any] | None,
        attachment_ids: list[str] | None,
        connection_ids: list[str] | None = None,
    ) -> int:
        """See manager_api.terminate_connections()."""
        return legacy_connections.terminate(
            self._backend, volume_id, connector, attachment_ids, connection_ids
        )

    @expected_errors
    def compare_exports(self, _context: RequestContext, volume_id: str) -> list[str]:
        """See manager_api.compare_exports()."""
        return runner.compare_exports(self._backend, volume_id)

    @expected_errors
    def compare_volume(self, _context: RequestContext, volume_id: str) -> list[str]:
        """See manager_api.compare_volume()."""
        return runner.compare_volume(self._backend, volume_id)

    @expected_errors
    def get_persistent_reservation(
        self, _context: RequestContext, volume_id: str
    ) -> manager_api.PersistentReservation | None:
        """See manager_api.get_persistent_reservation()."""
        return volumes.get_persistent_reservation(self._backend, volume_id)

    def set_log_levels(
        self, _context: RequestContext, hosts: list[str], prefix: str, level: str
    ) -> None:
        """See manager_api.set_log_levels(); processes of other backends receive it, too."""
        if self.host in hosts:
            log_levels.change(prefix, level)

    @expected_errors
    def get_log_levels(self, _context: RequestContext, prefix: str) -> dict[str, str]:
        """See manager_api.get_log_levels()."""
        return log_levels.current(prefix)


def _remaining(rows: Iterable[AttachmentRow]) -> list[Attachment]:
    return [Attachment.from_row(None, _shown(row)) for row in rows]


def _shown(row: AttachmentRow) -> dict[str, Any]:
    columns: Any = row
    return {name: columns[name] for name in _REMAINING_COLUMNS}
