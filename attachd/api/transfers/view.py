# SPDX-License-Identifier: Apache-2.0
"""Transfers as answers show them, by microversion."""

import datetime
from typing import Annotated, Any, Final, NotRequired, TypedDict

from attachd.api import endpoint
from attachd.api import microversions as mv
from attachd.db.row_types import TransferRow

_LINKED: Final = "os-volume-transfer"
"""The collection in links, in all microversions."""


class TransferSummary(TypedDict):
    """A transfer in a list without details, and in the answer to its acceptance."""

    id: str
    volume_id: str
    name: str | None
    links: list[endpoint.Link]


class TransferDetail(TransferSummary):
    """A transfer.

    :ivar no_snapshots: whether the snapshots of the volume stay in its project
    :ivar source_project_id: of the volume
    :ivar destination_project_id: always null: a transfer ends when it is accepted
    :ivar accepted: always false
    """

    created_at: datetime.datetime
    no_snapshots: Annotated[bool, mv.TRANSFER_WITH_SNAPSHOTS]
    source_project_id: Annotated[str, mv.TRANSFER_WITH_HISTORY]
    destination_project_id: Annotated[str | None, mv.TRANSFER_WITH_HISTORY]
    accepted: Annotated[bool, mv.TRANSFER_WITH_HISTORY]


class NewTransfer(TransferDetail):
    """A transfer in the answer to its creation.

    :ivar auth_key: by which it is accepted; no other answer has it
    """

    auth_key: str


LIST_EXTRAS: Final = {"transfers_links": NotRequired[list[endpoint.Link]]}
"""What a list may have besides the transfers."""


def summary(row: TransferRow, links: endpoint.Links) -> dict[str, Any]:
    """Return a transfer without details."""
    return {
        "id": row["id"],
        "volume_id": row["volume_id"],
        "name": row["name"],
        "links": links.build(_LINKED, row["id"]),
    }


def detail(row: TransferRow, links: endpoint.Links, version: mv.Version) -> dict[str, Any]:
    """Return all fields of a transfer but its key."""
    shown = {**summary(row, links), "created_at": row["created_at"]}
    if version >= mv.TRANSFER_WITH_SNAPSHOTS:
        shown["no_snapshots"] = row["no_snapshots"]
    if version >= mv.TRANSFER_WITH_HISTORY:
        shown["source_project_id"] = row["project_id"]
        shown["destination_project_id"] = None
        shown["accepted"] = False
    return shown
