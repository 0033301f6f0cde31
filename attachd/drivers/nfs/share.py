# SPDX-License-Identifier: Apache-2.0
"""A mounted share, and the processes that work on its files."""

import collections
from collections.abc import Sequence
import hashlib
from pathlib import Path
import threading
import time
from typing import Any

from oslo_log import log

from attachd import exception
from attachd.drivers.nfs import mounts
from attachd.drivers.nfs.file_process import FileProcess, Unusable

LOG = log.getLogger(__name__)

_MAX_IDLE = 16
"""The number of processes that are kept for later calls: the default of threads_per_backend."""

_IDLE_SECONDS = 60.0
"""How long a process is kept that no call needs; each occupies 25 MB."""


class Share:
    """One share on this machine; for any number of threads.

    :param name: SERVER:/PATH
    :param mount_point: where the share is mounted already; None: it is mounted below ``base``
    :param base: the directory of the mount points
    :param mount_options: of mount(8), with commas
    :param timeout: seconds for each step at the share
    """

    def __init__(
        self, name: str, mount_point: Path | None, base: Path, mount_options: str, timeout: float
    ) -> None:
        self.name = name
        # The name that os-brick, Cinder and Nova give to a mount point.
        digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
        folder = mount_point or base / digest
        # The kernel's name, found without access to the share.
        self._folder = folder.parent.resolve() / folder.name
        self._mounts_itself = mount_point is None
        self._mount_options = mount_options
        self._timeout = timeout
        self._lock = threading.Lock()
        self._mount_lock = threading.Lock()
        # With the time when each became idle; the last one is used first.
        self._idle: collections.deque[tuple[float, FileProcess]] = collections.deque()
        self._hanging: list[FileProcess] = []

    def call(self, method: str, *arguments: Any, buffer: int | None = None) -> Any:
        """Call a method of file_worker.ShareFiles in a process.

        :param buffer: as FileProcess.call() takes it
        :raises BackendUnreachable: the share is away or hangs; names it and the options
        :raises BackendError: from the method
        :raises InvalidInput: from the method
        """
        try:
            return self._call(method, arguments, buffer)
        except Unusable as error:
            if error.is_stale:
                self._forget_mount()
            raise exception.BackendUnreachable(
                f"Share {self.name} cannot be used: {error} Check that its server runs and "
                "exports it to this machine (nfs_share, nfs_mount_options), and that it answers "
                "in time (nfs_timeout)."
            ) from error

    def close(self) -> None:
        """End the processes, and unmount the share if no other process uses it."""
        with self._lock:
            processes = [process for _since, process in self._idle]
            self._idle.clear()
        for process in processes:
            self._end(process)
        is_own = self._mounts_itself and mounts.is_mounted(self._folder)
        if is_own and not mounts.unmount(self._folder, self._timeout):
            LOG.info("Share %s stays mounted at %s: it is in use", self.name, self._folder)

    def _call(self, method: str, arguments: Sequence[Any], buffer: int | None) -> Any:
        process = self._take()
        try:
            result = process.call(method, *arguments, timeout=self._timeout, buffer=buffer)
        except (exception.BackendError, exception.InvalidInput):
            self._put_back(process)
            raise
        except BaseException:
            self._end(process)
            raise
        self._put_back(process)
        return result

    def _take(self) -> FileProcess:
        """Return an idle process, or start one."""
        with self._lock:
            self._hanging = [item for item in self._hanging if not item.has_ended()]
            if self._hanging:
                raise Unusable("An earlier operation still hangs.")
            if self._idle:
                return self._idle.pop()[1]
        with self._mount_lock:
            if not mounts.is_mounted(self._folder):
                self._mount()
        return FileProcess(self._folder)

    def _put_back(self, process: FileProcess) -> None:
        now = time.monotonic()
        surplus = []
        with self._lock:
            self._idle.append((now, process))
            while len(self._idle) > _MAX_IDLE or self._idle[0][0] < now - _IDLE_SECONDS:
                surplus.append(self._idle.popleft()[1])
        for item in surplus:
            self._end(item)

    def _end(self, process: FileProcess) -> None:
        if not process.end():
            with self._lock:
                self._hanging.append(process)

    def _mount(self) -> None:
        if not self._mounts_itself:
            raise Unusable(f"It is not mounted at {self._folder} (nfs_mount_point).")
        try:
            mounts.mount(self.name, self._folder, self._mount_options, self._timeout)
        except exception.BackendError as error:
            raise Unusable(error.details["reason"]) from error

    def _forget_mount(self) -> None:
        """Let the next process mount the share again, while others may still use this mount."""
        if self._mounts_itself and mounts.is_mounted(self._folder):
            mounts.unmount(self._folder, self._timeout, "--lazy")
