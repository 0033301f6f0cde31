# SPDX-License-Identifier: Apache-2.0
"""The calls of attachd's API that the Controller service makes; each has its limit in time."""

from collections.abc import Iterator, Mapping
import dataclasses
import functools
import http
from typing import Any, Final, NamedTuple, Self
from urllib import parse
import uuid

import grpc
from openstack import connection, exceptions

from attachd import multiattach
from attachd.client.service import FAILURES, readable_errors
from attachd.csi import calls
from attachd.csi.calls import CallError, NotReady
from attachd.csi.errors import StorageError, status_of

GIB: Final = 2**30
_VERSION: Final = "volume 3.71, attachd 1.1"
_REFUSED: Final = frozenset(
    {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN, http.HTTPStatus.NOT_FOUND}
)
_LEAST: Final = 0.1
"""Seconds of a request that is made at the end of a call."""


@dataclasses.dataclass(frozen=True)
class StoredVolume:
    """A volume, as the API shows it.

    :ivar size_gib: in GiB (2**30 bytes)
    """

    id: str
    status: str
    size_gib: int
    zone: str | None
    is_multiattach: bool
    metadata: Mapping[str, str]

    @classmethod
    def from_body(cls, shown: Mapping[str, Any]) -> Self:
        """Build it from the API's answer."""
        return cls(
            id=shown["id"],
            status=shown["status"],
            size_gib=int(shown["size"]),
            zone=shown["availability_zone"],
            is_multiattach=bool(shown["multiattach"]),
            metadata=shown["metadata"],
        )


@dataclasses.dataclass(frozen=True)
class StoredAttachment:
    """An attachment, as the API shows it.

    :ivar host: None: it is reserved for a server or by a client without a host
    :ivar condition: None unless it is attached
    """

    id: str
    volume_id: str
    status: str
    mode: str
    host: str | None
    condition: Mapping[str, Any] | None

    @classmethod
    def from_body(cls, shown: Mapping[str, Any]) -> Self:
        """Build it from the API's answer."""
        return cls(
            id=shown["id"],
            volume_id=shown["volume_id"],
            status=shown["status"],
            mode="ro" if shown["attach_mode"] == "ro" else "rw",
            host=shown["agent"] or shown["attached_host"],
            condition=shown["condition"],
        )


class Page(NamedTuple):
    """Some volumes, and whether more follow them."""

    volumes: list[StoredVolume]
    has_more: bool


class Storage:
    """The Block Storage API of a cloud.

    Its methods raise StorageError.
    """

    def __init__(self, cloud: connection.Connection) -> None:
        self._cloud = cloud

    @functools.cached_property
    def _proxy(self) -> Any:
        # It asks for a token and for versions, so it can fail as any other request.
        return self._cloud.block_storage

    def check(self) -> None:
        """Check that the API answers this user.

        :raises NotReady: it does not answer
        :raises CallError: FAILED_PRECONDITION: it refuses this user, or is not there
        """
        try:
            self._request("GET", "/attachments?limit=1")
        except FAILURES as error:
            if status_of(error) in _REFUSED:
                raise CallError(grpc.StatusCode.FAILED_PRECONDITION, f"{error}") from error
            raise NotReady(f"{error}") from error

    def volume(self, volume_id: str) -> StoredVolume | None:
        """Return a volume; None: there is none with this id."""
        if not is_id(volume_id):
            return None
        try:
            return StoredVolume.from_body(self._ask("GET", f"/volumes/{volume_id}")["volume"])
        except StorageError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def find_volumes(self, pairs: Mapping[str, str]) -> list[StoredVolume]:
        """Return the volumes that have some metadata, oldest first."""
        query = parse.urlencode({"metadata": f"{dict(pairs)}", "sort": "created_at:asc,id:asc"})
        found = self._ask("GET", f"/volumes/detail?{query}")["volumes"]
        return [StoredVolume.from_body(shown) for shown in found]

    def page(self, limit: int, marker: str | None) -> Page:
        """Return volumes in a stable order.

        :param limit: 0: as many as the API returns at once
        :param marker: the id of the last volume of the page before
        """
        asked = {"limit": limit or None, "marker": marker, "sort": "created_at:asc,id:asc"}
        query = parse.urlencode({name: value for name, value in asked.items() if value})
        answer = self._ask("GET", f"/volumes/detail?{query}")
        volumes = [StoredVolume.from_body(shown) for shown in answer["volumes"]]
        return Page(volumes, bool(answer.get("volumes_links")))

    def create_volume(self, values: Mapping[str, Any], key: str) -> str:
        """Create a volume and return its id; the same key creates no second one."""
        headers = {"Idempotency-Key": f'"{key}"'}
        answer = self._ask("POST", "/volumes", {"volume": dict(values)}, headers)
        return str(answer["volume"]["id"])

    def add_metadata(self, volume_id: str, pairs: Mapping[str, str]) -> None:
        """Add metadata to a volume."""
        self._ask("POST", f"/volumes/{volume_id}/metadata", {"metadata": dict(pairs)})

    def delete_volume(self, volume_id: str) -> None:
        """Have a volume deleted."""
        self._ask("DELETE", f"/volumes/{volume_id}")

    def extend_volume(self, volume_id: str, size_gib: int) -> None:
        """Have a volume extended."""
        self._ask("POST", f"/volumes/{volume_id}/action", {"os-extend": {"new_size": size_gib}})

    def find_failure(self, volume_id: str) -> str:
        """Return the last message to the user about a volume; "" if there is none."""
        query = parse.urlencode({"resource_uuid": volume_id, "sort": "created_at:desc"})
        found = self._ask("GET", f"/messages?{query}")["messages"]
        return str(found[0]["user_message"]) if found else ""

    def attachments(self, volume_id: str | None = None) -> Iterator[StoredAttachment]:
        """Yield the attachments of a volume, oldest first, or of all volumes."""
        asked = {"sort": "created_at:asc,id:asc", "volume_id": volume_id}
        while True:
            query = parse.urlencode({name: value for name, value in asked.items() if value})
            answer = self._ask("GET", f"/attachments/detail?{query}")
            page = answer["attachments"]
            yield from map(StoredAttachment.from_body, page)
            if not answer.get("attachments_links"):
                return
            asked["marker"] = page[-1]["id"]

    def is_type_shared(self, name: str | None) -> bool:
        """Return whether volumes of a type can be attached to several hosts.

        :param name: or id, of the type; None: the default
        :raises CallError: INVALID_ARGUMENT: there is none
        """
        for shown in self._types(name):
            if name in {None, shown["id"], shown["name"]}:
                return multiattach.parse(shown.get("extra_specs", {})).multiattach
        if name is None:
            return False
        raise CallError(
            grpc.StatusCode.INVALID_ARGUMENT, f"The parameter type names no volume type: {name}"
        )

    def _types(self, name: str | None) -> list[Any]:
        if name is not None:
            return list(self._ask("GET", "/types")["volume_types"])
        try:
            return [self._ask("GET", "/types/default")["volume_type"]]
        except StorageError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return []
            raise

    def pools(self, type_name: str | None) -> list[Mapping[str, Any]]:
        """Return the pools of the backends that are up; for administrators.

        :param type_name: only those that can serve this volume type
        """
        asked = {"detail": "true", "volume_type": type_name}
        query = parse.urlencode({name: value for name, value in asked.items() if value})
        return list(self._ask("GET", f"/scheduler-stats/get_pools?{query}")["pools"])

    def zones(self) -> dict[str, str]:
        """Return the zones of backends by ``host@backend``; for administrators."""
        services = self._ask("GET", "/os-services")["services"]
        return {service["host"]: service["zone"] for service in services}

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        try:
            return self._request(method, path, body, headers)
        except FAILURES as error:
            raise StorageError(error) from error

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        call = calls.current()
        with readable_errors():
            answer = self._proxy.request(
                path,
                method,
                json=body,
                headers={"OpenStack-API-Version": _VERSION, **(headers or {})},
                global_request_id=call.request_id,
                timeout=max(call.remaining, _LEAST),
                raise_exc=False,
            )
            exceptions.raise_from_response(answer)
        return answer.json() if answer.content else None


def is_id(text: str) -> bool:
    """Return whether a text has the form of the ids of volumes."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
