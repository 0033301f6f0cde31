# SPDX-License-Identifier: Apache-2.0
"""How the file system of a volume is mounted, whose content may have been made as an attack.

Each host that ever wrote to a volume has determined its content.  By default a mount has no
programs with the rights of others and no devices, and the type is one that the kernel's developers
maintain for such data.  btrfs is left out, since it finds its devices by identifiers in their
content: a volume could pass for a part of a file system of the host.
"""

import dataclasses
import re
from typing import Final

from attachd import exception

FILESYSTEMS: Final = ("ext2", "ext3", "ext4", "xfs")
"""The types that are mounted by default."""

_OPTIONS: Final = ("nosuid", "nodev")
# A file system itself says what its errors lead to, such as a panic of the kernel.
_TYPE_OPTIONS: Final = dict.fromkeys(("ext2", "ext3", "ext4"), ("errors=remount-ro",))
_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
_OPTION: Final = re.compile(r"[A-Za-z0-9_.-]+(=[^,\s\0\"]+)?")
_JOURNAL_OPTIONS: Final = frozenset({"journal_path", "journal_dev"})
_REFUSED: Final = frozenset(
    {"rw", "ro", "remount", "bind", "rbind", "move", "loop", "offset", "sizelimit"}
)


@dataclasses.dataclass(frozen=True)
class MountRules:
    """What a caller permits beyond the defaults.

    :ivar filesystems: further types
    :ivar options: further options of mount(8), separated by commas; the last of two that
        contradict each other counts, so that ``suid`` and ``dev`` permit what the defaults do not
    :raises HostError: one is no type, or no option for this
    """

    filesystems: tuple[str, ...] = ()
    options: str = ""

    def __post_init__(self) -> None:
        for name in self.filesystems:
            if not _TYPE.fullmatch(name):
                raise exception.HostError(reason=f"{name!r} is no type of a file system.")
        for option in self.options.split(",") if self.options else ():
            if not _OPTION.fullmatch(option) or option.partition("=")[0] in _REFUSED:
                raise exception.HostError(
                    reason=f"{option!r} cannot be an option of the mount. The mode decides "
                    "whether it is read-only; others are as mount(8) has them."
                )

    def check_type(self, fs_type: str, subject: str) -> None:
        """Check that a type may be mounted.

        :param subject: the device, for the message
        :raises HostError: it may not
        """
        if fs_type not in {*FILESYSTEMS, *self.filesystems}:
            raise exception.HostError(
                reason=f"{subject} carries the file system {fs_type}, which is not mounted by "
                f"default (only {', '.join(FILESYSTEMS)} are): the content of a volume can be "
                "made as an attack on the kernel of its host. If you trust each host that wrote "
                f"to the volume, repeat the command with --allow-filesystem {fs_type}."
            )

    @property
    def names_journal(self) -> bool:
        """Whether the caller names the device of the journal, as of ext4."""
        names = {option.partition("=")[0] for option in self.options.split(",")}
        return not names.isdisjoint(_JOURNAL_OPTIONS)

    def options_for(self, fs_type: str) -> str:
        """Return the options of mount(8) for a type."""
        chosen = (*_OPTIONS, *_TYPE_OPTIONS.get(fs_type, ()), self.options)
        return ",".join(filter(None, chosen))


DEFAULTS: Final = MountRules()
