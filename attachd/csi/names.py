# SPDX-License-Identifier: Apache-2.0
"""Names of volumes and snapshots: as metadata by which they are found, and as idempotency keys."""

from collections.abc import Mapping
import hashlib
import json
from typing import Any, Final

NAME_KEY: Final = "csi.name"
"""Metadata: the name that the platform has chosen."""
CREATED_KEY: Final = "csi.created"
"""Metadata of what exists for its caller: what is in error without it has no data."""


def digest(driver: str, name: str) -> str:
    """Return the id of a name: only ASCII, so that it can be searched for.

    :param driver: its name, so that those of two clusters differ
    """
    return hashlib.sha256(f"{driver}\0{name}".encode()).hexdigest()


def printable(name: str) -> str:
    """Return a name as the API takes it, without control characters."""
    return "".join(char if char.isprintable() else " " for char in name)


def make_key(identity: str, values: Mapping[str, Any], number: int) -> str:
    """Return the idempotency key of an attempt.

    :param identity: the digest of the name
    :param values: of the request
    :param number: of attempts before it
    """
    text = json.dumps([values, number], sort_keys=True)
    return f"csi-{identity[:32]}-{hashlib.sha256(text.encode()).hexdigest()}"
