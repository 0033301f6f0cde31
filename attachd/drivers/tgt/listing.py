# SPDX-License-Identifier: Apache-2.0
"""Targets of a tgtd as exports for an audit; for the tgt driver."""

from collections.abc import Collection, Iterable
from pathlib import Path

from attachd.drivers import base, iscsi
from attachd.drivers.tgt import client, parser

SENTINEL_PREFIX = "attachd-sentinel."
"""Prefix of the names of all sentinels, of all backends."""

IN_SERVICE = "the unit in service"


def account(user: str) -> str:
    """Return the name of a CHAP account as a part of an export."""
    return f"CHAP account {user}"


def exported(
    volume_id: str,
    mode: base.AccessMode,
    target: parser.Target,
    path: str,
    scsi_id: str,
    attachment_id: str = "",
) -> base.BackendExport:
    """Return a target as an export.

    :param mode: of a target that exports share; the unit of the others has the mode
    :param path: the file that its unit has to show
    :param scsi_id: the id that its unit has to have
    :param attachment_id: of the export whose own target it is
    """
    unit = target.luns.get(client.LUN)
    if attachment_id:
        mode = "rw" if unit and not unit.read_only else "ro"
    settings = unit and (unit.online, unit.path, unit.scsi_id, unit.read_only)
    serves = target.ready and settings == (True, path, scsi_id, mode == "ro")
    part = iscsi.own_part(attachment_id) if attachment_id else IN_SERVICE
    users = [name for name in target.accounts if not name.startswith(SENTINEL_PREFIX)]
    return base.BackendExport(
        volume_id,
        mode,
        holders=iscsi.holders(target.initiators, attachment_id),
        parts=iscsi.shown_part(part, attachment_id, serves=serves) | set(map(account, users)),
        sessions=iscsi.holders(target.sessions, attachment_id),
    )


def list_exports(
    targets: Iterable[parser.Target], prefix: str, sentinel_prefix: str, folder: Path
) -> list[base.BackendExport]:
    """Return the targets of one backend as exports.

    :param prefix: of their names
    :param sentinel_prefix: of the names of its sentinels
    :param folder: of its volumes' files
    """
    found = []
    for target in targets:
        name = target.name.removeprefix(prefix)
        if name == target.name or is_foreign(target, sentinel_prefix):
            continue
        volume_id, mode, attachment_id = iscsi.parse_target(name)
        path, scsi_id = f"{folder / volume_id}", iscsi.scsi_id(volume_id)
        found.append(exported(volume_id, mode, target, path, scsi_id, attachment_id))
    return base.merge_exports(found)


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
        if iscsi.is_account(user) and user not in bound
    ]
