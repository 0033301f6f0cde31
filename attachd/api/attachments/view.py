# SPDX-License-Identifier: Apache-2.0
"""How attachments look in answers: the same from 3.27 to the latest microversion."""

from collections.abc import Iterable, Mapping
import datetime
from typing import Any, TypedDict

from attachd.objects import Attachment
from attachd.states import AttachmentState

Row = Mapping[str, Any]


class Summary(TypedDict):
    """An attachment in a list."""

    id: str
    status: str
    instance: str | None
    volume_id: str


class Detail(Summary):
    """An attachment by itself.

    :ivar attached_at: ``""`` as long as it is not; ``detached_at`` always, since a detached one
        is gone
    :ivar attach_mode: "rw", "ro", or the string "null"
    :ivar connection_info: what the driver says, flat; ``{}`` as long as there is none
    """

    attached_at: datetime.datetime | str
    detached_at: str
    attach_mode: str
    connection_info: dict[str, Any]


def summary(row: Row) -> Summary:
    """Show what every list shows."""
    return {
        "id": row["id"],
        "status": AttachmentState(row["state"]).wire,
        "instance": row["instance_uuid"],
        "volume_id": row["volume_id"],
    }


def detail(row: Row) -> Detail:
    """Show all of it."""
    return {
        **summary(row),
        "attached_at": row["attached_at"] or "",
        "detached_at": "",
        "attach_mode": row["mode"] or "null",
        "connection_info": row["connection_info"] or {},
    }


def shown(attachment: Attachment) -> dict[str, Detail]:
    """Answer one attachment."""
    return {"attachment": detail(_row(attachment, _DETAIL))}


def remaining(attachments: Iterable[Attachment]) -> dict[str, list[Summary]]:
    """Answer those that remain of a volume's."""
    return {"attachments": [summary(_row(each, _SUMMARY)) for each in attachments]}


_SUMMARY = ("id", "state", "instance_uuid", "volume_id")
_DETAIL = (*_SUMMARY, "attached_at", "mode", "connection_info")


def _row(attachment: Attachment, names: Iterable[str]) -> Row:
    return {name: getattr(attachment, name) for name in names}
