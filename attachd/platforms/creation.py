# SPDX-License-Identifier: Apache-2.0
"""Creation by name: any number of calls, in any number of processes, make one volume or snapshot.

A resource has its identity in its metadata, by which later calls find it.  The request that
creates it has an idempotency key made of the same identity, so of several that find none only one
creates it.  The API stores refusals for a key as well: another attempt has a key with another
number.  All processes count from 0, so they agree on the numbers.

Calls with the same name and different parameters at the same time, which platforms do not
make, may create two resources; later calls then return the older one.
"""

import abc
from collections.abc import Mapping, Sequence
import http
import logging
import threading
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import cachetools

from attachd.platforms import calls, deletion, waiting
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.errors import StorageError, is_about_size, is_about_zone
from attachd.platforms.resources import Resources, Stored, T
from attachd.platforms.storage import Storage, StoredVolume
from attachd.platforms.waiting import BEING_CREATED, BEING_DELETED

LOG = logging.getLogger(__name__)

_REMEMBERED: Final = 10_000
_NO_BACKEND: Final = frozenset({"no_valid_backend", "capability_missing"})
_IN_PROGRESS: Final = BEING_CREATED | {"restoring"}
"""Statuses of sources that can be used soon."""


class Source(NamedTuple):
    """The volume or the snapshot that a new volume gets its data of.

    :ivar kind: "volume" or "snapshot"
    """

    kind: str
    id: str


class New(Protocol):
    """A volume or a snapshot that is to be created."""

    @property
    def name(self) -> str:
        """The name that messages have."""

    @property
    def identity(self) -> Mapping[str, str]:
        """The metadata by which it is found, without the parameters of its creation."""

    @property
    def created_key(self) -> str:
        """The key of the metadata of resources that exist for their caller.

        One in error without it has no data.
        """

    def key(self, values: Mapping[str, Any], number: int) -> str:
        """Return the idempotency key of an attempt.

        :param values: of the request
        :param number: of attempts before it that created nothing, or what is deleted
        """


class NewVolume(New, Protocol):
    """A volume that is to be created."""

    @property
    def type_name(self) -> str | None:
        """Name or id of the volume type; None: the default."""

    @property
    def source(self) -> Source | None:
        """What it gets its data of; None: it is empty."""

    @property
    def zones(self) -> Sequence[str]:
        """Those that are possible, the preferred first; empty: any."""

    def is_source(self, source: Stored) -> bool:
        """Return whether a volume or a snapshot can be its source, and not that of others."""

    def check_type(self, *, is_shared: bool) -> None:
        """Check that a type is possible; raises CallError.

        :param is_shared: whether its volumes can be attached to several hosts
        """

    def choose_gib(self, least_gib: int) -> int:
        """Return the size in GiB, which is not less than another one; raises CallError."""

    def find_difference(self, volume: StoredVolume) -> str:
        """Return how an existing volume of the identity is another one; "" if it is this one."""

    def values(self, size_gib: int, zone: str | None) -> dict[str, Any]:
        """Return the body of the request that creates it."""


N = TypeVar("N", bound=New)


class Creator(abc.ABC, Generic[N, T]):
    """Creates the resources of one kind.

    :param resources: those of the kind
    """

    def __init__(self, resources: Resources[T]) -> None:
        self._resources = resources
        self._lock = threading.Lock()
        self._numbers: cachetools.LRUCache[str, int] = cachetools.LRUCache(_REMEMBERED)

    @abc.abstractmethod
    def _request(self, new: N) -> str:
        """Request the resource by :meth:`_post`; return its id."""

    @abc.abstractmethod
    def _find_difference(self, new: N, found: T) -> str:
        """Return how an existing resource of the identity is another one, or ""."""

    def create(self, new: N) -> T:
        """Create a resource, or return the one that is there.

        :raises CallError: ABORTED: it is being created; ALREADY_EXISTS: it is another one; or as
            the API refuses it
        """
        found = self._find(new)
        if found is None:
            found = self._resources.get(self._request(new))
        if found is None:
            raise waiting.aborted(f"{self._describe(new.name)} was deleted while it was created")
        if difference := self._find_difference(new, found):
            raise CallError(
                ErrorCode.ALREADY_EXISTS,
                f"{self._describe(new.name)} exists as {found.id}, and {difference}.",
            )
        return self._finish(self._wait_until_created(found), new.created_key)

    def _describe(self, name: str) -> str:
        return self._resources.describe(name)

    def _find(self, new: N) -> T | None:
        found = self._resources.find(new.identity)
        left = [resource for resource in found if resource.status not in BEING_DELETED]
        for resource in () if left else found:
            deletion.delete(self._resources, resource.id)
        return left[0] if left else None

    def _post(self, new: N, values: Mapping[str, Any]) -> str:
        """Send the request with the first key that has not failed; return the id."""
        identity = new.key(values, 0)
        with self._lock:
            number = self._numbers.get(identity, 0)
        while calls.current().remaining:
            try:
                return self._resources.create(values, new.key(values, number))
            except StorageError as error:
                is_gone = error.reason == "key_resource_gone"
                if error.reason == "key_in_use" or not (is_gone or error.is_replayed):
                    raise
                number += 1
                with self._lock:
                    self._numbers[identity] = number
        raise waiting.aborted(f"{self._describe(new.name)} was tried {number} times")

    def _wait_until_created(self, resource: T) -> T:
        current = waiting.wait_while(self._resources, resource, BEING_CREATED, "being created")
        if current is None:
            raise waiting.aborted(
                f"{self._describe(resource.id)} was deleted while it was created"
            )
        return current

    def _finish(self, resource: T, created_key: str) -> T:
        """Record that the caller has the resource; one that could not be created is deleted.

        :raises CallError: UNAVAILABLE: it could not be created
        """
        if created_key in resource.metadata:
            return resource
        if resource.status in BEING_DELETED:
            raise waiting.aborted(f"{self._describe(resource.id)} is being deleted")
        if resource.status != "error":
            self._resources.add_metadata(resource.id, {created_key: "true"})
            return resource
        reason = self._resources.find_failure(resource.id)
        LOG.warning("%s: create failed: %s", self._describe(resource.id), reason)
        try:
            self._resources.delete(resource.id)
        except StorageError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise
        raise CallError(
            ErrorCode.UNAVAILABLE,
            f"{self._describe(resource.id)} could not be created and is deleted: {reason}. "
            "Repeat the call.",
        )


class VolumeCreator(Creator[NewVolume, StoredVolume]):
    """Creates volumes.

    :param storage: the API
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage.volumes)
        self._storage = storage

    def _find_difference(self, new: NewVolume, found: StoredVolume) -> str:
        return new.find_difference(found)

    def _request(self, new: NewVolume) -> str:
        """Request the volume in the first zone that has a backend for it; return its id."""
        new.check_type(is_shared=self._storage.is_type_shared(new.type_name))
        size = new.choose_gib(self._least_size(new))
        failure: StorageError | None = None
        for zone in new.zones or (None,):
            try:
                return self._post(new, new.values(size, zone))
            except StorageError as error:
                if error.reason not in _NO_BACKEND and not is_about_zone(error):
                    raise _refused(error) from error
                failure = error
        assert failure is not None, "there is at least one zone to try"
        if is_about_zone(failure):
            # The source of the volume is in none of the zones.
            raise CallError(ErrorCode.RESOURCE_EXHAUSTED, f"{failure}") from failure
        raise failure

    def _least_size(self, new: NewVolume) -> int:
        """Return the size in GiB that the source needs, or 1."""
        source = new.source
        if source is None:
            return 1
        resources: Resources[Any] = (
            self._storage.snapshots if source.kind == "snapshot" else self._storage.volumes
        )
        found: Stored | None = resources.get(source.id)
        if found is None or not new.is_source(found):
            raise CallError(
                ErrorCode.NOT_FOUND, f"There is no {source.kind} {source.id} to make a volume of."
            )
        if found.status in _IN_PROGRESS:
            raise waiting.aborted(
                f"{resources.describe(source.id)}, the source, is {found.status}"
            )
        return found.size_gib


def _refused(error: StorageError) -> CallError:
    """Return the error for a request that was refused: sizes have a code of their own."""
    if is_about_size(error):
        return CallError(ErrorCode.OUT_OF_RANGE, f"{error}")
    if error.reason in {"invalid_volume", "invalid_snapshot"}:  # of the source
        return CallError(ErrorCode.INVALID_ARGUMENT, f"{error}")
    return error
