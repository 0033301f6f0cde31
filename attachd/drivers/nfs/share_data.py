# SPDX-License-Identifier: Apache-2.0
"""The data of volumes on shares, which the manager itself reads and writes; for the nfs driver.

The data passes between the manager and the process that works on the files in a file in memory.
"""

from collections.abc import Iterator
import contextlib
import os

from attachd import exception
from attachd.drivers import abilities, base
from attachd.drivers.nfs.pools import Pools
from attachd.drivers.nfs.share import Share


class ShareData(abilities.VolumeData):
    """The bytes of a volume.

    :param buffer: a file in memory
    """

    def __init__(self, share: Share, volume_id: str, buffer: int) -> None:
        self._share = share
        self._volume_id = volume_id
        self._buffer = buffer

    def read(self, offset: int, length: int) -> bytes:
        """Return some bytes."""
        self._share.call("read_data", self._volume_id, offset, length, buffer=self._buffer)
        return os.pread(self._buffer, length, 0)

    def write(self, offset: int, data: bytes) -> None:
        """Write some bytes, which are at the server then."""
        os.pwrite(self._buffer, data, 0)
        self._share.call("write_data", self._volume_id, offset, len(data), buffer=self._buffer)


class ShareAccess(abilities.DirectAccess):
    """The ability of the driver.

    :ivar pools: set by the driver
    """

    pools: Pools

    @contextlib.contextmanager
    def open_data(
        self,
        volume: base.VolumeRef,
        mode: base.AccessMode,  # noqa: ARG002  each call opens the file
    ) -> Iterator[abilities.VolumeData]:
        """Open the volume's file."""
        share = self.pools.share_of(volume)
        if share.call("size", volume.id) is None:
            raise exception.BackendError(f"Volume {volume.id} is missing.", final=True)
        buffer = os.memfd_create("attachd", os.MFD_CLOEXEC)
        try:
            yield ShareData(share, volume.id, buffer)
        finally:
            os.close(buffer)
