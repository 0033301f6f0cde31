# SPDX-License-Identifier: Apache-2.0
"""Who uses a device or a mount of this host; asked before either is taken away.

What is found may be gone a moment later, and others may come: this tells people what to end, and
the kernel refuses what is busy all the same.
"""

from collections.abc import Iterator
import contextlib
from dataclasses import dataclass
import errno
import os
from pathlib import Path
import time

from attachd import exception
from attachd.agent.mount import device_nodes, mountinfo, statx
from attachd.agent.mount.device_nodes import Node
from attachd.agent.mount.mountinfo import Mount

_PROC = Path("/proc")
_PATIENCE_SECONDS = 1.0
_NAP = 0.05
_MANY = 12


@dataclass(frozen=True)
class _Use:
    """Something that a process has.

    :ivar path: in /proc
    """

    process: str
    what: str
    path: Path
    stat: statx.Stat

    def told(self) -> str:
        name = device_nodes.line_of(_PROC / self.process / "comm") or "?"
        return f"process {self.process} ({name}: {self.what} {_target(self.path)})"


def check_unused(device: str) -> None:
    """Find out that nobody uses a device; one that is not there is used by nobody.

    Asked are mounts (as root, those of other mount namespaces too), open files and mappings of
    processes, devices on top of it such as those of LVM, MD and loop, and swap; of its partitions
    as well.

    :raises DeviceBusy: who does
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            node = device_nodes.look(device)
        except OSError:
            return
        parts = node.with_partitions()
        lasting = [*_mounted(parts), *_on_top(parts), *_swapped(parts)]
        users = lasting + _processes(parts) or _claimed(node)
        if not users:
            return
        # udev has a look at each device that somebody has written to.
        if lasting or time.monotonic() > deadline:
            raise exception.DeviceBusy(device=device, users=told(users))
        time.sleep(_NAP)


def of_mount(mount: Mount) -> list[str]:
    """Tell what keeps a mount of our namespace from being unmounted."""
    beneath = [
        f"the mount of {each.source} at {each.folder}"
        for each in mountinfo.mounts()
        if each.parent == mount.number and each.number != mount.number
    ]
    kept = [f"{each.what} {_target(each.path)}" for each in _kept_files() if _is_in(each, mount)]
    return beneath + [each.told() for each in _uses() if _is_in(each, mount)] + kept


def of_file_system(mount: Mount) -> list[str]:
    """Tell which processes of any namespace use what is mounted, wherever they reach it by."""
    return [each.told() for each in _uses() if each.stat.device == mount.device]


def told(users: list[str]) -> str:
    """Return users as the error DeviceBusy takes them."""
    users = list(dict.fromkeys(users))
    more = [f"{len(users) - _MANY} more"] if len(users) > _MANY else []
    return ", ".join(users[:_MANY] + more)


def _mounted(parts: list[Node]) -> list[str]:
    users = _mounts_of(parts, mountinfo.mounts(), Path("/"))
    for process, mounts in mountinfo.namespaces():
        name = device_nodes.line_of(_PROC / f"{process}" / "comm")
        found = _mounts_of(parts, mounts, _PROC / f"{process}" / "root")
        users += [f"{each} of process {process} ({name})" for each in found]
    return users


def _mounts_of(parts: list[Node], mounts: list[Mount], root: Path) -> list[str]:
    return [
        f"the mount of {part.path} at {each.folder}"
        for part in parts
        for number in part.numbers()
        for each in mounts
        if each.is_of(number, root=root)
    ]


def _on_top(parts: list[Node]) -> list[str]:
    """Tell which devices are made of these."""
    users = []
    for part in parts:
        for each in sorted((part.folder / "holders").glob("*")) if part.folder else ():
            label = device_nodes.line_of(each / "dm" / "name")
            named = f" ({label})" if label else ""
            users.append(f"/dev/{each.name}{named} on top of {part.path}")
    over = device_nodes.loops_over(parts)
    return users + [f"{loop.path} on top of {under.path}" for loop, under in over]


def _swapped(parts: list[Node]) -> list[str]:
    users = []
    for path in _swaps():
        with contextlib.suppress(OSError):
            stat = statx.stat_of(path)
            users += [f"swap on {each.path}" for each in parts if each.is_it(stat)]
    return users


def _processes(parts: list[Node]) -> list[str]:
    # Who serves a device of NBD has it open as long as it is there.
    servers = {device_nodes.line_of(each.folder / "pid") for each in parts if each.folder}
    return [
        each.told()
        for each in _uses()
        if each.process not in servers and any(part.is_it(each.stat) for part in parts)
    ]


def _claimed(node: Node) -> list[str]:
    """Ask the kernel whether it could be somebody's own; it tells that somebody is, not who."""
    if node.number is None:
        return []
    try:
        os.close(os.open(node.path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return ["the kernel, such as for a mount that no process sees"]
    return []


def _uses() -> Iterator[_Use]:
    """Return whatever each process has a hold of."""
    for folder in sorted(_PROC.glob("[0-9]*"), key=lambda each: int(each.name)):
        paths = [("its folder", folder / "cwd"), ("its root", folder / "root")]
        paths += [("its program", folder / "exe")]
        paths += [("open", each) for each in _listed(folder / "fd")]
        paths += [("mapped", each) for each in _listed(folder / "map_files")]
        for what, path in paths:
            with contextlib.suppress(OSError):
                yield _Use(folder.name, what, path, statx.stat_of(path))


def _kept_files() -> Iterator[_Use]:
    """Return the files that the kernel itself has a hold of."""
    paths = [(f"{loop.path} over", backing) for loop, backing in device_nodes.loops()]
    paths += [("swap on", each) for each in _swaps()]
    for what, path in paths:
        with contextlib.suppress(OSError):
            yield _Use("", what, Path(path), statx.stat_of(path))


def _is_in(use: _Use, mount: Mount) -> bool:
    if use.stat.mount is not None:
        return use.stat.mount == mount.number
    below = f"{_target(use.path)}/".startswith(f"{mount.folder}/")
    return below and use.stat.device == mount.device


def _swaps() -> list[str]:
    lines = device_nodes.line_of(_PROC / "swaps").splitlines()[1:]
    return [mountinfo.unescaped(each.split()[0]) for each in lines if each]


def _listed(folder: Path) -> list[Path]:
    try:
        return [*folder.iterdir()]
    except OSError:
        return []


def _target(path: Path) -> str:
    try:
        return f"{path.readlink()}"
    except OSError:
        return f"{path}"
