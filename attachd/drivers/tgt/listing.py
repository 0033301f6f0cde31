# SPDX-License-Identifier: Apache-2.0
"""What the targets of a tgtd are to an audit; for the tgt driver."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from attachd.drivers import base
from attachd.drivers.tgt import client, names, parser

GUARDS = "attachd-guard."
"""What the names of all guards begin with, whosever they are."""

IN_SERVICE = "the unit in service"


def account(user: str) -> str:
    """Name a CHAP account as a part of an export."""
    return f"CHAP account {user}"


def exported(
    volume_id: str, mode: base.AccessMode, target: parser.Target, path: str, scsi_id: str
) -> base.BackendExport:
    """Tell what a target is.

    :param path: the file that its unit has to show
    :param scsi_id: what its unit has to be known by
    """
    unit = target.luns.get(client.LUN)
    as_told = unit and (unit.online, unit.path, unit.scsi_id, unit.read_only)
    serves = target.ready and as_told == (True, path, scsi_id, mode == "ro")
    users = [each for each in target.accounts if not each.startswith(GUARDS)]
    return base.BackendExport(
        volume_id,
        mode,
        holders=frozenset(target.initiators),
        parts=frozenset([*map(account, users), *([IN_SERVICE] if serves else [])]),
        sessions=frozenset(target.sessions),
    )


def list_exports(
    targets: Iterable[parser.Target], prefix: str, guard_prefix: str, folder: Path
) -> Iterator[base.BackendExport]:
    """Tell what the targets of one backend are.

    :param prefix: what their names begin with
    :param guard_prefix: what the names of its guards begin with
    :param folder: where its volumes' files are
    """
    reading = names.SUFFIXES["ro"]
    for target in targets:
        name = target.name.removeprefix(prefix)
        if name == target.name or is_foreign(target, guard_prefix):
            continue
        mode: base.AccessMode = "ro" if name.endswith(reading) else "rw"
        volume_id = name.removesuffix(reading)
        scsi_id = names.scsi_id(volume_id)
        yield exported(volume_id, mode, target, f"{folder / volume_id}", scsi_id)


def is_foreign(target: parser.Target, guard_prefix: str) -> bool:
    """Tell whether another backend guards a target; one that nobody guards is of whoever asks."""
    guards = [each for each in target.accounts if each.startswith(GUARDS)]
    return bool(guards) and not any(each.startswith(guard_prefix) for each in guards)


def list_orphans(users: Collection[str], targets: Collection[parser.Target]) -> list[base.Orphan]:
    """Find accounts that are bound to no target; none where several backends share a tgtd."""
    owners = {each.rpartition(".")[0] for each in users if each.startswith(GUARDS)}
    if len(owners) > 1:
        return []
    bound = {user for target in targets for user in target.accounts}
    return [
        base.Orphan(
            account(user),
            "It lets nobody in. While nobody attaches or detaches, it can be removed with "
            f"tgtadm --lld iscsi --op delete --mode account --user {user}",
        )
        for user in users
        if names.is_account(user) and user not in bound
    ]
