# SPDX-License-Identifier: Apache-2.0
"""Snapshots that the caller may act on."""

from typing import NamedTuple

from attachd.context import RequestContext
from attachd.db.row_types import SnapshotRow, SnapshotWithVolumeRow
from attachd.db.volumes import snapshot_store
from attachd.objects import scope


class _Owner(NamedTuple):
    """The owner of a snapshot, as the target of policy."""

    project_id: str
    user_id: str | None


def get(ctx: RequestContext, snapshot_id: str, rule: str) -> SnapshotWithVolumeRow:
    """Load one snapshot.

    :param rule: the policy rule that must allow the caller to act on it
    :raises SnapshotNotFound: the caller's project has none
    :raises Forbidden: the rule denies it
    """
    row = snapshot_store.get(snapshot_id, scope(ctx))
    authorize(ctx, rule, row)
    return row


def authorize(ctx: RequestContext, rule: str, row: SnapshotRow) -> None:
    """Check that policy allows the caller to act on a snapshot; raises Forbidden."""
    ctx.authorize(rule, _Owner(row["project_id"], row["user_id"]))
