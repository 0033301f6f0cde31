# SPDX-License-Identifier: Apache-2.0
"""Logical volumes of a volume group, by the commands of lvm2; for the lvm driver.

``attachd-ID`` is a volume.  What is made in several steps gets that name when it is complete:

``attachd-ID.snapshot``
    a snapshot of a volume
``attachd-ID.part``
    a volume or a snapshot that is being filled
``attachd-ID.source``
    a snapshot of the volume from which it is filled
``attachd-ID.space``
    extents that are overwritten with zeros before the volume is extended with them

An LV of a thin pool reads as zeros where it was not written.  Any other LV has the old data of its
extents, so that it is overwritten before use.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attachd import exception
from attachd.drivers import base
from attachd.drivers.lvm import lvm2
from attachd.drivers.lvm.copies import PREFIX, STEPS, LvCopies, name_of
from attachd.drivers.lvm.snapshots import SUFFIX, LvSnapshots

GIB: Final = 2**30

_DEVICES: Final = Path("/dev")
_SPACE: Final = ".space"
_TRIES: Final = 5


@dataclass(frozen=True)
class LogicalVolumes:
    """The volumes of one volume group, of which new ones are in one pool.

    :ivar group: the volume group
    :ivar pool: the thin pool for new volumes; "": they are thick
    :ivar wipe: what is done before an LV is removed: "none", "discard" or "zero"
    :ivar timeout: seconds for one command of lvm2
    :ivar group_option: the option that names the volume group
    :ivar pool_option: the option that names the thin pool
    """

    group: str
    pool: str
    wipe: str
    timeout: float
    group_option: str = "lvm_volume_group"
    pool_option: str = "lvm_thin_pool"

    @property
    def snapshots(self) -> LvSnapshots:
        """The snapshots in the volume group."""
        return LvSnapshots(self._copies)

    @property
    def _copies(self) -> LvCopies:
        return LvCopies(self._lvs, self.wipe)

    @property
    def _lvs(self) -> lvm2.VolumeGroup:
        return lvm2.VolumeGroup(self.group, self.timeout)

    def check(self) -> str:
        """Check commands, volume group and thin pool; return the UUID of the group."""
        lvm2.check_commands()
        uuid = self._group_row()["vg_uuid"]
        if not self.pool:
            return uuid
        columns = "lv_name,segtype,zero"
        known = {row["lv_name"]: row for row in self._lvs.list_lvs(columns)}
        row = known.get(self.pool, {})
        if row.get("segtype") != "thin-pool":
            raise exception.BackendError(
                f"{self.pool_option}: volume group {self.group} has no thin pool {self.pool!r}.",
                final=True,
            )
        if row.get("zero") != "zero":
            raise exception.BackendError(
                f"{self.pool_option}: {self.pool} shows old data in new volumes. Correct it with "
                f"'lvchange --zero y {self.group}/{self.pool}'.",
                final=True,
            )
        if self.wipe == "zero":
            raise exception.BackendError(
                "lvm_wipe is 'zero', which would fill the thin pool. Set it to 'discard'.",
                final=True,
            )
        return uuid

    def _group_row(self) -> lvm2.Row:
        try:
            return self._lvs.report("vg_size,vg_free,vg_uuid")
        except exception.BackendUnreachable:
            raise
        except (exception.BackendError, IndexError) as error:
            raise exception.BackendError(
                f"{self.group_option}: {self.group!r} cannot be used: {lvm2.reason(error)}",
                final=True,
            ) from error

    def path(self, volume_id: str) -> Path:
        """Return the path of a volume's device, whether it exists or not."""
        return _DEVICES / self.group / name_of(volume_id)

    def activate(self, volume_id: str) -> Path:
        """Return the path of a volume's device, which has to exist; activate it after a boot."""
        row = self._copies.find(name_of(volume_id), f"Volume {volume_id}")
        self._lvs.activate(row)
        return Path(row["lv_path"])

    def create(self, volume: base.VolumeRef) -> None:
        """Create a volume, all zeros, unless it exists."""
        with self._copies.filling(name_of(volume.id)) as part:
            if part is None:
                return
            if self.pool:
                self._lvs.create_thin(self.pool, part, volume.size_gib * GIB)
            else:
                self._lvs.create_thick(part, volume.size_gib * GIB)
                self._lvs.zero(part)

    def clone(self, volume: base.VolumeRef, source_id: str) -> None:
        """Create a volume with the data of another one at one moment, unless it exists."""
        source = self._copies.find(name_of(source_id), f"Volume {source_id}")
        self._copies.copy(source, name_of(volume.id), volume.size_gib)

    def extend(self, volume_id: str, size_gib: int) -> None:
        """Extend a volume with zeros; never shorten it."""
        row = self._copies.find(name_of(volume_id), f"Volume {volume_id}")
        self._extend(volume_id, row, size_gib * GIB)

    def _extend(self, volume_id: str, row: lvm2.Row, size: int) -> None:
        missing = size - int(row["lv_size"])
        if missing <= 0:
            return
        if row["pool_lv"]:
            self._lvs.grow(row["lv_name"], size)
            return
        # A host sees new extents at once: what was there before has to be gone by then.
        space = name_of(volume_id) + _SPACE
        try:
            for _ in range(_TRIES):
                self._lvs.remove(space)
                self._lvs.create_thick(space, missing)
                self._lvs.zero(space)
                if self._lvs.move_extents(space, row["lv_name"]):
                    return
        except exception.BackendError:
            # A process that may not continue must not clean up either.
            base.check_still_owner()
            self._lvs.remove(space)
            raise
        raise exception.BackendError(
            f"Volume {volume_id} could not be extended: other LVs got its extents. Try again."
        )

    def adopt(self, volume: base.VolumeRef, row: lvm2.Row) -> None:
        """Extend another LV to the size of a volume, and rename it to one.

        :param row: of the LV, of :meth:`list_details`
        """
        self._extend(volume.id, row, volume.size_gib * GIB)
        self._copies.adopt(row, name_of(volume.id))

    def release(self, volume_id: str, name: str) -> None:
        """Rename a volume to another LV, and delete what an interrupted call has left of it."""
        self._copies.release(name_of(volume_id), name)

    def delete(self, volume_id: str) -> None:
        """Delete a volume, and what an interrupted call has left of it."""
        self._copies.delete(name_of(volume_id))

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all complete volumes in bytes, by id."""
        rows = self._lvs.list_lvs()
        known = {volume_id_of(row["lv_name"]): int(row["lv_size"]) for row in rows}
        known.pop("", None)
        return known

    def list_details(self) -> list[lvm2.Row]:
        """List all LVs but snapshots and incomplete volumes, with the columns ``lvm2.DETAILS``."""
        rows = self._lvs.list_lvs(lvm2.DETAILS)
        return [row for row in rows if not _is_step(row["lv_name"])]

    def has_part(self, volume_id: str) -> bool:
        """Return whether the group has a volume, or what an interrupted call has left of it."""
        known = {row["lv_name"] for row in self._lvs.list_lvs()}
        return not known.isdisjoint({f"{name_of(volume_id)}{step}" for step in ("", *STEPS)})

    def capacity(self) -> tuple[float, float, float]:
        """Return the GiB of the pool, those that are free, and the sum of all volumes."""
        return *self._space(), _gib(sum(self.sizes().values()))

    def pool_capacity(self) -> tuple[float, float, float]:
        """Return the same with the sum of the volumes of this pool."""
        sizes = [
            int(row["lv_size"])
            for row in self._lvs.list_lvs()
            if volume_id_of(row["lv_name"]) and row["pool_lv"] == self.pool
        ]
        return *self._space(), _gib(sum(sizes))

    def _space(self) -> tuple[float, float]:
        if not self.pool:
            row = self._group_row()
            return _gib(int(row["vg_size"])), _gib(int(row["vg_free"]))
        rows = self._lvs.list_lvs("lv_name,lv_size,data_percent")
        pool = next((item for item in rows if item["lv_name"] == self.pool), None)
        if pool is None:
            raise exception.BackendError(f"The thin pool {self.pool} is missing.")
        total = int(pool["lv_size"])
        return _gib(total), _gib(total * (1 - float(pool["data_percent"] or 0) / 100))


def _gib(size: float) -> float:
    return round(size / GIB, 2)


def volume_id_of(name: str) -> str:
    """Return the id of the complete volume that an LV is; "" if it is none."""
    is_volume = name.startswith(PREFIX) and not _is_step(name)
    return name.removeprefix(PREFIX) if is_volume else ""


def _is_step(name: str) -> bool:
    """Return whether an LV is a snapshot, or incomplete."""
    return name.startswith(PREFIX) and name.endswith((*STEPS, SUFFIX))
