# SPDX-License-Identifier: Apache-2.0
"""Free capacity of backends, by volume type and zone."""

from collections.abc import Mapping
import http
from typing import Any, Final

from google.protobuf import wrappers_pb2

from attachd.csi import access, csi_pb2, new_volume
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.errors import StorageError
from attachd.platforms.storage import GIB, Storage

_UNLIMITED_GIB: Final = 10**9 - 1
"""Shown for a pool that does not say what is free."""


def read(storage: Storage, request: csi_pb2.GetCapacityRequest) -> csi_pb2.GetCapacityResponse:
    """Return what is free in the pools that can serve a request; the user has to be administrator.

    :raises CallError: INVALID_ARGUMENT: unknown parameter, type or topology key
    """
    type_name = new_volume.read_parameters(request.parameters).get(new_volume.TYPE)
    zone = new_volume.zone_of(request.accessible_topology)
    is_shared = storage.is_type_shared(type_name)
    if access.find_reason(request.volume_capabilities, is_shared=is_shared):
        return csi_pb2.GetCapacityResponse(available_capacity=0)
    free = [_free_gib(pool) for pool in _pools(storage, type_name, zone)]
    return csi_pb2.GetCapacityResponse(
        available_capacity=sum(free) * GIB,
        maximum_volume_size=wrappers_pb2.Int64Value(value=max(free, default=0) * GIB),
        minimum_volume_size=wrappers_pb2.Int64Value(value=GIB),
    )


def _pools(storage: Storage, type_name: str | None, zone: str | None) -> list[Mapping[str, Any]]:
    try:
        pools = storage.pools(type_name)
    except StorageError as error:
        if error.status == http.HTTPStatus.NOT_FOUND:
            raise CallError(ErrorCode.INVALID_ARGUMENT, f"{error}") from error
        raise
    if zone is None:
        return pools
    zones = storage.zones()
    return [pool for pool in pools if zones.get(pool["name"].partition("#")[0]) == zone]


def _free_gib(pool: Mapping[str, Any]) -> int:
    free = pool["capabilities"]["free_capacity_gb"]
    return _UNLIMITED_GIB if free == "infinite" else max(0, int(free))
