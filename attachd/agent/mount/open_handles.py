# SPDX-License-Identifier: Apache-2.0
"""The users of a device or a mount of this host; checked before either is removed.

The result may be outdated a moment later.  It names the processes to end; the
kernel refuses to remove what is busy in any case.

psutil and lsof are not used: their calls of stat() wait for the file server of a dead mount.
"""

from collections.abc import Iterable, Iterator
import contextlib
from dataclasses import dataclass
import errno
import os
from pathlib import Path
import stat
import time

from attachd import exception
from attachd.linux import device_nodes, mountinfo
from attachd.linux.device_nodes import DeviceNode, FileStat
from attachd.linux.mountinfo import Mount

_PROC = Path("/proc")
_BUSY_TIMEOUT = 1.0
"""Seconds that a process may have a device open, as udev does after each writer."""

_POLL_INTERVAL = 0.05
_MAX_NAMED = 12
_MAPPED = "mapped"


@dataclass(frozen=True)
class Use:
    """A file that a process, or the kernel, has open.

    :ivar process: its number; "" for the kernel
    :ivar what: the kind of use, such as open or mapped
    :ivar path: in /proc
    """

    process: str
    what: str
    path: Path
    stat: FileStat

    def describe(self) -> str:
        """Return the text for messages."""
        name = device_nodes.read_line(_PROC / self.process / "comm") or "?"
        return f"process {self.process} ({name}: {self.what} {_target(self.path)})"

    def is_open_for_writing(self) -> bool:
        """Return whether an open or mapped file was opened for writing.

        Source: the kernel's fs/proc/fd.c, proc_fd_link().
        """
        if self.what == _MAPPED:
            return _may_write(self.process, self.path.name)
        try:
            return bool(self.path.lstat().st_mode & stat.S_IWUSR)
        except OSError:
            return False


def check_unused(device: str) -> None:
    """Check that a device is not in use; a device that is not there is unused.

    Checked are mounts (as root, those of other mount namespaces too), open files and mappings of
    processes, devices on top of it such as those of LVM, MD and loop, and swap; of its partitions
    as well.

    :raises DeviceBusy: it is in use; the message names the users
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT
    while True:
        try:
            node = device_nodes.stat_device(device)
        except OSError:
            return
        nodes = node.with_partitions()
        lasting = [*_mounts_of(nodes), *_devices_on_top(nodes), *list_swaps_on(nodes)]
        users = lasting + _processes_of(nodes) or list_exclusive_users(node)
        if not users:
            return
        if lasting or time.monotonic() > deadline:
            raise exception.DeviceBusy(device=device, users=format_users(users))
        time.sleep(_POLL_INTERVAL)


def list_numbers(device: str) -> tuple[int, ...]:
    """Return the numbers of a device and of its partitions; none of a plain file."""
    try:
        nodes = device_nodes.stat_device(device).with_partitions()
    except OSError:
        return ()
    return tuple(node.number for node in nodes if node.number is not None)


def check_removed_unused(device: str, numbers: Iterable[int]) -> None:
    """Check that nothing uses a device that the kernel has removed.

    :param device: its former path
    :param numbers: as list_numbers() has returned them; those of existing devices are ignored
    :raises DeviceBusy: it is still in use; the message names the users
    """
    nodes = [DeviceNode(device, number, None) for number in numbers]
    nodes = [node for node in nodes if node.sysfs_dir and not node.sysfs_dir.exists()]
    if nodes and (users := _mounts_of(nodes) + _processes_of(nodes)):
        raise exception.DeviceBusy(device=device, users=format_users(users))


def find_users(device: str) -> str:
    """Return the users of a device as check_unused() names them; "" if there are none."""
    try:
        check_unused(device)
    except exception.DeviceBusy as error:
        return f"{error.details['users']}"
    return ""


def list_mount_users(mount: Mount) -> list[str]:
    """List what keeps a mount of this namespace from being unmounted."""
    mounts_on_it = [
        f"the mount of {other.source} at {other.mountpoint}"
        for other in mountinfo.list_mounts()
        if other.parent_id == mount.mount_id and other.mount_id != mount.mount_id
    ]
    processes = [use.describe() for use in _list_uses() if _is_in(use, mount)]
    kernel = [
        f"{use.what} {_target(use.path)}" for use in _list_kernel_uses() if _is_in(use, mount)
    ]
    return mounts_on_it + processes + kernel


def list_filesystem_users(mount: Mount) -> list[str]:
    """List the processes of all namespaces that use a mounted file system, at any mountpoint."""
    return [use.describe() for use in _list_uses() if use.stat.device == mount.device]


def list_mount_paths(number: int) -> list[str]:
    """List the mountpoints of a block device in all namespaces, as paths for this process.

    Unlike Mount.is_of_device() it does not trust the names of sources, which any user can choose
    in a namespace.  Another mount may cover a path.

    :param number: of the device
    """
    namespaces = [("", mountinfo.list_mounts())]
    for process, mounts in mountinfo.list_namespaces():
        namespaces.append((f"{_PROC}/{process}/root", mounts))
    return [
        f"{root}{mount.mountpoint}"
        for root, mounts in namespaces
        for mount in mounts
        if mount.device == number
    ]


def list_uses(nodes: list[DeviceNode]) -> list[Use]:
    """List what processes have open of devices, or of file systems on them."""
    return [
        use
        for use in _list_uses()
        # Files of a mount that was detached from the tree keep the device as well.
        if any(node.matches(use.stat) or use.stat.device == node.number for node in nodes)
    ]


def list_shared_mappings(nodes: list[DeviceNode]) -> list[Use]:
    """List the mappings of devices by which processes can write to them, if they may write.

    It costs a fraction of list_uses(): most mappings are private.

    Source: proc_pid_maps(5).
    """
    found = []
    for directory in _PROC.glob("[0-9]*"):
        for line in device_nodes.read_line(directory / "maps").splitlines():
            addresses, flags, *_rest = line.split(maxsplit=2)
            if not flags.endswith("s"):
                continue
            first, last = _parse_addresses(addresses)
            path = directory / "map_files" / f"{first:x}-{last:x}"
            with contextlib.suppress(OSError):
                found.append(Use(directory.name, _MAPPED, path, device_nodes.statx(path)))
    return [use for use in found if any(node.matches(use.stat) for node in nodes)]


def _may_write(process: str, addresses: str) -> bool:
    """Return whether a shared mapping is of a file that was opened for writing.

    The mode of the entry in map_files is no answer: the kernel keeps it as long as there is a
    mapping with the same addresses, which may be another one.

    :param addresses: as in map_files
    :returns: False also if the mapping is gone
    Source: proc_pid_smaps(5), VmFlags; the kernel's mm/mmap.c, do_mmap().
    """
    wanted, is_wanted = _parse_addresses(addresses), False
    for line in device_nodes.read_line(_PROC / process / "smaps").splitlines():
        name, *values = line.split()
        if not name.endswith(":"):
            is_wanted = _parse_addresses(name) == wanted
        elif is_wanted and name == "VmFlags:":
            return "mw" in values
    return False


def _parse_addresses(text: str) -> tuple[int, int]:
    first, last = text.split("-")
    return int(first, 16), int(last, 16)


def list_exclusive_users(node: DeviceNode) -> list[str]:
    """Open a device exclusively; the kernel reports a user without a name."""
    if node.number is None or node.is_cut_off():
        return []
    try:
        os.close(os.open(node.path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return ["the kernel, such as for a mount that no process sees"]
    return []


def list_swaps_on(nodes: list[DeviceNode]) -> list[str]:
    """List the devices that the kernel uses as swap."""
    users = []
    for path in _list_swaps():
        with contextlib.suppress(OSError):
            file = device_nodes.statx(path)
            users += [f"swap on {node.path}" for node in nodes if node.matches(file)]
    return users


def format_users(users: list[str]) -> str:
    """Return users as the error DeviceBusy takes them."""
    users = list(dict.fromkeys(users))
    more = [f"{len(users) - _MAX_NAMED} more"] if len(users) > _MAX_NAMED else []
    return ", ".join(users[:_MAX_NAMED] + more)


def _mounts_of(nodes: list[DeviceNode]) -> list[str]:
    users = _describe_mounts(nodes, mountinfo.list_mounts(), Path("/"))
    for process, mounts in mountinfo.list_namespaces():
        name = device_nodes.read_line(_PROC / f"{process}" / "comm")
        found = _describe_mounts(nodes, mounts, _PROC / f"{process}" / "root")
        users += [f"{text} of process {process} ({name})" for text in found]
    return users


def _describe_mounts(nodes: list[DeviceNode], mounts: list[Mount], root: Path) -> list[str]:
    return [
        f"the mount of {node.path} at {mount.mountpoint}"
        for node in nodes
        for number in node.device_numbers()
        for mount in mounts
        if mount.is_of_device(number, root=root)
    ]


def _devices_on_top(nodes: list[DeviceNode]) -> list[str]:
    """List the devices that are made of these."""
    users = []
    for node in nodes:
        holders = sorted((node.sysfs_dir / "holders").glob("*")) if node.sysfs_dir else []
        for holder in holders:
            label = device_nodes.read_line(holder / "dm" / "name")
            suffix = f" ({label})" if label else ""
            users.append(f"/dev/{holder.name}{suffix} on top of {node.path}")
    loops = device_nodes.list_loops_over(nodes)
    return users + [f"{loop.path} on top of {node.path}" for loop, node in loops]


def _processes_of(nodes: list[DeviceNode]) -> list[str]:
    # The server of an NBD device has it open as long as it exists.
    servers = {device_nodes.read_line(node.sysfs_dir / "pid") for node in nodes if node.sysfs_dir}
    return [use.describe() for use in list_uses(nodes) if use.process not in servers]


def _list_uses() -> Iterator[Use]:
    """Yield the files that each process has open or mapped."""
    for directory in sorted(_PROC.glob("[0-9]*"), key=lambda path: int(path.name)):
        paths = [("working directory", directory / "cwd"), ("root", directory / "root")]
        paths += [("program", directory / "exe")]
        paths += [("open", path) for path in _list_directory(directory / "fd")]
        paths += [(_MAPPED, path) for path in _list_directory(directory / "map_files")]
        for what, path in paths:
            with contextlib.suppress(OSError):
                yield Use(directory.name, what, path, device_nodes.statx(path))


def _list_kernel_uses() -> Iterator[Use]:
    """Yield the files that the kernel itself has open."""
    paths = [(f"{loop.path} over", backing) for loop, backing in device_nodes.list_loop_devices()]
    paths += [("swap on", path) for path in _list_swaps()]
    for what, path in paths:
        with contextlib.suppress(OSError):
            yield Use("", what, Path(path), device_nodes.statx_backing(path))


def _is_in(use: Use, mount: Mount) -> bool:
    if use.stat.mount is not None:
        return use.stat.mount == mount.mount_id
    below = f"{_target(use.path)}/".startswith(f"{mount.mountpoint}/")
    return below and use.stat.device == mount.device


def _list_swaps() -> list[str]:
    lines = device_nodes.read_line(_PROC / "swaps").splitlines()[1:]
    return [mountinfo.unescape(line.split()[0]) for line in lines if line]


def _list_directory(directory: Path) -> list[Path]:
    try:
        return [*directory.iterdir()]
    except OSError:
        return []


def _target(path: Path) -> str:
    try:
        return f"{path.readlink()}"
    except OSError:
        return f"{path}"
