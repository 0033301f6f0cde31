# SPDX-License-Identifier: Apache-2.0
"""Notifications about volume types: the Block Storage service's volume_type* events."""

from collections.abc import Iterator, Mapping
import contextlib
import datetime
from typing import Any, Final

from attachd import exception
from attachd.conf import CONF
from attachd.db.row_types import VolumeTypeRow
from attachd.notifications import sender

_SHOWN: Final = (
    "id", "name", "description", "is_public", "extra_specs", "qos_specs_id", "created_at",
    "updated_at",
)  # fmt: skip


def volume_type(event: str, row: VolumeTypeRow) -> None:
    """Notify that a type was changed.

    :param event: create, update or delete
    :param row: of the type, after it; the last one of a type that is deleted
    """
    if sender.enabled():
        _send(f"volume_type.{event}", row["id"], "volumeType", {"volume_types": _type(row)})


@contextlib.contextmanager
def failures_of_type(
    event: str, type_id: str | None = None, name: str | None = None
) -> Iterator[None]:
    """Notify if the block fails to change a type, with the reason."""
    try:
        yield
    except exception.AttachdError as error:
        if sender.enabled():
            payload = {"volume_types": None, "name": name, "id": type_id}
            payload["error_message"] = str(error)
            about = type_id or name or ""
            _send(f"volume_type.{event}", about, "volumeType", payload, "error")
        raise


def type_specs(event: str, row: VolumeTypeRow, **changed: Any) -> None:
    """Notify that extra specs of a type were changed.

    :param event: create, update or delete
    :param changed: ``specs``, a dict, if several were set at a time; ``id``, the name of one
    """
    if sender.enabled():
        times = {name: _plain(row.get(name)) for name in ("created_at", "updated_at")}
        payload = {"type_id": row["id"], **changed, **times}
        _send(f"volume_type_extra_specs.{event}", row["id"], "volumeTypeExtraSpecs", payload)


def type_access(event: str, type_id: str, project_id: str) -> None:
    """Notify that a project got a private type, or lost it.

    :param event: add or remove
    """
    if sender.enabled():
        payload = {"volume_type_id": type_id, "project_id": project_id}
        _send(f"volume_type_project.access.{event}", type_id, "volume_type_project", payload)


def _send(
    kind: str, about: str, service: str, payload: dict[str, Any], priority: str = "info"
) -> None:
    publisher = f"{service}.{CONF.host}"
    sender.send(sender.Event(kind, about, publisher, lambda: payload, priority))


def _type(row: VolumeTypeRow) -> dict[str, Any]:
    return {name: _plain(row.get(name)) for name in _SHOWN}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return f"{value.isoformat()}+00:00"
    return dict(value) if isinstance(value, Mapping) else value
