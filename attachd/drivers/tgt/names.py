# SPDX-License-Identifier: Apache-2.0
"""Names of targets, accounts, hosts and units; for the tgt driver."""

from collections.abc import Sequence
import hashlib
import re
from typing import Final
import uuid

from attachd.drivers import base

SUFFIXES: Final[dict[base.AccessMode, str]] = {"rw": "", "ro": "-ro"}
"""Suffixes of the names of targets, by mode."""

_INITIATOR = re.compile(r"(iqn|eui|naa)\.[\x21-\x7e]{1,219}")
_ACCOUNTS = uuid.UUID("2d0c5e0c-6d9b-4f0e-8a53-0f8e6a3c1b74")
_HASHED = 5


def target(prefix: str, volume_id: str, mode: base.AccessMode) -> str:
    """Return the name of a volume's target; the prefix is an option."""
    return f"{prefix}{volume_id}{SUFFIXES[mode]}"


def account(target_name: str, initiator_name: str) -> str:
    """Return the CHAP user of an initiator at a target: it logs in once for all its exports."""
    return str(uuid.uuid5(_ACCOUNTS, f"{target_name} {initiator_name}"))


def is_account(user: str) -> bool:
    """Return whether a CHAP user may be a result of :func:`account`."""
    try:
        return uuid.UUID(user).version == _HASHED
    except ValueError:
        return False


def initiator(export: base.Export) -> str:
    """Return the iSCSI name in the connector, or "" if there is no valid one."""
    name = export.connector.get("initiator")
    return str(name) if is_initiator(name) else ""


def is_initiator(name: object) -> bool:
    """Return whether a connector's value is an iSCSI name."""
    return isinstance(name, str) and _INITIATOR.fullmatch(name) is not None


def initiators(exports: Sequence[base.Export], mode: base.AccessMode) -> set[str]:
    """Return the iSCSI names of all exports in a mode that have one."""
    return {initiator(export) for export in exports if export.mode == mode} - {""}


def scsi_id(volume_id: str) -> str:
    """Return 32 hexadecimal digits; tgtd makes a world-wide name of the last 31 ("naa.6...").

    They never change: a host recognizes the volume by them over any connection.
    """
    try:
        return uuid.UUID(volume_id).hex
    except ValueError:
        return hashlib.sha256(volume_id.encode()).hexdigest()[:32]
