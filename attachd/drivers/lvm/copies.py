# SPDX-License-Identifier: Apache-2.0
"""LVs that are made in several steps, and copies of LVs; for the lvm driver.

An LV has a suffix until it is complete, see volumes.py.
"""

from collections.abc import Iterator
import contextlib
from dataclasses import dataclass
from typing import Final

from attachd import exception
from attachd.drivers import base, sparse
from attachd.drivers.lvm import lvm2

PREFIX: Final = "attachd-"
"""Before the id in the names of LVs."""

_PART, _SOURCE = ".part", ".source"
STEPS: Final = (_PART, _SOURCE, ".space")
"""The suffixes of what an interrupted call may leave."""


def name_of(identifier: str) -> str:
    """Return the name of the LV of a volume."""
    return PREFIX + sparse.plain_name(identifier)


@dataclass(frozen=True)
class LvCopies:
    """Creates, copies and removes LVs of one volume group.

    :ivar lvs: the volume group
    :ivar wipe: as in LogicalVolumes
    """

    lvs: lvm2.VolumeGroup
    wipe: str

    def find(self, name: str, subject: str) -> lvm2.Row:
        """Return an LV; raises BackendError if it does not exist.

        :param subject: what it is, for the message
        """
        row = self.lvs.find(name)
        if row is None:
            raise exception.BackendError(
                f"{subject} is missing: there is no LV {name} in {self.lvs.name}.", final=True
            )
        return row

    def copy(self, source: lvm2.Row, name: str, size_gib: int) -> None:
        """Create an LV with the data of another one at one moment, unless it exists."""
        with self.filling(name) as part:
            if part is not None:
                self._fill(source, name, size_gib)

    def replace(self, source: lvm2.Row, name: str, size_gib: int) -> None:
        """Replace an LV by a copy of another one, which is complete before that."""
        with self._renaming(name):
            self._fill(source, name, size_gib)
            self._remove_wiped(name)

    def _fill(self, source: lvm2.Row, name: str, size_gib: int) -> None:
        """Create the LV that is to be renamed, with the data of another one."""
        part, size = name + _PART, size_gib * sparse.GIB
        if int(source["lv_size"]) > size:
            raise exception.BackendError(
                f"{source['lv_name']} is larger than {size_gib} GiB by now.", final=True
            )
        if source["pool_lv"]:
            self.lvs.snapshot(source, part, "--setactivationskip", "n")
            self.lvs.grow(part, size)
        else:
            snapshot = name + _SOURCE
            self.lvs.snapshot(source, snapshot, "--extents", "100%ORIGIN")
            self.lvs.create_thick(part, size)
            self.lvs.copy(snapshot, part)
            self.lvs.zero(part, int(source["lv_size"]))
            self.lvs.remove(snapshot)

    def adopt(self, row: lvm2.Row, name: str) -> None:
        """Rename an LV that the driver has not made.

        :param row: with the columns ``lvm2.DETAILS``
        """
        if row["lv_skip_activation"]:
            full = self.lvs.full(row["lv_name"])
            self.lvs.change("lvchange", "--setactivationskip", "n", full)
        self.lvs.rename(row["lv_name"], name)

    def release(self, name: str, new: str) -> None:
        """Rename an LV, if it exists, and delete what an interrupted call has left of it."""
        for step in STEPS:
            self.lvs.remove(name + step)
        if not self.lvs.find(name):
            return
        if self.lvs.find(new):
            raise exception.BackendError(f"There is another LV {self.lvs.full(new)}.", final=True)
        self.lvs.rename(name, new)

    def delete(self, name: str) -> None:
        """Delete an LV, and what an interrupted call has left of it."""
        for known in [f"{name}{step}" for step in STEPS] + [name]:
            self._remove_wiped(known)

    def _remove_wiped(self, name: str) -> None:
        if self.wipe != "none" and (row := self.lvs.find(name)):
            self.lvs.activate(row)
            if self.wipe == "zero":
                self.lvs.zero(name)
            else:
                self.lvs.discard(name)
        self.lvs.remove(name)

    @contextlib.contextmanager
    def filling(self, name: str) -> Iterator[str | None]:
        """Give the name of an LV that does not exist, and rename it in the end.

        :returns: None: what is to be created exists
        """
        if self.lvs.find(name):
            self.lvs.remove(name + _SOURCE)  # of a clone that was interrupted at its end
            yield None
            return
        with self._renaming(name):
            yield name + _PART

    @contextlib.contextmanager
    def _renaming(self, name: str) -> Iterator[None]:
        """Rename the LV that the block creates, which has the suffix of a part."""
        part = name + _PART
        try:
            self.lvs.remove(part)
            self.lvs.remove(name + _SOURCE)
            yield
            self.lvs.rename(part, name)
        except (OSError, exception.BackendError) as error:
            # A process that may not continue must not clean up either.
            base.check_still_owner()
            with contextlib.suppress(exception.BackendError):
                self.lvs.remove(part)
                self.lvs.remove(name + _SOURCE)
            if isinstance(error, exception.BackendUnreachable):
                raise
            remaining = any(map(self.lvs.find, (part, name, name + _SOURCE)))
            raise exception.BackendError(
                f"The LV {name} could not be created: {lvm2.reason(error)}",
                final=not remaining,
            ) from error
