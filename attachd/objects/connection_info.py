# SPDX-License-Identifier: Apache-2.0
"""Connection info as hosts get it; for the API's views and for desired states of agents.

Callers of the API and agents get the same.  The module belongs to both, and needs only a row.
"""

from collections.abc import Mapping
from typing import Any, Final
import uuid

from attachd.db.secrets import encryption

_BACKENDS: Final = uuid.UUID("7c6b1a3e-0e0f-4a0b-9d4c-1f7a5f3f4f10")


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the driver's connection info of an attachment, flat and with defaults.

    :param row: of an attachment with a connection
    :returns: as os-brick's connect_volume() takes it, with ``driver_volume_type``; it contains
        secrets
    :raises SecretUnreadable: it cannot be decrypted
    """
    stored = encryption.decrypted(row["connection_info"])
    return {
        **data(stored, row["mode"] or "rw"),
        "driver_volume_type": stored["driver_volume_type"],
        "attachment_id": row["id"],
        "enforce_multipath": (row["connector"] or {}).get("enforce_multipath", False),
    }


def data(stored: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Return the connection data that a host gets, with defaults for what the driver omitted.

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
    """Return the constant UUID of a backend; os-brick uses it as the name of a lock.

    :param backend: ``host@backend``
    """
    return str(uuid.uuid5(_BACKENDS, backend))
