# SPDX-License-Identifier: Apache-2.0
"""Rows as drivers see them: volumes and exports; used by every verb of the manager."""

from collections.abc import Sequence
import dataclasses
import hashlib

from attachd import states
from attachd.db import attachments as db
from attachd.db import sealing
from attachd.db import volumes as volumes_db
from attachd.drivers.base import ConnectionInfo, Export, VolumeRef
from attachd.manager import qos
from attachd.manager.backends import Backend
from attachd.states import AttachmentState


def volume_ref(row: db.Row) -> VolumeRef:
    """Return a volume's row as its driver sees it."""
    return VolumeRef(row["id"], row["size_gib"], row["provider"] or {})


def export(row: db.Row) -> Export:
    """Return an attachment's row as its driver sees it where nobody is let in: without a secret.

    Nothing has to be opened for it, and a host can be shut out whose secret nobody can open.
    """
    return Export(row["id"], row["connector"] or {}, row["mode"] or "rw")


def export_to_grant(row: db.Row) -> Export:
    """Return an attachment's row as its driver sees it to let the host in.

    :raises SecretUnreadable: its secret cannot be opened
    """
    return dataclasses.replace(export(row), secret=sealing.opened(row["secret"]) or "")


def connection(row: db.Row) -> ConnectionInfo | None:
    """Return what a driver said of an attachment; None: it is not connected.

    :raises SecretUnreadable: it cannot be opened
    """
    opened: ConnectionInfo | None = sealing.opened(row["connection_info"])
    return opened


def connection_key(backend: Backend, volume: VolumeRef, granted: Export) -> str | None:
    """Return what is equal for attachments that share a connection to this backend.

    :returns: 64 hexadecimal digits, since drivers may name it as they like; None: it is alone
    """
    name = backend.driver.connection_key(volume, granted)
    return hashlib.sha256(f"{backend.host} {name}".encode()).hexdigest() if name else None


def live(rows: Sequence[db.Row]) -> list[Export]:
    """Return those of the attachments whose hosts reach the volume and should."""
    return [
        export(row)
        for row in rows
        if AttachmentState(row["state"]) in states.LIVE and row["connector"] is not None
    ]


def with_qos(connection: ConnectionInfo, volume: db.Row) -> ConnectionInfo:
    """Return a connection that tells its host what to limit the volume to, if there is a limit."""
    specs = volume["front_end_qos"]
    if specs is None:
        return connection
    told = {**connection["data"], "qos_specs": qos.scaled(specs, volume["size_gib"])}
    return {**connection, "data": told}


def grant_again(backend: Backend, row: db.Row) -> None:
    """Have a backend that forgot an attachment let its host in once more; the row stays.

    :param row: of a live attachment, as it was some time ago
    :raises BackendError: the host does not reach its volume
    :raises SecretUnreadable: nor does it, since its secret cannot be opened
    """
    with backend.lock(row["volume_id"]):
        now = db.get(row["id"], None)
        if AttachmentState(now["state"]) in states.WITH_ACCESS and now["connector"] is not None:
            volume = volumes_db.get(row["volume_id"], None)
            backend.driver.grant(volume_ref(volume), export_to_grant(now))
