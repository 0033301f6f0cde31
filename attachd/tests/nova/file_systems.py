# SPDX-License-Identifier: Apache-2.0
"""Guests of Nova with file systems on their volumes, which extend these by their own tools."""

from pathlib import Path
from typing import Final

from attachd.tests.nova import guest_image
from attachd.tests.nova.case import NovaCase
from attachd.tests.wait import TIMEOUT

GIB: Final = 2**30


class FilesystemCase(NovaCase):
    """A test with guests that have an ext4 on one volume and an xfs on another.

    :cvar SECONDS: how long a server may take until it is active
    """

    SECONDS = TIMEOUT

    def wait_for_line(self, server: str, pattern: str, timeout: float = TIMEOUT) -> str:
        """Wait until the guest of a server has written a line, and return the match."""
        raise NotImplementedError

    def start_guest(self, host: str) -> str:
        """Request a server on a host, and return it once its guest runs."""
        image = self._image()
        server: str = self.admin.server(host=host, image=False, imageRef=image, wait_for=None)
        self.admin.server_is(server, "ACTIVE", timeout=self.SECONDS)
        self.wait_for_line(server, f"ACCEPT up {server}")
        return server

    def _image(self) -> str:
        data = guest_image.build(self, Path(self.cloud.HOME) / "guest.img")
        images = self.admin.conn.image
        made = images.create_image(
            name="file-systems", data=data, disk_format="raw", container_format="bare",
            use_import=False, wait=False,
        )  # fmt: skip
        self.addCleanup(images.delete_image, made.id)
        return str(made.id)

    def wait_for_sizes(self, server: str, size_gib: int) -> list[str]:
        """Wait until devices and file systems have a size, and return the files' checksums.

        A file system needs some of its device itself.
        """
        checksums = []
        for disk in ("vdb", "vdc"):
            pattern = rf"GROWTH {disk} {size_gib * GIB // 512} (\d+ \w{{32}})"
            kib, checksum = self.wait_for_line(server, pattern).split()
            self.assertGreater(int(kib) * 1024, 0.9 * size_gib * GIB)
            checksums.append(checksum)
        return checksums
