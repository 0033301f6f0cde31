# SPDX-License-Identifier: Apache-2.0
"""Usage and condition of a staged volume.

A file system whose backend is gone may never answer: it is asked in a thread, with a limit.
"""

from concurrent import futures
import os
import threading
from typing import Final, NamedTuple

from attachd import exception
from attachd.agent.journal import Entry
from attachd.agent.local_socket import CallError, Code
from attachd.csi import csi_pb2
from attachd.linux import block_device, mountinfo
from attachd.node.agent_client import AgentClient

_TIMEOUT: Final = 5.0
_Usage = csi_pb2.VolumeUsage


class Stats(NamedTuple):
    """What is known of a volume.

    :ivar problem: what is wrong with it; None: nothing is known
    """

    usage: list[csi_pb2.VolumeUsage]
    problem: str | None


class StatsReader:
    """Reads usage and condition; used by any number of threads."""

    def __init__(self, agent: AgentClient) -> None:
        self._agent = agent
        self._lock = threading.Lock()
        self._asked: dict[str, futures.Future[os.statvfs_result]] = {}

    def read(self, entry: Entry, path: str) -> Stats:
        """Return the usage and the condition of a volume.

        :param path: where it is staged or published
        """
        assert entry.staging is not None
        problem = _find_device_problem(self._agent, entry)
        if entry.staging.fs_type is None:
            return _read_device(entry, problem)
        mount = mountinfo.find_at(path)
        if mount is None:
            return Stats([], problem or f"The volume is not mounted at {path}.")
        if mount.read_only and not _is_read_only(entry, path):
            problem = problem or "The kernel has made the file system read-only after an error."
        try:
            found = self._ask(path).result(_TIMEOUT)
        except TimeoutError:
            return Stats([], problem or f"{path} does not answer.")
        except OSError as error:
            return Stats([], problem or f"{path} cannot be read: {error.strerror}.")
        return Stats(_describe(found), problem)

    def _ask(self, path: str) -> futures.Future[os.statvfs_result]:
        """Ask a file system, unless an earlier call still waits for it."""
        with self._lock:
            if path not in self._asked:
                self._asked[path] = futures.Future()
                threading.Thread(target=self._wait, args=(path,), daemon=True).start()
            return self._asked[path]

    def _wait(self, path: str) -> None:
        try:
            answer, error = os.statvfs(path), None
        except OSError as raised:
            answer, error = None, raised
        with self._lock:
            asked = self._asked.pop(path)
        if answer is None:
            asked.set_exception(error)
        else:
            asked.set_result(answer)


def _find_device_problem(agent: AgentClient, entry: Entry) -> str | None:
    try:
        return agent.get_device(entry.attachment_id or "", 0.0).error
    except CallError as error:
        # Without the agent nothing is known; the volume may be in order.
        is_away = error.kind in {Code.UNAVAILABLE, Code.BUSY}
        return None if is_away else f"{error}"


def _read_device(entry: Entry, problem: str | None) -> Stats:
    assert entry.device is not None
    try:
        size = block_device.size(entry.device.path)
    except exception.HostError as error:
        return Stats([], problem or f"{error}")
    return Stats([_Usage(total=size, unit=_Usage.BYTES)], problem)


def _is_read_only(entry: Entry, path: str) -> bool:
    """Return whether a volume is to be read-only at a path."""
    assert entry.staging is not None
    publication = entry.staging.find(path)
    return entry.staging.read_only or (publication is not None and publication.read_only)


def _describe(found: os.statvfs_result) -> list[csi_pb2.VolumeUsage]:
    block = found.f_frsize
    return [
        _Usage(
            total=found.f_blocks * block,
            used=(found.f_blocks - found.f_bfree) * block,
            available=found.f_bavail * block,
            unit=_Usage.BYTES,
        ),
        _Usage(
            total=found.f_files,
            used=found.f_files - found.f_ffree,
            available=found.f_favail,
            unit=_Usage.INODES,
        ),
    ]
