# SPDX-License-Identifier: Apache-2.0
"""The abilities that a driver may have: base classes beside base.Driver; for driver authors.

::

    class BoxDriver(base.Driver, abilities.Clone, abilities.Audit): ...

A driver declares an ability by its base class, and the contract suite tests it then.  The rules of
base.py hold for all methods.
"""

import abc
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from attachd.drivers import base

Answer = dict[str, Any] | base.WithSecrets[dict[str, Any]]
"""The driver's own data of a volume or a snapshot."""


class Clone(abc.ABC):
    """The ability to create a volume as a copy of another one of the backend."""

    @abc.abstractmethod
    def clone(self, volume: base.VolumeRef, source: base.VolumeRef) -> Answer:
        """Create a volume with the data of another one, readable as zeros behind it.

        The copy is that of one moment, at which hosts may be writing to the source.  Meanwhile the
        source may be granted, revoked and extended, by other threads and processes: this is the
        only exception of the rule that a volume has one method at a time.  It may take long; no
        caller waits for it, and :func:`base.report_progress` shows users how far it is.

        :param volume: whose ``size_gib`` was at least that of the source when it was requested; it
            has the pool of the source
        :returns: as ``create``
        :raises BackendError: final=True if nothing is left of it, for example because the source
            does not exist or is larger by now, or because no consistent copy was possible. A
            driver that refuses each source with an export does not report ``online_clone``

        Source: CSI specification, controller capability CLONE_VOLUME.
        """


class Snapshots(abc.ABC):
    """The ability to keep the data of a volume as it was at one moment.

    While :meth:`create_snapshot`, :meth:`delete_snapshot` and :meth:`create_from_snapshot` run,
    the volume of the snapshot may be granted and revoked, by other threads and processes; it is
    neither extended nor deleted while a snapshot of it is created.

    :ivar copies_snapshots: whether :meth:`create_snapshot` may copy data, so that it may take
        long, and :func:`base.report_progress` shows users how far it is; set by ``setup`` if it
        depends on options
    """

    copies_snapshots = False

    @abc.abstractmethod
    def create_snapshot(self, snapshot: base.SnapshotRef) -> Answer:
        """Keep the data of ``snapshot.volume`` as it is at one moment.

        Hosts may be writing: the snapshot is what is left after a power failure at that moment.

        :returns: the driver's own data of the snapshot, passed later as ``SnapshotRef.provider``
        :raises BackendError: final=True if nothing is left of it, for example because no
            consistent copy was possible

        Source: CSI specification, CreateSnapshot.
        """

    @abc.abstractmethod
    def delete_snapshot(self, snapshot: base.SnapshotRef) -> None:
        """Delete a snapshot.  An unknown one is a success.

        The volume, and volumes that were created from the snapshot, keep their data.

        Source: CSI specification, DeleteSnapshot.
        """

    @abc.abstractmethod
    def create_from_snapshot(self, volume: base.VolumeRef, snapshot: base.SnapshotRef) -> Answer:
        """Create a volume with the data of a snapshot, readable as zeros behind it.

        It may take long, as ``Clone.clone``.  The snapshot is not deleted meanwhile.

        :param volume: whose ``size_gib`` is at least that of the snapshot; it has the pool of the
            snapshot's volume
        :returns: as ``create``
        :raises BackendError: final=True if nothing is left of it, for example because there is no
            such snapshot
        """

    @abc.abstractmethod
    def revert(self, snapshot: base.SnapshotRef) -> None:
        """Give ``snapshot.volume`` the data of its latest snapshot.

        The volume has no exports, and the size of the snapshot.  A call that was interrupted is
        repeated until one succeeds: until then the data of the volume is undefined.

        :raises BackendError: final=True if the volume is surely as it was
        """

    @abc.abstractmethod
    def list_snapshots(self) -> Mapping[str, str]:
        """List the complete snapshots of the backend.

        :returns: the ids of their volumes by their own; "" where the backend does not know it
        :raises BackendError: they cannot be listed
        """


@dataclass(frozen=True)
class ManageableSnapshot:
    """A snapshot of attachd, or an object of a backend that may become one.

    :ivar reference: as of :class:`ManageableObject`
    :ivar size_bytes: its size
    :ivar refusal: as of :class:`ManageableObject`
    :ivar snapshot_id: of the snapshot that it is already; "": none that the driver knows
    :ivar volume_id: of the volume of which it is; "": the driver does not know it
    """

    reference: Mapping[str, str]
    size_bytes: int
    refusal: str = ""
    snapshot_id: str = ""
    volume_id: str = ""


class ManageSnapshots(Snapshots):
    """The ability to adopt objects of the backend as snapshots, and to release them.

    Source: Block Storage API, manageable_snapshots and os-unmanage.
    """

    @abc.abstractmethod
    def list_manageable_snapshots(self) -> Iterable[ManageableSnapshot]:
        """List the backend's snapshots, and the objects that could become some.

        Snapshots of another service, or of another deployment of this one, are not among them, or
        have a refusal.

        :raises BackendError: they cannot be listed
        """

    @abc.abstractmethod
    def get_manageable_snapshot(
        self, volume: base.VolumeRef, reference: Mapping[str, str]
    ) -> ManageableSnapshot:
        """Return one of them, before it becomes a snapshot of a volume.

        :param reference: as a user wrote it
        :raises InvalidInput: of the field "ref": as ``ManageExisting.get_manageable``
        """

    @abc.abstractmethod
    def manage_snapshot(self, snapshot: base.SnapshotRef, reference: Mapping[str, str]) -> Answer:
        """Make a snapshot of an object, with its data and without a copy, usually by renaming it.

        Afterwards it is a snapshot as of ``create_snapshot``.  A repetition finds the object under
        the snapshot's id, and succeeds.

        :param snapshot: whose ``size_gib`` is the size of the object, rounded up
        :returns: as ``create_snapshot``
        :raises BackendError: final=True if the object is as it was: there is none, or it is in use
        """

    @abc.abstractmethod
    def unmanage_snapshot(self, snapshot: base.SnapshotRef) -> None:
        """Make an object of a snapshot, with its data; ``list_snapshots`` lists it no longer.

        :meth:`list_manageable_snapshots` does, under a name that contains the snapshot's id.  An
        unknown snapshot is a success.
        """


class OnlineExtend(abc.ABC):  # noqa: B024  it is a declaration
    """The ability to extend a volume while hosts use it: ``extend`` gets exports.

    Their data and their sessions stay.  Without it the manager refuses to extend a volume that has
    exports.

    Source: CSI specification, plugin capability VolumeExpansion ONLINE.
    """


class SwitchMode(abc.ABC):  # noqa: B024  it is a declaration
    """The ability to change the mode of an export under the sessions of its host.

    An export with ``own_connection`` is reached in a way that no other export has, and its
    :meth:`base.Driver.connection_key` is "".  Granted again in the other mode it has that mode
    when ``grant`` returns: from then on the backend accepts, or refuses, the writes of its host,
    in the session that there is.  The answer is the same but for ``access_mode``.  The driver
    promises ``read_only_enforced``, and the export has its present mode after a restart of the
    backend and a grant, too.

    While an attachment moves, its destination reads until the access of its source has ended.
    """


class Audit(abc.ABC):
    """The ability to list exports, for audits."""

    @abc.abstractmethod
    def list_exports(self) -> Iterable[base.BackendExport]:
        """List all that this backend exports now, complete or not, and nothing of other backends.

        Meanwhile other processes may grant and revoke: the exports of a volume without such a call
        are right, and of one moment.

        :raises BackendError: it cannot be listed
        """

    def list_volume_exports(self, volume: base.VolumeRef) -> Iterable[base.BackendExport]:
        """List what :meth:`list_exports` lists of one volume."""
        return [export for export in self.list_exports() if export.volume_id == volume.id]

    @abc.abstractmethod
    def expected_exports(
        self, volume: base.VolumeRef, exports: Sequence[base.Export]
    ) -> Iterable[base.BackendExport]:
        """Return what is listed of a volume if just these exports are granted, without sessions.

        A pure function of its arguments: the backend is not called.
        """

    def list_orphans(self) -> Iterable[base.Orphan]:
        """List objects that are probably this backend's, unused, and of no known volume."""
        return ()


def list_exports(driver: base.Driver) -> dict[str, list[base.BackendExport]] | None:
    """Return what a backend exports, by volume; None: its driver cannot list that.

    :raises BackendError: it cannot be listed now
    """
    if not isinstance(driver, Audit):
        return None
    listed: dict[str, list[base.BackendExport]] = {}
    for export in driver.list_exports():
        listed.setdefault(export.volume_id, []).append(export)
    return listed


def find_missing(
    driver: Audit,
    volume: base.VolumeRef,
    export: base.Export,
    listed: Iterable[base.BackendExport],
) -> list[base.BackendExport]:
    """Return what an export needs and its backend does not list, by mode; [] if it lists all.

    :param listed: of the volume
    """
    present, missing = {found.mode: found for found in listed}, []
    for expected in driver.expected_exports(volume, [export]):
        actual = present.get(expected.mode, base.BackendExport(volume.id, expected.mode))
        holders, parts = expected.holders - actual.holders, expected.parts - actual.parts
        if holders or parts:
            missing.append(base.BackendExport(volume.id, expected.mode, holders, parts))
    return missing


class Evict(Audit):
    """The ability to revoke access that the driver did not grant, which audits find."""

    @abc.abstractmethod
    def revoke_all_except(self, volume: base.VolumeRef, staying: Sequence[base.Export]) -> None:
        """Revoke all access to a volume except that of some exports, and end all other sessions.

        Afterwards :meth:`list_volume_exports` lists nothing that :meth:`expected_exports` lacks;
        what is missing, ``grant`` adds.  The volume may be gone or unknown: its data is not
        touched.

        :param staying: the live exports, which must not be disturbed
        :raises BackendError: another host may still reach the volume
        """


class RememberClients(abc.ABC):
    """The ability to end clients that the backend has forgotten, which goes by a record of them.

    A backend may forget the client of a host that hangs for minutes, and still accept its writes
    when it wakes up.  No list shows it then.
    """

    @abc.abstractmethod
    def remember_clients(self) -> None:
        """Record which client each export has now, and drop those of exports that are gone.

        Each manager calls it once a minute, at the same time as other methods.

        :raises BackendError: it is repeated
        """

    @abc.abstractmethod
    def end_remembered_clients(self, volume: base.VolumeRef, export: base.Export) -> None:
        """End all recorded clients of an export, also those that have gone, as far as is known.

        Called before ``revoke`` when a host is fenced, and not when it detaches: then it has told
        that it is done.

        :raises BackendError: one of them may still reach the volume
        """


@dataclass(frozen=True)
class PersistentReservation:
    """A persistent reservation, which a host has made and the backend enforces.

    :ivar holder: the host, by its name among the holders of the volume's exports
    :ivar type: as the backend calls it: "Write Exclusive Access", ...
    """

    holder: str
    type: str


class PersistentReservations(Audit):
    """The ability to show persistent reservations, which pass through to the backend."""

    @abc.abstractmethod
    def get_persistent_reservation(self, volume: base.VolumeRef) -> PersistentReservation | None:
        """Return the reservation of a volume; None if no host holds one, or there is no volume.

        :raises BackendError: it cannot be read

        Source: SCSI Primary Commands 4, 5.13 Reservations.
        """


@dataclass(frozen=True)
class ManageableObject:
    """An object of a backend, such as an image, an LV or a file, that may become a volume.

    :ivar reference: names it at the backend, as users write it, with one key, ``source-name`` or
        ``source-id``: ``{"source-name": "images/disk"}``
    :ivar size_bytes: its present size
    :ivar refusal: why it cannot be managed now, in one sentence: it is in use, it is a volume of
        attachd or of another service; "": it can
    :ivar volume_id: of the volume that it is already; "": none that the driver knows
    :ivar pool: in which it lies; "" if the driver reports no pools
    """

    reference: Mapping[str, str]
    size_bytes: int
    refusal: str = ""
    volume_id: str = ""
    pool: str = ""


class ManageExisting(abc.ABC):
    """The ability to adopt objects of the backend as volumes without a copy, and to release them.

    Source: Block Storage API, manageable_volumes and os-unmanage.
    """

    @abc.abstractmethod
    def list_manageable(self) -> Iterable[ManageableObject]:
        """List the backend's volumes, and the objects that could become some.

        :raises BackendError: they cannot be listed
        """

    @abc.abstractmethod
    def get_manageable(self, reference: Mapping[str, str]) -> ManageableObject:
        """Return one object, before a volume is made of it.

        :param reference: as a user wrote it
        :raises InvalidInput: of the field "ref": it lacks the key that the driver needs, leads out
            of the backend's pools or directories, or there is no such object
        """

    @abc.abstractmethod
    def manage(self, volume: base.VolumeRef, reference: Mapping[str, str]) -> Answer:
        """Make a volume of an object, with its data and without a copy, usually by renaming it.

        Afterwards it is a volume as of ``create``.  A repetition finds the object under the
        volume's id, and succeeds.

        :param volume: whose ``size_gib`` is the size of the object, rounded up; the object is
            extended to it
        :returns: as ``create``
        :raises BackendError: final=True if the object is as it was: there is none, or it is in use
        """

    @abc.abstractmethod
    def unmanage(self, volume: base.VolumeRef) -> None:
        """Make an object of a volume, with its data; ``list_volumes`` does not list it any more.

        :meth:`list_manageable` does, under a name that contains the volume's id.  An unknown
        volume is a success.

        :raises BackendError: final=True if an export is left
        """


class VolumeData(abc.ABC):
    """The bytes of a volume, as long as it is open.

    :raises BackendError: of its methods
    """

    @abc.abstractmethod
    def read(self, offset: int, length: int) -> bytes:
        """Return some bytes, all of them inside of the volume."""

    @abc.abstractmethod
    def write(self, offset: int, data: bytes) -> None:
        """Write some bytes, all of them inside of the volume."""


class DirectAccess(abc.ABC):
    """The ability to let the manager itself read and write a volume, as for images."""

    @abc.abstractmethod
    def open_data(
        self, volume: base.VolumeRef, mode: base.AccessMode
    ) -> AbstractContextManager[VolumeData]:
        """Open a volume for the block.

        Hosts may reach the volume in mode "ro", and never in mode "rw".  When the block has ended
        without an error, what was written survives a power failure.

        :raises BackendError: final=True if there is no such volume
        """


class ReadSnapshots(Snapshots):
    """The ability to let the manager itself read a snapshot, as for images of volumes in use."""

    @abc.abstractmethod
    def open_snapshot(self, snapshot: base.SnapshotRef) -> AbstractContextManager[VolumeData]:
        """Open a snapshot for reading, for the block.

        Hosts may write to its volume.  A block that ends without an error has read the data of the
        snapshot.

        :raises BackendError: final=True if there is no such snapshot
        """


@dataclass(frozen=True)
class StoredImage:
    """A raw image, as the Image service describes it.

    :ivar size_bytes: of its data
    :ivar locations: URLs of where it is said to be
    """

    id: str
    size_bytes: int
    locations: Sequence[str]


class CloneImage(abc.ABC):
    """The ability to make a volume of an image that lies in the storage of the backend.

    No capability: without it, the manager reads the image from the Image service.

    :ivar clones_images: whether the operator has allowed it, set by ``setup``
    """

    clones_images = False

    @abc.abstractmethod
    def clone_image(self, volume: base.VolumeRef, image: StoredImage) -> Answer | None:
        """Create a volume with the data of an image, readable as zeros behind it.

        What is said of the image is a claim: users of the Image service can choose locations.  The
        driver clones nothing but images of the Image service, by their ids.  It may take long, as
        ``Clone.clone``.

        :param volume: at least as large as the image
        :returns: as ``create``; None: nothing was made, the image cannot be cloned
        """


ABILITIES: Final[Mapping[str, type]] = MappingProxyType(
    {
        "clone": Clone,
        "snapshots": Snapshots,
        "manage_snapshots": ManageSnapshots,
        "read_snapshots": ReadSnapshots,
        "online_extend": OnlineExtend,
        "switch_mode": SwitchMode,
        "audit": Audit,
        "evict": Evict,
        "remember_clients": RememberClients,
        "persistent_reservations": PersistentReservations,
        "manage_existing": ManageExisting,
        "direct_access": DirectAccess,
    }
)
"""The abilities that a driver may have, by the names of their capabilities."""


def get_abilities(driver: base.Driver) -> dict[str, bool]:
    """Return which abilities a driver has, by their names."""
    return {name: isinstance(driver, ability) for name, ability in ABILITIES.items()}
