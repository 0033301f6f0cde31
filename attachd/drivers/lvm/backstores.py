# SPDX-License-Identifier: Apache-2.0
"""Backstores of LIO, through which targets read and write the device of a volume; for lio.py.

A volume has one for its writers, of the kind iblock, and one for the readers that share a target,
of the kind fileio.  Reservations, and a reset of a LUN, concern the hosts of one backstore: so
readers do not stop writers.  A second iblock cannot open the device.

Properties of LIO (tested with Linux 6.1 and 6.12):

* It protects a LUN from writes by the direction that the host says the data of a command has.
  Commands which write also with the direction "from the device" are switched off.
* fileio reads past the page cache with fd_async_io alone: what iblock writes is not in the cache.
* fileio creates a regular file where there is no device.

Source: Linux, drivers/target/target_core_iblock.c, target_core_file.c, target_core_spc.c.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import errno
import os
from pathlib import Path
from typing import Final, NamedTuple
import zlib

from attachd.drivers import iscsi
from attachd.drivers.lvm import configfs

_ATTRIBUTES: Final = {
    "max_write_same_len": "0",  # WRITE SAME; hosts write zeros by WRITE instead
    "emulate_caw": "0",  # COMPARE AND WRITE
    "emulate_3pc": "0",  # EXTENDED COPY
}


_DISCARD: Final = "emulate_tpu"
"""The attribute that lets hosts free blocks, by UNMAP."""


class Kind(NamedTuple):
    """Whom a backstore serves, and how.

    :ivar part: its name in listings
    :ivar plugin: of the kernel
    :ivar control: what to write to its control file, with the device in place of ``{}``
    :ivar attributes: that it has to have
    """

    part: str
    plugin: str
    control: str
    attributes: Mapping[str, str]


WRITERS: Final = Kind("the backstore", "iblock", "udev_path={}", _ATTRIBUTES)
READERS: Final = Kind(
    "the backstore of readers",
    "fileio",
    "fd_dev_name={},fd_async_io=1",
    {**_ATTRIBUTES, "emulate_pr": "0", _DISCARD: "0"},
)
KINDS: Final = (WRITERS, READERS)


@dataclass(frozen=True)
class Backstore:
    """The backstore of a volume, of one kind.

    :ivar path: its directory, with the id of the volume
    """

    tree: configfs.Tree
    kind: Kind
    path: Path

    def show(self, device: Path, *, discards: bool) -> None:
        """Make it, over a device.

        :param discards: whether the device frees blocks; writers may let it then
        """
        self.tree.make(self.path.parent)
        self.tree.make(self.path)
        if self.tree.read(self.path / "enable") != "1":
            self._enable(device)
        # The kernel sets some of them when it opens the device.
        for name, value in self.kind.attributes.items():
            self.tree.write(self.path / "attrib" / name, value)
        if self.kind is WRITERS:
            self.tree.write(self.path / "attrib" / _DISCARD, f"{discards:d}")

    def _enable(self, device: Path) -> None:
        if not device.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{device}")
        # The kernel takes no second path, and nothing can use a store that is not enabled.
        if self.tree.read(self.path / "udev_path"):
            self.tree.remove(self.path)
            self.tree.make(self.path)
        self.tree.command(self.path / "control", self.kind.control.format(device))
        self.tree.command(self.path / "udev_path", f"{device}")
        # Hosts derive the world-wide name from it: it is the same over any connection.
        self.tree.command(self.path / "wwn" / "vpd_unit_serial", iscsi.scsi_id(self.path.name))
        self.tree.write(self.path / "enable", "1")

    def parts(self, device: Path) -> frozenset[str]:
        """Return what listings show of it; nothing if it does not exist."""
        if not self.path.is_dir():
            return frozenset()
        expected = {"udev_path": f"{device}", "enable": "1"}
        expected |= {f"attrib/{name}": value for name, value in self.kind.attributes.items()}
        serves = all(self.tree.read(self.path / name) == value for name, value in expected.items())
        return frozenset({self.kind.part if serves else f"{self.kind.part}, incomplete"})


def directory(root: Path, backend: str, kind: Kind) -> Path:
    """Return the directory of the backstores of a backend.

    :param root: of configfs
    """
    # The number is of 32 bits; targetcli and rtslib count theirs from 0.
    number = 2**31 + zlib.crc32(backend.encode()) % 2**31
    return root / "target" / "core" / f"{kind.plugin}_{number}"
