# SPDX-License-Identifier: Apache-2.0
"""How attachments look in answers: the same from 3.27 to the latest microversion."""

from collections.abc import Iterable, Mapping
import datetime
from typing import Any, TypedDict

from attachd import rpcapi
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
        "connection_info": _connection_info(row),
    }


def _connection_info(row: Row) -> dict[str, Any]:
    """Flatten what the driver said, and add what it may have left unsaid."""
    stored = row["connection_info"]
    if not stored:
        return {}
    return {
        "qos_specs": None,
        "access_mode": row["mode"] or "rw",
        "encrypted": False,
        "cacheable": False,
        **stored["data"],
        "driver_volume_type": stored["driver_volume_type"],
        "attachment_id": row["id"],
        "enforce_multipath": (row["connector"] or {}).get("enforce_multipath", False),
    }


def shown(attachment: Attachment) -> dict[str, Detail]:
    """Answer one attachment."""
    return {"attachment": detail(_row(attachment, _DETAIL))}


def connected(
    attachment: Attachment, answer: rpcapi.Connected, connector: Mapping[str, Any]
) -> dict[str, Detail]:
    """Answer an attachment as it was before it was connected, and the connection."""
    row = _row(attachment, _DETAIL)
    now = {**row, **answer, "connector": connector}
    return {"attachment": {**detail(row), "connection_info": _connection_info(now)}}


def remaining(attachments: Iterable[Attachment]) -> dict[str, list[Summary]]:
    """Answer those that remain of a volume's."""
    return {"attachments": [summary(_row(each, _SUMMARY)) for each in attachments]}


def listed(rows: Iterable[Row]) -> dict[str, list[Summary]]:
    """Answer a list in short."""
    return {"attachments": [summary(row) for row in rows]}


def listed_in_full(rows: Iterable[Row]) -> dict[str, list[Detail]]:
    """Answer a list in full."""
    return {"attachments": [detail(row) for row in rows]}


_SUMMARY = ("id", "state", "instance_uuid", "volume_id")
_DETAIL = (*_SUMMARY, "attached_at", "mode", "connection_info", "connector")


def _row(attachment: Attachment, names: Iterable[str]) -> Row:
    return {name: getattr(attachment, name) for name in names}
