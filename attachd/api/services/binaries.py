# SPDX-License-Identifier: Apache-2.0
"""Names of programs on the wire, and the selection of managers by host.

Clients and scripts look for the programs of the Block Storage service by their names in Cinder.
Requests may also use attachd's names.
"""

from types import MappingProxyType
from typing import Final

from attachd.db.cluster import services
from attachd.db.row_types import ServiceRow

MANAGER: Final = "cinder-volume"
API: Final = "cinder-api"
UNSUPPORTED: Final = ("cinder-scheduler", "cinder-backup")
"""Programs that clients may ask for, and that this service does not have."""

API_BINARY: Final = "attachd-api"

_INTERNAL: Final = MappingProxyType({MANAGER: services.BINARY, API: API_BINARY})
_WIRE: Final = MappingProxyType({internal: wire for wire, internal in _INTERNAL.items()})

ALL: Final = (*_INTERNAL, *_INTERNAL.values(), *UNSUPPORTED)
"""All names that a request may use."""


def to_internal(name: str) -> str:
    """Return attachd's name of a program that a request names."""
    return _INTERNAL.get(name, name)


def to_wire(binary: str) -> str:
    """Return the name of a program for responses."""
    return _WIRE.get(binary, binary)


def of_host(host: str | None) -> list[ServiceRow]:
    """Return the services of managers at a host, or of one backend; without a host, all."""
    return [row for row in services.page({"binary": services.BINARY}) if is_at(row, host)]


def is_at(row: ServiceRow, host: str | None) -> bool:
    """Return whether a service is at a host or is that backend; without a host, True."""
    return not host or host in {row["host"], row["host"].partition("@")[0]}
