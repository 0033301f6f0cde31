# SPDX-License-Identifier: Apache-2.0
"""Order of the calls of this process for one volume: platforms often make the same call twice."""

from collections.abc import Iterator
import contextlib
import threading

from attachd.platforms import calls, waiting


class _Lock:
    """A lock, and how many calls hold it or wait for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0


class VolumeLocks:
    """A lock for each volume that a call works on."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, _Lock] = {}

    @contextlib.contextmanager
    def hold(self, volume_id: str) -> Iterator[None]:
        """Work on a volume when earlier calls have ended.

        :raises CallError: ABORTED: the caller does not wait so long; CANCELLED: it has given up
        """
        with self._guard:
            entry = self._locks.setdefault(volume_id, _Lock())
            entry.users += 1
        try:
            if not entry.lock.acquire(timeout=calls.current().remaining):
                raise waiting.aborted(f"Another call works on volume {volume_id}")
            try:
                calls.current().check_caller()
                yield
            finally:
                entry.lock.release()
        finally:
            with self._guard:
                entry.users -= 1
                if not entry.users:
                    del self._locks[volume_id]
