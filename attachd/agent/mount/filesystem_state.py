# SPDX-License-Identifier: Apache-2.0
"""The size of a file system beside that of its device, as it was read last; for the journal."""

import dataclasses
from typing import Final

TOLERANCE: Final = 64 * 2**20
"""Bytes that a file system may leave at the end of its device: ext4 leaves what would be too small
a group of blocks.  Volumes grow by whole GiB."""


@dataclasses.dataclass(frozen=True)
class FilesystemState:
    """What is on a device.

    :ivar type: as mount(8) has it; "": nothing whose size is known
    :ivar size: in bytes; 0: not known
    :ivar device_size: of the device, in bytes, at the same time
    :ivar mount: the ID of the mount by which it was read, as in mountinfo; None: not mounted
    :ivar error: why it has not grown; None: it has, or was not to
    """

    type: str
    size: int
    device_size: int
    mount: int | None = None
    error: str | None = None

    @property
    def is_smaller(self) -> bool:
        """Whether it leaves a part of its device unused."""
        return self.size > 0 and self.device_size - self.size > TOLERANCE

    def describe(self) -> str | None:
        """Return how it is smaller than its device, in words; None: it is not."""
        if not self.is_smaller:
            return None
        text = f"{self.type} has {_gib(self.size)} of {_gib(self.device_size)} GiB"
        return f"{text}: {self.error}" if self.error else text


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f}".rstrip("0").rstrip(".")
