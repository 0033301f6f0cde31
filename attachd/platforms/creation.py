# SPDX-License-Identifier: Apache-2.0
"""Creation of volumes by name: any number of calls, in any number of processes, make one volume.

A volume has its identity in its metadata, by which later calls find it.  The request that creates
it has an idempotency key made of the same identity, so of several that find none only one creates
it.  The API stores refusals for a key as well: another attempt has a key with another number.  All
processes count from 0, so they agree on the numbers.

Calls with the same name and different parameters at the same time, which platforms do not
make, may create two volumes; later calls then return the older one.
"""

from collections.abc import Mapping, Sequence
import http
import logging
import threading
from typing import Any, Final, Protocol

import cachetools

from attachd.platforms import calls, waiting
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.errors import StorageError, is_about_size
from attachd.platforms.storage import Storage, StoredVolume
from attachd.platforms.waiting import BEING_CREATED, BEING_DELETED

LOG = logging.getLogger(__name__)

_REMEMBERED: Final = 10_000
_NO_BACKEND: Final = frozenset({"no_valid_backend", "capability_missing"})


class NewVolume(Protocol):
    """A volume that is to be created."""

    @property
    def name(self) -> str:
        """The name that messages have."""

    @property
    def identity(self) -> Mapping[str, str]:
        """The metadata by which it is found, without the parameters of its creation."""

    @property
    def created_key(self) -> str:
        """The key of the metadata of volumes that exist for their caller.

        One in error without it has no data.
        """

    @property
    def type_name(self) -> str | None:
        """Name or id of the volume type; None: the default."""

    @property
    def source_id(self) -> str:
        """The id of the volume to clone; "": none."""

    @property
    def zones(self) -> Sequence[str]:
        """Those that are possible, the preferred first; empty: any."""

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

    def key(self, values: Mapping[str, Any], number: int) -> str:
        """Return the idempotency key of an attempt.

        :param values: of the request
        :param number: of attempts before it that created no volume, or one that is deleted
        """


class VolumeCreator:
    """Creates volumes.

    :param storage: the API
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._numbers: cachetools.LRUCache[str, int] = cachetools.LRUCache(_REMEMBERED)

    def create(self, new: NewVolume) -> StoredVolume:
        """Create a volume, or return the one that is there.

        :raises CallError: ABORTED: it is being created; ALREADY_EXISTS: it is another one; or as
            the API refuses it
        """
        found = self._find(new)
        if found is None:
            found = self._storage.volume(self._request(new))
        if found is None:
            raise waiting.aborted(f"Volume {new.name} was deleted while it was created")
        if difference := new.find_difference(found):
            raise CallError(
                ErrorCode.ALREADY_EXISTS,
                f"Volume {new.name} exists as {found.id}, and {difference}.",
            )
        return self._finish(self._wait_until_created(found), new.created_key)

    def _find(self, new: NewVolume) -> StoredVolume | None:
        found = self._storage.find_volumes(new.identity)
        left = [volume for volume in found if volume.status not in BEING_DELETED]
        for volume in () if left else found:
            work = f"of the same name, and is {volume.status}"
            if waiting.wait_while(self._storage, volume, BEING_DELETED, work) is not None:
                raise waiting.aborted(f"Volume {volume.id} has the same name")
        return left[0] if left else None

    def _request(self, new: NewVolume) -> str:
        """Request the volume in the first zone that has a backend for it; return its id."""
        new.check_type(is_shared=self._storage.is_type_shared(new.type_name))
        size = new.choose_gib(self._least_size(new))
        failure: StorageError | None = None
        for zone in new.zones or (None,):
            try:
                return self._post(new, size, zone)
            except StorageError as error:
                if error.reason not in _NO_BACKEND:
                    raise _refused(error) from error
                failure = error
        assert failure is not None, "there is at least one zone to try"
        raise failure

    def _least_size(self, new: NewVolume) -> int:
        """Return the size in GiB that the source of a clone needs, or 1."""
        if not new.source_id:
            return 1
        source = self._storage.volume(new.source_id)
        if source is None:
            raise CallError(ErrorCode.NOT_FOUND, f"There is no volume {new.source_id} to clone.")
        if source.status in BEING_CREATED:
            raise waiting.aborted(f"Volume {source.id}, which is to be cloned, is being created")
        return source.size_gib

    def _post(self, new: NewVolume, size_gib: int, zone: str | None) -> str:
        """Send the request with the first key that has not failed; return the id of the volume."""
        values = new.values(size_gib, zone)
        identity = new.key(values, 0)
        with self._lock:
            number = self._numbers.get(identity, 0)
        while calls.current().remaining:
            try:
                return self._storage.create_volume(values, new.key(values, number))
            except StorageError as error:
                is_gone = error.reason == "key_resource_gone"
                if error.reason == "key_in_use" or not (is_gone or error.is_replayed):
                    raise
                number += 1
                with self._lock:
                    self._numbers[identity] = number
        raise waiting.aborted(f"Volume {new.name} was tried {number} times")

    def _wait_until_created(self, volume: StoredVolume) -> StoredVolume:
        current = waiting.wait_while(self._storage, volume, BEING_CREATED, "being created")
        if current is None:
            raise waiting.aborted(f"Volume {volume.id} was deleted while it was created")
        return current

    def _finish(self, volume: StoredVolume, created_key: str) -> StoredVolume:
        """Record that the caller has the volume; one that could not be created is deleted.

        :raises CallError: UNAVAILABLE: it could not be created
        """
        if created_key in volume.metadata:
            return volume
        if volume.status in BEING_DELETED:
            raise waiting.aborted(f"Volume {volume.id} is being deleted")
        if volume.status != "error":
            self._storage.add_metadata(volume.id, {created_key: "true"})
            return volume
        reason = self._storage.find_failure(volume.id)
        LOG.warning("Volume %s: create failed: %s", volume.id, reason)
        try:
            self._storage.delete_volume(volume.id)
        except StorageError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise
        raise CallError(
            ErrorCode.UNAVAILABLE,
            f"Volume {volume.id} could not be created and is deleted: {reason}. Repeat the call.",
        )


def _refused(error: StorageError) -> CallError:
    """Return the error for a request that was refused: sizes have a code of their own."""
    if is_about_size(error):
        return CallError(ErrorCode.OUT_OF_RANGE, f"{error}")
    if error.reason == "invalid_volume":  # of the source of a clone
        return CallError(ErrorCode.INVALID_ARGUMENT, f"{error}")
    return error
