# SPDX-License-Identifier: Apache-2.0
"""Volumes and snapshots as attachd's API has them: read, found, listed, created and deleted."""

from collections.abc import Callable, Iterator, Mapping
import http
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar
from urllib import parse
import uuid

from attachd.platforms.api import Api
from attachd.platforms.errors import StorageError

_OLDEST_FIRST: Final = "created_at:asc,id:asc"


class Stored(Protocol):
    """A resource, as the API shows it."""

    @property
    def id(self) -> str:
        """Its UUID."""

    @property
    def status(self) -> str:
        """As the API names it."""

    @property
    def size_gib(self) -> int:
        """In GiB (2**30 bytes)."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """Its metadata, which users can change."""


T = TypeVar("T", bound=Stored)


class Page(NamedTuple, Generic[T]):
    """Some resources, and whether more follow them."""

    items: list[T]
    has_more: bool


class Resources(Generic[T]):
    """The resources of one kind in a cloud.

    Its methods raise StorageError.

    :param kind: "volume" or "snapshot"
    :param read: returns a resource, of what the API shows
    """

    def __init__(self, api: Api, kind: str, read: Callable[[Mapping[str, Any]], T]) -> None:
        self._api = api
        self._read = read
        self.kind = kind

    def describe(self, resource_id: str) -> str:
        """Return what messages call a resource, such as "Volume ID"."""
        return f"{self.kind.capitalize()} {resource_id}"

    def get(self, resource_id: str) -> T | None:
        """Return a resource; None: there is none with this id."""
        if not is_id(resource_id):
            return None
        try:
            return self._read(self._api.ask("GET", self._path(resource_id))[self.kind])
        except StorageError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def find(self, pairs: Mapping[str, str]) -> list[T]:
        """Return the resources that have some metadata, oldest first."""
        return list(self.filter(metadata=f"{dict(pairs)}"))

    def filter(self, **filters: str) -> Iterator[T]:
        """Yield the resources that match filters of the API, oldest first."""
        marker: str | None = None
        while True:
            found = self.page(0, marker, **filters)
            yield from found.items
            if not found.has_more:
                return
            marker = found.items[-1].id

    def page(self, limit: int, marker: str | None, **filters: str) -> Page[T]:
        """Return resources in a stable order.

        :param limit: 0: as many as the API returns at once
        :param marker: the id of the last resource of the page before
        """
        asked = {"limit": limit or None, "marker": marker, "sort": _OLDEST_FIRST, **filters}
        query = parse.urlencode({name: value for name, value in asked.items() if value})
        answer = self._api.ask("GET", f"/{self.kind}s/detail?{query}")
        items = [self._read(shown) for shown in answer[f"{self.kind}s"]]
        return Page(items, bool(answer.get(f"{self.kind}s_links")))

    def create(self, values: Mapping[str, Any], key: str) -> str:
        """Create a resource and return its id; the same key creates no second one."""
        headers = {"Idempotency-Key": f'"{key}"'}
        answer = self._api.ask("POST", f"/{self.kind}s", {self.kind: dict(values)}, headers)
        return str(answer[self.kind]["id"])

    def add_metadata(self, resource_id: str, pairs: Mapping[str, str]) -> None:
        """Add metadata to a resource."""
        self._api.ask("POST", f"{self._path(resource_id)}/metadata", {"metadata": dict(pairs)})

    def delete_metadata(self, resource_id: str, key: str) -> None:
        """Delete one key of the metadata of a resource; success if it is gone."""
        path = f"{self._path(resource_id)}/metadata/{parse.quote(key, safe='')}"
        try:
            self._api.ask("DELETE", path)
        except StorageError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def delete(self, resource_id: str) -> None:
        """Have a resource deleted."""
        self._api.ask("DELETE", self._path(resource_id))

    def find_failure(self, resource_id: str) -> str:
        """Return the last message to the user about a resource; "" if there is none."""
        query = parse.urlencode({"resource_uuid": resource_id, "sort": "created_at:desc"})
        found = self._api.ask("GET", f"/messages?{query}")["messages"]
        return str(found[0]["user_message"]) if found else ""

    def _path(self, resource_id: str) -> str:
        return f"/{self.kind}s/{resource_id}"


def is_id(text: str) -> bool:
    """Return whether a text has the form of the ids of resources."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
