# SPDX-License-Identifier: Apache-2.0
"""Snapshots of the driver: created, deleted, and shown.

The snapshots of a driver have its name in their metadata.  Those of a driver of another name, that
is of another cluster, do not exist for it.  One without a driver, which a user has taken, can be
named by its id, and is not deleted.
"""

from collections.abc import Iterable
from typing import Final

from google.protobuf import timestamp_pb2

from attachd.csi import csi_pb2, names, pages
from attachd.csi.new_snapshot import NewSnapshot, SnapshotCreator
from attachd.platforms import deletion, waiting
from attachd.platforms.calls import CallError, ErrorCode
from attachd.platforms.storage import DRIVER_KEY, GIB, Storage, StoredSnapshot
from attachd.platforms.waiting import BEING_CREATED

_BUSY: Final = BEING_CREATED | {"restoring"}
"""Statuses in which a snapshot cannot be deleted, and which end."""


class Snapshots:
    """The snapshots of one driver.

    Its methods raise CallError.

    :param storage: the API
    :param driver: the name of the driver
    """

    def __init__(self, storage: Storage, driver: str) -> None:
        self._snapshots = storage.snapshots
        self._driver = driver
        self._creator = SnapshotCreator(storage)

    def create(self, request: csi_pb2.CreateSnapshotRequest) -> csi_pb2.Snapshot:
        """Take a snapshot and wait until it is taken, or return the one that has the name."""
        return show(self._creator.create(NewSnapshot.from_request(self._driver, request)))

    def delete(self, snapshot_id: str) -> None:
        """Delete a snapshot, and wait until it is gone; one that is gone is a success.

        :raises CallError: FAILED_PRECONDITION: it is not of this driver, or in use
        """
        snapshot = self._snapshots.get(snapshot_id)
        if snapshot is None:
            return
        if snapshot.metadata.get(DRIVER_KEY) != self._driver:
            raise CallError(
                ErrorCode.FAILED_PRECONDITION,
                f"Snapshot {snapshot.id} was not created by {self._driver} (metadata "
                f"{DRIVER_KEY}), and is not deleted. Let it stay: deletionPolicy Retain.",
            )
        if waiting.wait_while(self._snapshots, snapshot, _BUSY, "in use") is not None:
            deletion.delete(self._snapshots, snapshot.id)

    def get(self, snapshot_id: str) -> csi_pb2.Snapshot:
        """Return a snapshot of this driver or of a user, also while it is being created.

        :raises CallError: NOT_FOUND
        """
        snapshot = self._find(snapshot_id)
        if snapshot is None:
            raise CallError(ErrorCode.NOT_FOUND, f"There is no snapshot {snapshot_id}.")
        return show(snapshot)

    def list(self, request: csi_pb2.ListSnapshotsRequest) -> csi_pb2.ListSnapshotsResponse:
        """Return the snapshots of this driver, oldest first, or one by its id.

        :raises CallError: ABORTED: the token is not valid
        """
        pages.check_max_entries(request.max_entries)
        response = csi_pb2.ListSnapshotsResponse()
        if request.snapshot_id:
            found = self._find(request.snapshot_id)
            if found is not None and request.source_volume_id in {"", found.volume_id}:
                _add(response, [found])
            return response
        filters = {"metadata": str({DRIVER_KEY: self._driver})}
        if request.source_volume_id:
            filters["volume_id"] = request.source_volume_id
        page = pages.read(self._snapshots, request.max_entries, request.starting_token, **filters)
        _add(response, page.items)
        if page.has_more:
            response.next_token = page.items[-1].id
        return response

    def _find(self, snapshot_id: str) -> StoredSnapshot | None:
        found = self._snapshots.get(snapshot_id)
        if found is None or found.metadata.get(DRIVER_KEY, self._driver) != self._driver:
            return None
        return found


def _add(response: csi_pb2.ListSnapshotsResponse, snapshots: Iterable[StoredSnapshot]) -> None:
    """Add those snapshots to a response that were taken."""
    for snapshot in filter(_is_taken, snapshots):
        response.entries.add(snapshot=show(snapshot))


def _is_taken(snapshot: StoredSnapshot) -> bool:
    """Return whether a snapshot has data: one in error may have had them before."""
    if snapshot.status == "error":
        return names.CREATED_KEY in snapshot.metadata
    return snapshot.status not in BEING_CREATED


def show(snapshot: StoredSnapshot) -> csi_pb2.Snapshot:
    """Return a snapshot as responses show it; its time is that of the request."""
    created_at = timestamp_pb2.Timestamp()
    created_at.FromDatetime(snapshot.created_at)
    return csi_pb2.Snapshot(
        snapshot_id=snapshot.id,
        source_volume_id=snapshot.volume_id,
        size_bytes=snapshot.size_gib * GIB,
        creation_time=created_at,
        ready_to_use=snapshot.status == "available",
    )
