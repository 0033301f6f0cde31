# SPDX-License-Identifier: Apache-2.0
"""Snapshots as answers show them, by microversion."""

import dataclasses
import datetime
from typing import Annotated, Any, Final, NotRequired, Self, TypedDict

from attachd.api import endpoint, policy_rules
from attachd.api import microversions as mv
from attachd.api.snapshots import policy
from attachd.context import RequestContext
from attachd.db.row_types import SnapshotWithVolumeRow

_ALIAS: Final = "os-extended-snapshot-attributes"


class SnapshotSummary(TypedDict):
    """A snapshot in a list without details.

    :ivar size: in GiB, of its volume when it was requested
    """

    id: str
    name: str | None
    description: str | None
    volume_id: str
    status: str
    size: int
    created_at: datetime.datetime
    updated_at: datetime.datetime | None
    metadata: dict[str, str]


class SnapshotDetail(SnapshotSummary):
    """A snapshot.

    :ivar group_snapshot_id: always null: there are no groups
    """

    group_snapshot_id: Annotated[None, mv.GROUP_SNAPSHOTS]
    user_id: Annotated[str | None, mv.SNAPSHOT_LIST_USER_ID]
    consumes_quota: Annotated[bool, mv.USE_QUOTA]


_Extended = TypedDict(
    "_Extended",
    {
        "os-extended-snapshot-attributes:project_id": NotRequired[str],
        "os-extended-snapshot-attributes:progress": NotRequired[str],
    },
)


class ExtendedDetail(SnapshotDetail, _Extended):
    """A snapshot with the fields that depend on policy."""


LIST_EXTRAS: Final = {
    "snapshots_links": NotRequired[list[endpoint.Link]],
    "count": NotRequired[Annotated[int, mv.SUPPORT_COUNT_INFO]],
}
"""What a list may have besides the snapshots."""


@dataclasses.dataclass(frozen=True)
class Viewer:
    """The caller of a request: what they may see, in which microversion.

    :ivar extended: whether the extended attributes are shown
    """

    version: mv.Version
    extended: bool

    @classmethod
    def from_context(cls, ctx: RequestContext, version: mv.Version) -> Self:
        """Ask policy once, for all snapshots of an answer."""
        target = {"project_id": ctx.project_id, "user_id": ctx.user_id}
        return cls(version, policy_rules.allows(ctx, policy.EXTENDED_ATTRIBUTES, target))


def summary(row: SnapshotWithVolumeRow) -> dict[str, Any]:
    """Return a snapshot in a list without details."""
    return {
        "id": row["id"],
        "name": row["name"],
        "description": row["description"],
        "volume_id": row["volume_id"],
        "status": row["state"],
        "size": row["size_gib"],
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
        "metadata": row["metadata"],
    }


def plain(row: SnapshotWithVolumeRow, version: mv.Version) -> dict[str, Any]:
    """Return a snapshot as in the answers to its creation and update."""
    shown = summary(row)
    if version >= mv.GROUP_SNAPSHOTS:
        shown["group_snapshot_id"] = None
    if version >= mv.SNAPSHOT_LIST_USER_ID:
        shown["user_id"] = row["user_id"]
    if version >= mv.USE_QUOTA:
        shown["consumes_quota"] = True
    return shown


def detail(row: SnapshotWithVolumeRow, viewer: Viewer) -> dict[str, Any]:
    """Return all fields of a snapshot."""
    shown = plain(row, viewer.version)
    if viewer.extended:
        shown[f"{_ALIAS}:project_id"] = row["project_id"]
        shown[f"{_ALIAS}:progress"] = f"{row['progress']}%"
    return shown
