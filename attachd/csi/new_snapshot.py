# SPDX-License-Identifier: Apache-2.0
"""A new snapshot, as CreateSnapshot describes it, and its creation."""

from collections.abc import Mapping
import dataclasses
from typing import Any, Final, Self

from attachd.csi import csi_pb2, names, new_volume
from attachd.platforms import waiting
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.creation import Creator
from attachd.platforms.errors import StorageError
from attachd.platforms.storage import CSI_KEY, DRIVER_KEY, Storage, StoredSnapshot

PARAMETERS: Final = ()
"""Parameters of a VolumeSnapshotClass, beside those of Kubernetes."""


@dataclasses.dataclass(frozen=True)
class NewSnapshot:
    """A snapshot that is to be created.

    :ivar id: digest of the names of driver and snapshot
    :ivar driver: its name
    :ivar volume_id: of the volume that it is taken of
    """

    id: str
    driver: str
    name: str
    volume_id: str

    created_key = names.CREATED_KEY

    @classmethod
    def from_request(cls, driver: str, request: csi_pb2.CreateSnapshotRequest) -> Self:
        """Read it from a request.

        :param driver: its name
        :raises CallError: INVALID_ARGUMENT: there is an unknown parameter
        """
        new_volume.read_parameters(request.parameters, PARAMETERS)
        return cls(
            id=names.digest(driver, request.name),
            driver=driver,
            name=request.name,
            volume_id=request.source_volume_id,
        )

    @property
    def identity(self) -> dict[str, str]:
        """The metadata by which the snapshot is found."""
        return {CSI_KEY: self.id}

    @property
    def values(self) -> dict[str, Any]:
        """The body of the request that creates it."""
        return {
            "name": names.printable(self.name),
            "volume_id": self.volume_id,
            "metadata": {**self.identity, DRIVER_KEY: self.driver, names.NAME_KEY: self.name},
        }

    def key(self, values: Mapping[str, Any], number: int) -> str:
        """Return the idempotency key of an attempt.

        :param values: of the request
        :param number: of attempts before it that created no snapshot, or one that is deleted
        """
        return names.make_key(self.id, values, number)


class SnapshotCreator(Creator[NewSnapshot, StoredSnapshot]):
    """Creates snapshots.

    :param storage: the API
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage.snapshots)
        self._storage = storage

    def _find_difference(self, new: NewSnapshot, found: StoredSnapshot) -> str:
        same = new.volume_id == found.volume_id
        return "" if same else f"it is a snapshot of volume {found.volume_id}"

    def _request(self, new: NewSnapshot) -> str:
        volume = self._storage.volumes.get(new.volume_id)
        if volume is None:
            raise CallError(
                ErrorCode.NOT_FOUND, f"There is no volume {new.volume_id} to take a snapshot of."
            )
        try:
            return self._post(new, new.values)
        except StorageError as error:
            if error.reason == "no_valid_backend":
                raise CallError(ErrorCode.FAILED_PRECONDITION, f"{error}") from error
            if error.reason == "invalid_volume" and not volume.status.startswith("error"):
                # Its status is that of work which ends, such as of an attachment.
                raise waiting.aborted(f"{error}".removesuffix(".")) from error
            raise
