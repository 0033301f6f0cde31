# SPDX-License-Identifier: Apache-2.0
"""Targets of a tgtd as exports for an audit; for the tgt driver."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from attachd.drivers import base
from attachd.drivers.tgt import client, names, parser

SENTINEL_PREFIX = "attachd-sentinel."
"""Prefix of the names of all sentinels, of all backends."""

IN_SERVICE = "the unit in service"


def account(user: str) -> str:
    """Return the name of a CHAP account as a part of an export."""
    return f"CHAP account {user}"


def exported(
    volume_id: str, mode: base.AccessMode, target: parser.Target, path: str, scsi_id: str
) -> base.BackendExport:
    """Return a target as an export.

    :param path: the file that its unit has to show
    :param scsi_id: the id that its unit has to have
    """
    unit = target.luns.get(client.LUN)
    settings = unit and (unit.online, unit.path, unit.scsi_id, unit.read_only)
    serves = target.ready and settings == (True, path, scsi_id, mode == "ro")
    users = [name for name in target.accounts if not name.startswith(SENTINEL_PREFIX)]
    return base.BackendExport(
        volume_id,
        mode,
        holders=frozenset(target.initiators),
        parts=frozenset([*map(account, users), *([IN_SERVICE] if serves else [])]),
        sessions=frozenset(target.sessions),
    )


def list_exports(
    targets: Iterable[parser.Target], prefix: str, sentinel_prefix: str, folder: Path
) -> Iterator[base.BackendExport]:
    """Return the targets of one backend as exports.

    :param prefix: of their names
    :param sentinel_prefix: of the names of its sentinels
    :param folder: of its volumes' files
    """
    reading = names.SUFFIXES["ro"]
    for target in targets:
        name = target.name.removeprefix(prefix)
        if name == target.name or is_foreign(target, sentinel_prefix):
            continue
        mode: base.AccessMode = "ro" if name.endswith(reading) else "rw"
        volume_id = name.removesuffix(reading)
        scsi_id = names.scsi_id(volume_id)
        yield exported(volume_id, mode, target, f"{folder / volume_id}", scsi_id)


def is_foreign(target: parser.Target, sentinel_prefix: str) -> bool:
    """Return whether a target has another backend's sentinel; one without is the caller's."""
    sentinels = [name for name in target.accounts if name.startswith(SENTINEL_PREFIX)]
    return bool(sentinels) and not any(
        sentinel.startswith(sentinel_prefix) for sentinel in sentinels
    )


def list_orphans(users: Collection[str], targets: Collection[parser.Target]) -> list[base.Orphan]:
    """Find accounts that are bound to no target; none if several backends share a tgtd."""
    owners = {item.rpartition(".")[0] for item in users if item.startswith(SENTINEL_PREFIX)}
    if len(owners) > 1:
        return []
    bound = {user for target in targets for user in target.accounts}
    return [
        base.Orphan(
            account(user),
            "It grants no access. While no attach or detach runs, it can be removed with "
            f"tgtadm --lld iscsi --op delete --mode account --user {user}",
        )
        for user in users
        if names.is_account(user) and user not in bound
    ]
