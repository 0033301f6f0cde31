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
from attachd.platforms.resources import Page
from attachd.platforms.storage import StoredAttachment, StoredSnapshot, StoredVolume


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


def make_snapshot(**values: Any) -> StoredSnapshot:
    """Return a snapshot."""
    known: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "status": "available",
        "volume_id": str(uuid.uuid4()),
        "size_gib": 1,
        "created_at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "metadata": {},
    }
    return StoredSnapshot(**{**known, **values})


class FakeApi:
    """An API with prepared answers; an error is raised.

    :ivar asked: method, path and body of the requests
    :ivar headers: of the last request
    """

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.headers: Any = None
        self.asked: list[tuple[str, str, Any]] = []

    def ask(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        self.asked.append((method, path, body))
        self.headers = headers
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class FakeResources(dict[str, Any]):
    """The volumes or the snapshots of an API, by id.

    :param kind: "volume" or "snapshot"
    :param storage: that they belong to
    :param make: returns one, of the body of a request
    """

    def __init__(self, kind: str, storage: "FakeStorage", make: Callable[..., Any]) -> None:
        super().__init__()
        self.kind = kind
        self._storage = storage
        self._make = make

    def add(self, **values: Any) -> Any:
        """Add one."""
        made = self._make(**values)
        self[made.id] = made
        return made

    def change(self, resource_id: str, **values: Any) -> None:
        """Change one."""
        self[resource_id] = dataclasses.replace(self[resource_id], **values)

    def describe(self, resource_id: str) -> str:
        return f"{self.kind.capitalize()} {resource_id}"

    def get(self, resource_id: str, _default: Any = None) -> Any:
        statuses = self._storage.statuses
        if resource_id in self and statuses:
            status = statuses.pop(0)
            if status is None:
                del self[resource_id]
            else:
                self.change(resource_id, status=status)
        return super().get(resource_id)

    def find(self, pairs: dict[str, str]) -> list[Any]:
        return [found for found in self.values() if pairs.items() <= found.metadata.items()]

    def page(self, limit: int, marker: str | None, **filters: str) -> Page[Any]:
        self._storage.act("page", limit, marker, *filters.items())
        return Page(list(self.values()), False)

    def create(self, values: dict[str, Any], key: str) -> str:
        keys = self._storage.keys
        self._storage.act("create", key)
        if key in keys:
            if keys[key] not in self:
                raise refusal(404, "key_resource_gone")
            return keys[key]
        made = self.add(**self._storage.read(self.kind, values), status="creating")
        keys[key] = made.id
        return str(made.id)

    def add_metadata(self, resource_id: str, pairs: dict[str, str]) -> None:
        self._storage.act("metadata", pairs)
        self.change(resource_id, metadata={**self[resource_id].metadata, **pairs})

    def delete_metadata(self, resource_id: str, key: str) -> None:
        self._storage.act("delete metadata", key)
        left = {**self[resource_id].metadata}
        left.pop(key, None)
        self.change(resource_id, metadata=left)

    def delete(self, resource_id: str) -> None:
        self._storage.act("delete", resource_id)
        del self[resource_id]

    def find_failure(self, _resource_id: str) -> str:
        return "The disk is full."


class FakeStorage:
    """The volumes, snapshots and attachments of an API.

    :ivar volumes: by id
    :ivar snapshots: by id
    :ivar statuses: that a volume or a snapshot takes, one with each read
    :ivar failures: of the next requests, in order; None: it succeeds
    :ivar on_attach: is called when a volume is attached, before it is
    :ivar results: of fencing, by the id of the attachment
    :ivar keys: idempotency keys, and the ids of what was created
    """

    def __init__(self) -> None:
        self.volumes = FakeResources("volume", self, make_volume)
        self.snapshots = FakeResources("snapshot", self, make_snapshot)
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
        made: StoredVolume = self.volumes.add(**values)
        return made

    def change(self, volume_id: str, **values: Any) -> None:
        """Change a volume."""
        self.volumes.change(volume_id, **values)

    @staticmethod
    def read(kind: str, values: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a volume or a snapshot, of the body of a request."""
        if kind == "snapshot":
            return {"volume_id": values["volume_id"], "metadata": values["metadata"]}
        return {
            "name": values["name"],
            "size_gib": values["size"],
            "type_names": frozenset(filter(None, [values.get("volume_type")])),
            "metadata": values["metadata"],
            "zone": values.get("availability_zone", "nova"),
        }

    def act(self, name: str, *arguments: Any) -> None:
        """Record a request, and fail it if that is planned."""
        self.requested.append((name, arguments))
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure

    def find_named(self, name: str) -> list[StoredVolume]:
        return [volume for volume in self.volumes.values() if name in {volume.name, volume.id}]

    def extend_volume(self, volume_id: str, size_gib: int) -> None:
        self.act("extend", size_gib)
        self.change(volume_id, size_gib=size_gib)

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
        self.act("attach", volume_id, node, mode)
        made = make_attachment(volume_id, node, mode=mode)
        self.attached.append(made)
        return made

    def detach(self, attachment_id: str) -> None:
        self.act("detach", attachment_id)
        self.attached = [item for item in self.attached if item.id != attachment_id]

    def fencing(self, _volume: StoredVolume) -> str:
        return self.fencing_kind

    def fence(self, node: str, reason: str) -> list[Any]:
        self.act("fence", node)
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
        self.act("pools")
        return self.pool_list

    def zones(self) -> dict[str, str]:
        return self.zone_map
