# SPDX-License-Identifier: Apache-2.0
"""What is mounted, as each process of this host sees it; for open_handles.py and mounts.py.

Source: proc_pid_mountinfo(5).
"""

from collections.abc import Iterator
from dataclasses import dataclass
import os
from pathlib import Path
import re

from attachd.agent.mount import statx

_PROC = Path("/proc")
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One mount of one mount namespace.

    :ivar number: the kernel's
    :ivar parent: the number of the mount that it is on
    :ivar device: the number of the block device; some file systems have another one there
    :ivar folder: where it is, as the process sees it
    :ivar kind: of the file system
    :ivar source: what was mounted; mostly the path of a device, as the process sees it
    """

    number: int
    parent: int
    device: int
    folder: str
    read_only: bool
    kind: str
    source: str

    def is_of(self, device: int, *, root: Path = Path("/")) -> bool:
        """Tell whether it is of a block device.

        :param device: its number
        :param root: of the process that the mount was read from
        """
        if self.device == device:
            return True
        if not self.source.startswith("/"):
            return False
        try:
            return statx.stat_of(f"{root}{self.source}").block_device == device
        except OSError:
            return False


def mounts(process: int | str = "self") -> list[Mount]:
    """Return what is mounted for a process, lower ones first; nothing if it is gone."""
    try:
        text = (_PROC / f"{process}" / "mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return []
    return [_read(line) for line in text.split("\n") if line]


def namespaces() -> Iterator[tuple[int, list[Mount]]]:
    """Return a process of each mount namespace other than ours, and what is mounted there.

    Without root's rights only those of one's own processes can be seen.
    """
    seen = {_namespace(_PROC / "self")}
    for folder in sorted(_PROC.glob("[0-9]*")):
        namespace = _namespace(folder)
        if namespace not in seen:
            seen.add(namespace)
            yield int(folder.name), mounts(folder.name)


def at(folder: str) -> Mount | None:
    """Return the mount that is seen at a folder, or None if none has its top there."""
    path = os.path.realpath(folder)
    here = [each for each in mounts() if each.folder == path]
    try:
        number = statx.stat_of(path).mount
    except OSError:
        return here[-1] if here else None
    if number is None:
        return here[-1] if here else None
    # One that is there, and not seen, is beneath a mount of a folder above.
    return next((each for each in here if each.number == number), None)


def unescaped(text: str) -> str:
    """Return a path of a table in /proc as it is: white space is written in octal there."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _read(line: str) -> Mount:
    # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
    before, _, after = line.partition(" - ")
    number, parent, device, _root, folder, options, *_tags = before.split(" ")
    kind, source, of_all, *_rest = [*after.split(" "), "", ""]
    major, minor = device.split(":")
    return Mount(
        number=int(number),
        parent=int(parent),
        device=os.makedev(int(major), int(minor)),
        folder=unescaped(folder),
        read_only="ro" in {*options.split(","), *of_all.split(",")},
        kind=kind,
        source=unescaped(source),
    )


def _namespace(folder: Path) -> str | None:
    try:
        return f"{(folder / 'ns' / 'mnt').readlink()}"
    except OSError:
        return None
