# SPDX-License-Identifier: Apache-2.0
"""What a manager answers to over RPC: the server half of rpcapi, one per backend."""

from collections.abc import Callable, Iterable, Mapping
import functools
from typing import Any, ParamSpec, TypeVar

import oslo_messaging as messaging

from attachd import exception, log_levels, rpcapi
from attachd.context import RequestContext
from attachd.manager import attachments, connections, detaching, volumes
from attachd.manager.backends import Backend
from attachd.objects import Attachment, Volume

_SECRET_COLUMNS = frozenset({"connector", "connection_info", "secret"})

P = ParamSpec("P")
R = TypeVar("R")


def _answering(method: Callable[P, R]) -> Callable[P, R]:
    """Have AttachdErrors be answers to the caller, and no accidents to be logged."""
    answering = messaging.expected_exceptions(exception.AttachdError)(method)
    return functools.wraps(method)(answering)


class Endpoint:
    """The calls and casts for one backend; AttachdErrors are answers to calls."""

    target = messaging.Target(version=rpcapi.VERSION)

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @_answering
    def attach(
        self,
        _context: RequestContext,
        attachment_id: str,
        volume_id: str,
        connector: dict[str, Any],
        denied: str = "",
    ) -> dict[str, Any]:
        """See rpcapi.attach()."""
        return attachments.attach(self._backend, attachment_id, volume_id, connector, denied)

    @_answering
    def attach_alone(
        self,
        _context: RequestContext,
        attachment_id: str,
        volume_id: str,
        connector: dict[str, Any],
        denied: str = "",
    ) -> dict[str, Any]:
        """See rpcapi.attach_alone()."""
        return attachments.attach_alone(self._backend, attachment_id, volume_id, connector, denied)

    @_answering
    def detach(
        self,
        _context: RequestContext,
        attachment_id: str,
        volume_id: str,
        states: list[str] | None = None,
    ) -> list[Attachment]:
        """See rpcapi.detach()."""
        return _remaining(detaching.detach(self._backend, attachment_id, volume_id, states))

    @_answering
    def force_detach(
        self,
        context: RequestContext,
        attachment_id: str,
        volume_id: str,
        states: list[str] | None = None,
    ) -> list[Attachment]:
        """See rpcapi.force_detach()."""
        return _remaining(
            detaching.force(self._backend, attachment_id, volume_id, context.user_id, states)
        )

    @_answering
    def open_connection(
        self,
        context: RequestContext,
        volume: Volume,
        connector: dict[str, Any],
        denied: str = "",
    ) -> dict[str, Any]:
        """See rpcapi.open_connection()."""
        return connections.open_(
            self._backend, volume.id, volume.project_id, context.user_id, connector, denied
        )

    @_answering
    def close_connections(
        self,
        _context: RequestContext,
        volume_id: str,
        connector: dict[str, Any] | None,
        attachment_ids: list[str] | None,
        connection_ids: list[str] | None = None,
    ) -> int:
        """See rpcapi.close_connections()."""
        return connections.close(
            self._backend, volume_id, connector, attachment_ids, connection_ids
        )

    def create_volume(self, _context: RequestContext, volume: Volume) -> None:
        """See rpcapi.create_volume()."""
        is_copy = volume.obj_attr_is_set("source_volid") and volume.source_volid is not None
        work = volumes.copy if is_copy else volumes.create
        work(self._backend, volume.id)

    def delete_volume(self, _context: RequestContext, volume: Volume) -> None:
        """See rpcapi.delete_volume()."""
        volumes.delete(self._backend, volume.id)

    def extend_volume(self, _context: RequestContext, volume: Volume) -> None:
        """See rpcapi.extend_volume()."""
        volumes.extend(self._backend, volume.id)

    def set_log_levels(
        self, _context: RequestContext, hosts: list[str], prefix: str, level: str
    ) -> None:
        """See rpcapi.set_log_levels(); everybody gets it, whether meant or not."""
        if self._backend.host in hosts:
            log_levels.change(prefix, level)

    @_answering
    def get_log_levels(self, _context: RequestContext, prefix: str) -> dict[str, str]:
        """See rpcapi.get_log_levels()."""
        return log_levels.current(prefix)


def _remaining(rows: Iterable[Mapping[str, Any]]) -> list[Attachment]:
    return [Attachment.from_row(None, _without_secrets(row)) for row in rows]


def _without_secrets(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _SECRET_COLUMNS}
