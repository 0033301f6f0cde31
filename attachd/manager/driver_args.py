# SPDX-License-Identifier: Apache-2.0
"""Rows as arguments of drivers: volumes, exports and QoS specs."""

from collections.abc import Mapping, Sequence
import dataclasses
import hashlib
import itertools
from typing import Final

from attachd import states
from attachd.db.attachments import store as db
from attachd.db.secrets import encryption
from attachd.drivers.base import ConnectionInfo, Export, VolumeRef
from attachd.manager.backends import Backend
from attachd.states import AttachmentState

_LIMITS: Final = tuple(
    f"{operation}_{unit}_sec"
    for operation, unit in itertools.product(("read", "write", "total"), ("iops", "bytes"))
)

Specs = dict[str, str | int | None]


def volume_ref(row: db.Row) -> VolumeRef:
    """Return a volume's row as its driver takes it."""
    return VolumeRef(row["id"], row["size_gib"], row["provider"] or {})


def export(row: db.Row) -> Export:
    """Return an attachment's row as its driver takes it for calls that grant nothing.

    It has no secret, so nothing has to be decrypted, and access can be revoked even if the secret
    cannot be decrypted.
    """
    return Export(row["id"], row["connector"] or {}, row["mode"] or "rw")


def export_with_secret(row: db.Row) -> Export:
    """Return an attachment's row as its driver takes it for a grant.

    :raises SecretUnreadable: its secret cannot be decrypted
    """
    return dataclasses.replace(export(row), secret=encryption.decrypted(row["secret"]) or "")


def connection_info(row: db.Row) -> ConnectionInfo | None:
    """Return the connection of an attachment as its driver has returned it; None: not connected.

    :raises SecretUnreadable: it cannot be decrypted
    """
    decrypted: ConnectionInfo | None = encryption.decrypted(row["connection_info"])
    return decrypted


def connection_key(backend: Backend, volume: VolumeRef, granted: Export) -> str | None:
    """Return a key that is equal for attachments that share a connection to this backend.

    :returns: 64 hexadecimal digits, since drivers may name it as they like; None: the connection
        is not shared
    """
    name = backend.driver.connection_key(volume, granted)
    return hashlib.sha256(f"{backend.host} {name}".encode()).hexdigest() if name else None


def live_exports(rows: Sequence[db.Row]) -> list[Export]:
    """Return the exports of those attachments whose hosts reach the volume and should."""
    return [
        export(row)
        for row in rows
        if AttachmentState(row["state"]) in states.LIVE and row["connector"] is not None
    ]


def with_qos(connection: ConnectionInfo, volume: db.Row) -> ConnectionInfo:
    """Return a connection with the limits that its host has to set for the volume, if any."""
    specs = volume["front_end_qos"]
    if specs is None:
        return connection
    data = {**connection["data"], "qos_specs": scale_qos(specs, volume["size_gib"])}
    return {**connection, "data": data}


def scale_qos(specs: Mapping[str, str | None], size_gib: int) -> Specs:
    """Convert limits per GiB into limits of a volume; all other keys stay as they are.

    ``total_iops_sec_per_gb`` becomes ``total_iops_sec``, not less than
    ``total_iops_sec_per_gb_min`` and not more than ``total_iops_sec_max``.

    Source: the Block Storage service's administration guide, basic volume quality of service.
    """
    scaled: Specs = dict(specs)
    for limit in _LIMITS:
        per_gib = _number(scaled, f"{limit}_per_gb")
        if per_gib is None:
            continue
        value = per_gib * size_gib
        least, most = _number(scaled, f"{limit}_per_gb_min"), _number(scaled, f"{limit}_max")
        value = value if least is None else max(value, least)
        scaled[limit] = value if most is None else min(value, most)
        for key in (f"{limit}_per_gb", f"{limit}_per_gb_min", f"{limit}_max"):
            scaled.pop(key, None)
    return scaled


def _number(specs: Mapping[str, str | int | None], key: str) -> int | None:
    text = str(specs.get(key))
    return int(text) if text.isascii() and text.isdecimal() else None
