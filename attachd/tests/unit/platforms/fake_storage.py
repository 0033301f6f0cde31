# SPDX-License-Identifier: Apache-2.0
"""A stand-in of the API, whose volumes a test changes."""

from collections.abc import Callable
import dataclasses
import datetime
import json
from typing import Any
import uuid

from openstack import exceptions
import requests

from attachd.platforms.errors import StorageError
from attachd.platforms.storage import Page, StoredAttachment, StoredVolume


def refusal(status: int, reason: str = "", message: str = "No.", **headers: str) -> StorageError:
    """Return the error for an answer of the API."""
    response = requests.Response()
    response.status_code = status
    response.headers.update({"Content-Type": "application/json", **headers})
    fault = {"code": status, "message": message, "reason_code": f"attachd.{reason}"}
    response._content = json.dumps({"fault": fault}).encode()
    response.request = requests.Request("GET", "http://here/v3").prepare()
    try:
        exceptions.raise_from_response(response)
    except exceptions.HttpException as error:
        error.message, error.url = message, None
        return StorageError(error)
    raise AssertionError(status)


def make_volume(**values: Any) -> StoredVolume:
    """Return a volume."""
    known: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "name": "",
        "status": "available",
        "size_gib": 1,
        "zone": "nova",
        "type_names": frozenset(),
        "is_multiattach": False,
        "metadata": {},
        "backend": "here@file#file",
    }
    return StoredVolume(**{**known, **values})


def make_attachment(volume_id: str, node: str | None = "one", **values: Any) -> StoredAttachment:
    """Return an attachment."""
    known: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "volume_id": volume_id,
        "status": "attached",
        "mode": "rw",
        "node": node,
        "host": node,
        "created_at": datetime.datetime.now(datetime.UTC),
        "condition": None,
    }
    return StoredAttachment(**{**known, **values})


class FakeStorage:
    """The volumes and attachments of an API.

    :ivar volumes: by id
    :ivar statuses: that a volume takes, one with each read
    :ivar failures: of the next requests, in order; None: it succeeds
    :ivar on_attach: is called when a volume is attached, before it is
    :ivar results: of fencing, by the id of the attachment
    :ivar keys: idempotency keys, and the ids of what was created
    """

    def __init__(self) -> None:
        self.volumes: dict[str, StoredVolume] = {}
        self.statuses: list[str | None] = []
        self.failures: list[StorageError | None] = []
        self.keys: dict[str, str] = {}
        self.requested: list[tuple[str, Any]] = []
        self.shared_types: set[str | None] = set()
        self.pool_list: list[Any] = []
        self.zone_map: dict[str, str] = {}
        self.attached: list[StoredAttachment] = []
        self.on_attach: Callable[[], object] = lambda: None
        self.fencing_kind = "proved"
        self.results: dict[str, str] = {}

    def add(self, **values: Any) -> StoredVolume:
        """Add a volume."""
        made = make_volume(**values)
        self.volumes[made.id] = made
        return made

    def change(self, volume_id: str, **values: Any) -> None:
        """Change a volume."""
        self.volumes[volume_id] = dataclasses.replace(self.volumes[volume_id], **values)

    def _act(self, name: str, *arguments: Any) -> None:
        self.requested.append((name, arguments))
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure

    def volume(self, volume_id: str) -> StoredVolume | None:
        if volume_id in self.volumes and self.statuses:
            status = self.statuses.pop(0)
            if status is None:
                del self.volumes[volume_id]
            else:
                self.change(volume_id, status=status)
        return self.volumes.get(volume_id)

    def find_volumes(self, pairs: dict[str, str]) -> list[StoredVolume]:
        return [
            volume for volume in self.volumes.values() if pairs.items() <= volume.metadata.items()
        ]

    def find_named(self, name: str) -> list[StoredVolume]:
        return [volume for volume in self.volumes.values() if name in {volume.name, volume.id}]

    def page(self, limit: int, marker: str | None) -> Page:
        self._act("page", limit, marker)
        return Page(list(self.volumes.values()), False)

    def create_volume(self, values: dict[str, Any], key: str) -> str:
        self._act("create", key)
        if key in self.keys:
            if self.keys[key] not in self.volumes:
                raise refusal(404, "key_resource_gone")
            return self.keys[key]
        made = self.add(
            name=values["name"],
            size_gib=values["size"],
            type_names=frozenset(filter(None, [values.get("volume_type")])),
            metadata=values["metadata"],
            status="creating",
            zone=values.get("availability_zone", "nova"),
        )
        self.keys[key] = made.id
        return made.id

    def add_metadata(self, volume_id: str, pairs: dict[str, str]) -> None:
        self._act("metadata", pairs)
        self.change(volume_id, metadata={**self.volumes[volume_id].metadata, **pairs})

    def delete_metadata(self, volume_id: str, key: str) -> None:
        self._act("delete metadata", key)
        left = {**self.volumes[volume_id].metadata}
        left.pop(key, None)
        self.change(volume_id, metadata=left)

    def delete_volume(self, volume_id: str) -> None:
        self._act("delete", volume_id)
        del self.volumes[volume_id]

    def extend_volume(self, volume_id: str, size_gib: int) -> None:
        self._act("extend", size_gib)
        self.change(volume_id, size_gib=size_gib)

    def find_failure(self, _volume_id: str) -> str:
        return "The disk is full."

    def attachments(
        self, volume_id: str | None = None, node: str | None = None
    ) -> list[StoredAttachment]:
        return [
            item
            for item in self.attached
            if volume_id in {None, item.volume_id} and node in {None, item.node}
        ]

    def attach(self, volume_id: str, node: str, mode: str) -> StoredAttachment:
        self.on_attach()
        self._act("attach", volume_id, node, mode)
        made = make_attachment(volume_id, node, mode=mode)
        self.attached.append(made)
        return made

    def detach(self, attachment_id: str) -> None:
        self._act("detach", attachment_id)
        self.attached = [item for item in self.attached if item.id != attachment_id]

    def fencing(self, _volume: StoredVolume) -> str:
        return self.fencing_kind

    def fence(self, node: str, reason: str) -> list[Any]:
        self._act("fence", node)
        return [
            {
                "attachment_id": item.id,
                "result": self.results.get(item.id, "proved"),
                "reason": reason,
            }
            for item in self.attached
            if item.node == node
        ]

    def is_type_shared(self, name: str | None) -> bool:
        return name in self.shared_types

    def pools(self, _type_name: str | None) -> list[Any]:
        self._act("pools")
        return self.pool_list

    def zones(self) -> dict[str, str]:
        return self.zone_map
