# SPDX-License-Identifier: Apache-2.0
"""Stop what writes to a block device of this host, without the help of its backend.

The device is set read-only: the kernel then refuses the writes of processes, also by descriptors
that are open, and new mounts and mappings for writing.  It goes on writing for file systems and
mappings that exist: the former are shut down, processes with the latter are killed.

Source: the kernel's block/fops.c, blkdev_write_iter() and blkdev_mmap().
"""

from collections.abc import Callable
import contextlib
import functools
import itertools
import logging
import os
from pathlib import Path
import signal
import sys
import time
from typing import Final

from attachd import exception
from attachd.agent.mount import filesystem_shutdown, open_handles
from attachd.linux import block_device, commands, device_nodes
from attachd.linux.device_nodes import DeviceNode

LOG = logging.getLogger(__name__)

_TIMEOUT: Final = 10.0
"""Seconds for what ends at once, unless the kernel waits for the backend."""
_POLL_INTERVAL: Final = 0.05


class DeviceWriters:
    """Stops the writers of devices, and knows those whose writers it has stopped.

    Each device has a file with its sequence number, so that the next process knows it too.

    :param state_path: the host's
    """

    def __init__(self, state_path: Path) -> None:
        self._directory = state_path / "stopped"
        self._complete: dict[str, list[str]] = {}

    def are_stopped(self, device: str) -> bool:
        """Return whether stop() was called for this disk, and not resume() since.

        A device that is read-only for another reason does not count.
        """
        record = self._record(device)
        if not record.exists() or not block_device.exists(device):
            return False
        is_same = device_nodes.read_line(record) == block_device.sequence_number(device)
        return is_same and block_device.is_read_only(device)

    def stop(self, device: str, is_right: Callable[[], bool]) -> None:
        """Let all writes to a device fail; what its file systems have not written yet is lost.

        Devices on top of it, such as those of LVM, are stopped as well.  What the kernel has
        cached of the devices themselves cannot be dropped: it is written at once, so that it does
        not arrive later.  This waits for a backend that does not answer.  It can be repeated.

        :param is_right: whether the path is the device that is meant; asked while it is open, so
            that the kernel cannot give the path to another one
        :raises HostError: something may still be written; all else is stopped
        """
        try:
            node = device_nodes.stat_device(device)
            if node.is_cut_off() and not open_handles.find_users(device):
                return  # Nothing has it open, and to open it may wait for ever.
            file = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # It is gone.
        try:
            if not is_right() or self._is_complete(node):
                return
            self._record(device).parent.mkdir(parents=True, exist_ok=True)
            self._record(device).write_text(block_device.sequence_number(device))
            errors = _stop_all(node)
        finally:
            os.close(file)
        for one in reversed(node.with_devices_on_top()):
            _write_cache(one.path)
        if errors:
            raise exception.HostError(reason=" ".join(errors))
        self._complete[device] = _describe(node)

    def _is_complete(self, node: DeviceNode) -> bool:
        """Return whether all is stopped already, which costs much to do again."""
        if not self.are_stopped(node.path) or self._complete.get(node.path) != _describe(node):
            return False
        return all(block_device.is_read_only(one.path) for one in node.with_devices_on_top())

    def resume(self, device: str) -> None:
        """Let a device accept writes again, if stop() was called for it; also those on top of it.

        :raises HostError: it does not
        """
        if self.are_stopped(device):
            for node in device_nodes.stat_device(device).with_devices_on_top():
                block_device.make_writable(node.path)
        self._complete.pop(device, None)
        self._record(device).unlink(missing_ok=True)

    def _record(self, device: str) -> Path:
        return self._directory / Path(device).resolve().name


def _describe(node: DeviceNode) -> list[str]:
    """Return the paths and sequence numbers of a device and all that is on top of it."""
    nodes = node.with_devices_on_top()
    return [f"{one.path} {block_device.sequence_number(one.path)}" for one in nodes]


def _stop_all(node: DeviceNode) -> list[str]:
    """Stop the writers of a device and of all on top of it; return what has failed."""
    nodes = node.with_devices_on_top()
    steps = [functools.partial(block_device.make_read_only, one.path) for one in nodes]
    steps += [functools.partial(_shut_down_filesystem, one) for one in nodes]
    steps += [
        functools.partial(_kill_mapping_processes, nodes),
        functools.partial(_check_no_swap, nodes),
    ]
    errors = []
    for step in steps:
        try:
            step()
        except exception.HostError as error:
            # To write what is cached may take long.
            LOG.warning("Something may still be written to %s: %s", node.path, error)
            errors.append(f"{error}")
    return errors


def _shut_down_filesystem(node: DeviceNode) -> None:
    """Shut down the file system of a device if it is mounted, also where no mountpoint is left.

    :raises HostError: it is not shut down, such as one whose type cannot be
    """
    if node.number is None:
        return
    paths = open_handles.list_mount_paths(node.number)
    failures = _shut_down_at(paths, node.number)
    if not paths:
        failures = open_handles.list_exclusive_users(node)
    if failures:
        uses = [use for use in open_handles.list_uses([node]) if use.stat.device == node.number]
        if uses:  # Of a mount that is covered, or was detached from the tree.
            failures = _shut_down_at([f"{use.path}" for use in uses], node.number)
        elif not paths and len(node.with_devices_on_top()) > 1:
            failures = []  # Those use it.
    if failures:
        raise exception.HostError(
            reason=f"A file system on {node.path} cannot be shut down: {'; '.join(failures)}."
        )


def _shut_down_at(paths: list[str], number: int) -> list[str]:
    """Shut down a file system by the first path to it that can be used; return the failures.

    :param number: of the device, to which the program compares what it finds at a path
    """
    failures = []
    for path in paths:
        line = (sys.executable, "-m", filesystem_shutdown.__name__, path, f"{number}")
        try:
            result = commands.execute(line, _TIMEOUT)
        except exception.HostError as error:
            failures.append(f"{error}")
            continue
        if result.exit_code == 0:
            return []
        failures.append(result.stderr)
    return failures


def _kill_mapping_processes(nodes: list[DeviceNode]) -> None:
    """Kill the processes that have a device mapped for writing, and wait until they have ended.

    :raises HostError: one has not ended
    """
    deadline = time.monotonic() + _TIMEOUT
    while mapped := [
        use for use in open_handles.list_shared_mappings(nodes) if use.is_open_for_writing()
    ]:
        if time.monotonic() > deadline:
            users = open_handles.format_users([use.describe() for use in mapped])
            raise exception.HostError(reason=f"Killed, and has not ended: {users}.")
        for use in mapped:
            LOG.warning("Killed, as it can write to a device: %s", use.describe())
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(use.process), signal.SIGKILL)
        time.sleep(_POLL_INTERVAL)


def _check_no_swap(nodes: list[DeviceNode]) -> None:
    if users := open_handles.list_swaps_on(nodes):
        raise exception.HostError(reason=f"The kernel writes to {', '.join(users)}.")


def _write_cache(path: str) -> None:
    """Write what the kernel has cached of a device, however long its backend does not answer.

    What cannot be written is lost as well: the kernel does not try again.
    """
    minutes = itertools.count()

    def is_waiting() -> int:
        if count := next(minutes):
            LOG.warning("What is cached of %s could not be written for %d minutes", path, count)
        return count

    commands.execute(("sync", path), timeout=60.0, progress=is_waiting)
