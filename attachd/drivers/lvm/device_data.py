# SPDX-License-Identifier: Apache-2.0
"""The data of LVs, which the manager itself reads and writes; for the lvm driver."""

from collections.abc import Iterator
import contextlib
import os
from pathlib import Path

from attachd.drivers import abilities, base, sparse
from attachd.drivers.lvm.pools import Pools


class DeviceAccess(abilities.DirectAccess):
    """The ability of the driver.

    :ivar pools: set by the driver
    """

    pools: Pools

    def open_data(
        self, volume: base.VolumeRef, mode: base.AccessMode
    ) -> contextlib.AbstractContextManager[abilities.VolumeData]:
        """Open the device of the LV."""
        device = self.pools.holding(volume).activate(volume.id)
        return open_device(device, f"Volume {volume.id}", mode)


@contextlib.contextmanager
def open_device(
    device: Path, subject: str, mode: base.AccessMode
) -> Iterator[abilities.VolumeData]:
    """Open a device for the block.

    :param subject: what it is, for messages
    """
    with sparse.map_os_errors(f"{subject} could not be read or written"):
        flags = os.O_RDONLY if mode == "ro" else os.O_RDWR
        file = os.open(device, flags | os.O_CLOEXEC)
        try:
            yield sparse.FileData(file)
            if mode == "rw":
                os.fsync(file)
        finally:
            os.close(file)
