# SPDX-License-Identifier: Apache-2.0
"""A connection as hosts are told of it; for the API's views and the managers' registry of agents.

Callers of the API and agents get the same, so that whoever connects by hand and whoever is an
agent need not be told apart.  It stands here because both rooms see it, and because it makes what
crosses RPC out of what is stored; it needs nothing but a row.
"""

from collections.abc import Mapping
from typing import Any, Final
import uuid

from attachd.db.secrets import encryption

_BACKENDS: Final = uuid.UUID("7c6b1a3e-0e0f-4a0b-9d4c-1f7a5f3f4f10")


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten what the driver said of an attachment, and add what it may have left unsaid.

    :param row: of an attachment with a connection
    :returns: as os-brick's connect_volume() takes it, with ``driver_volume_type``; it holds
        secrets
    :raises SecretUnreadable: it cannot be opened
    """
    stored = encryption.decrypted(row["connection_info"])
    return {
        **data(stored, row["mode"] or "rw"),
        "driver_volume_type": stored["driver_volume_type"],
        "attachment_id": row["id"],
        "enforce_multipath": (row["connector"] or {}).get("enforce_multipath", False),
    }


def data(stored: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Return what a host is told of a connection, whatever the driver left unsaid.

    :param stored: as drivers.base.ConnectionInfo
    """
    return {
        "qos_specs": None,
        "access_mode": mode,
        "encrypted": False,
        "cacheable": False,
        **stored["data"],
    }


def service_uuid(backend: str) -> str:
    """Name a backend by a UUID that is always the same; hosts take it for a lock's name.

    :param backend: ``host@backend``
    """
    return str(uuid.uuid5(_BACKENDS, backend))
