# SPDX-License-Identifier: Apache-2.0
"""What this service's programs are called on the wire; used by handlers of services and hosts.

Clients, and what administrators have built on them, look for the programs of the Block Storage
service by the names that they have had for ever.  In requests our own names will do as well.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from attachd import scheduler
from attachd.db.cluster import services

MANAGER: Final = "cinder-volume"
API: Final = "cinder-api"
UNSUPPORTED: Final = ("cinder-scheduler", "cinder-backup")
"""Programs that clients may ask for, and that this service does not have."""

API_BINARY: Final = "attachd-api"

_INTERNAL: Final = MappingProxyType({MANAGER: scheduler.BINARY, API: API_BINARY})
_WIRE: Final = MappingProxyType({internal: wire for wire, internal in _INTERNAL.items()})

ALL: Final = (*_INTERNAL, *_INTERNAL.values(), *UNSUPPORTED)
"""Every name that a request may give."""


def to_internal(name: str) -> str:
    """Return what we call a program that a request names."""
    return _INTERNAL.get(name, name)


def to_wire(binary: str) -> str:
    """Return what answers call one of our programs."""
    return _WIRE.get(binary, binary)


Row = Mapping[str, Any]


def of_host(host: str | None) -> list[services.Row]:
    """Return the services of managers at a host, or of one backend; all, without a host."""
    return [row for row in services.page({"binary": scheduler.BINARY}) if is_at(row, host)]


def is_at(row: Row, host: str | None) -> bool:
    """Tell whether a service is at a host, or is that backend; each is, of no host."""
    return not host or host in {row["host"], row["host"].partition("@")[0]}
