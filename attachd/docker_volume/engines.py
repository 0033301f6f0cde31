# SPDX-License-Identifier: Apache-2.0
"""The engines that have asked for uses of volumes, as far as this process knows.

An engine, such as dockerd, that lives ends each use by a call.  One that was killed does not, and
neither does one whose call was lost while this process did not run: whether containers still use
the volume then is to be read from the host.
"""

import os
import select
import threading


class Engines:
    """The living processes that have asked for uses."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[tuple[str, str], int] = {}

    def add(self, volume_id: str, use: str, process: int) -> None:
        """Record that a process has asked for a use."""
        try:
            file = os.pidfd_open(process)
        except OSError:
            return  # It has ended, or is in another PID namespace.
        self.discard(volume_id, use)
        with self._lock:
            self._files[volume_id, use] = file

    def discard(self, volume_id: str, use: str) -> None:
        """Forget a use."""
        with self._lock:
            file = self._files.pop((volume_id, use), None)
        if file is not None:
            os.close(file)

    def will_end(self, volume_id: str, use: str) -> bool:
        """Return whether the process that has asked for a use lives, and will end it."""
        with self._lock:
            file = self._files.get((volume_id, use))
            return file is not None and not _has_ended(file)


def _has_ended(file: int) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(0))
