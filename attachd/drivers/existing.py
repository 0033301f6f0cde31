# SPDX-License-Identifier: Apache-2.0
"""Existing objects with names, such as files, that become volumes by a rename, and the reverse.

A driver gets the ability with :class:`ManageByName`, and an :class:`ExistingObjects` for its kind
of objects; that for snapshots with :class:`ManageSnapshotsByName` and :class:`ExistingSnapshots`.
"""

import abc
from collections.abc import Iterable, Iterator, Mapping
import contextlib
from typing import Any, Final

from attachd import exception
from attachd.drivers import base
from attachd.drivers.abilities import (
    ManageableObject,
    ManageableSnapshot,
    ManageExisting,
    ManageSnapshots,
)

KEY: Final = "source-name"
"""The key of references."""

RELEASED_PREFIX: Final = "volume-"
"""Before the id in the name of an unmanaged volume, as with the Block Storage service."""

MANAGED: Final = "already managed"
"""The refusal of what is a volume or a snapshot."""


class ExistingObjects(abc.ABC):
    """The objects of one kind that can become volumes of one backend."""

    @abc.abstractmethod
    def list(self) -> Iterable[ManageableObject]:
        """List the volumes, and the objects; see ManageExisting.list_manageable()."""

    @abc.abstractmethod
    def get(self, reference: Mapping[str, str]) -> ManageableObject:
        """Return one of them, by its name.

        :raises InvalidInput: of the field "ref": there is none
        """

    @abc.abstractmethod
    def manage(
        self, volume: base.VolumeRef, reference: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """Make a volume of an object, unless it is one already; see ManageExisting.manage()."""

    @abc.abstractmethod
    def unmanage(self, volume: base.VolumeRef) -> None:
        """Make an object of a volume, unless it is exported; see ManageExisting.unmanage()."""


class ManageByName(ManageExisting):
    """The ability to manage existing objects, by the name in ``source-name``.

    :ivar existing: the objects, set by the driver
    """

    existing: ExistingObjects

    def list_manageable(self) -> Iterable[ManageableObject]:
        """List the volumes, and the objects that could become some."""
        return self.existing.list()

    def get_manageable(self, reference: Mapping[str, str]) -> ManageableObject:
        """Return one of them, by its name."""
        return self.existing.get(reference)

    def manage(self, volume: base.VolumeRef, reference: Mapping[str, str]) -> dict[str, Any]:
        """Rename an object to a volume."""
        return self.existing.manage(volume, reference) or {}

    def unmanage(self, volume: base.VolumeRef) -> None:
        """Rename a volume to an object; refused while it is exported."""
        self.existing.unmanage(volume)


class ExistingSnapshots(abc.ABC):
    """The objects of one kind that can become snapshots of one backend."""

    @abc.abstractmethod
    def list(self) -> Iterable[ManageableSnapshot]:
        """List the snapshots, and the objects; see ManageSnapshots."""

    @abc.abstractmethod
    def get(self, volume: base.VolumeRef, reference: Mapping[str, str]) -> ManageableSnapshot:
        """Return one of them for a volume, by its name.

        :raises InvalidInput: of the field "ref": there is none
        """

    @abc.abstractmethod
    def manage(
        self, snapshot: base.SnapshotRef, reference: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """Make a snapshot of an object, unless it is one already; see ManageSnapshots."""

    @abc.abstractmethod
    def unmanage(self, snapshot: base.SnapshotRef) -> None:
        """Make an object of a snapshot; see ManageSnapshots."""


class ManageSnapshotsByName(ManageSnapshots):
    """The ability to manage existing snapshots, by the name in ``source-name``.

    :ivar existing_snapshots: the objects, set by the driver
    """

    existing_snapshots: ExistingSnapshots

    def list_manageable_snapshots(self) -> Iterable[ManageableSnapshot]:
        """List the snapshots, and the objects that could become some."""
        return self.existing_snapshots.list()

    def get_manageable_snapshot(
        self, volume: base.VolumeRef, reference: Mapping[str, str]
    ) -> ManageableSnapshot:
        """Return one of them, by its name."""
        return self.existing_snapshots.get(volume, reference)

    def manage_snapshot(
        self, snapshot: base.SnapshotRef, reference: Mapping[str, str]
    ) -> dict[str, Any]:
        """Make a snapshot of an object."""
        return self.existing_snapshots.manage(snapshot, reference) or {}

    def unmanage_snapshot(self, snapshot: base.SnapshotRef) -> None:
        """Make an object of a snapshot."""
        self.existing_snapshots.unmanage(snapshot)


def managed(name: str, size_bytes: int, volume_id: str, pool: str = "") -> ManageableObject:
    """Describe a volume, which cannot be managed once more."""
    return ManageableObject({KEY: name}, size_bytes, MANAGED, volume_id, pool)


def invalid(reference: Mapping[str, str], reason: str) -> exception.InvalidInput:
    """Return the error for a reference without object."""
    return exception.InvalidInput(field="ref", value=dict(reference), reason=reason)


@contextlib.contextmanager
def missing_is_final() -> Iterator[None]:
    """Map :func:`invalid` to a final BackendError: nothing was changed."""
    try:
        yield
    except exception.InvalidInput as error:
        raise exception.BackendError(f"{error}", final=True) from error


def check_usable(kind: str, found: ManageableObject | ManageableSnapshot, size_bytes: int) -> None:
    """Refuse an object that cannot be managed now, or that has grown since it was asked for.

    :param kind: of the object, for the message: "file", ...
    :param size_bytes: of the volume or the snapshot
    :raises BackendError: final
    """
    grown = "It has grown meanwhile." if found.size_bytes > size_bytes else ""
    if refusal := found.refusal or grown:
        raise exception.BackendError(
            f"The {kind} {found.reference[KEY]} cannot be managed. {refusal}", final=True
        )
