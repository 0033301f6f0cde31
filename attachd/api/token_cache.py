# SPDX-License-Identifier: Apache-2.0
"""Tokens that Keystone has confirmed, kept in this process; used by keystone where there is no
memcached.

keystonemiddleware has such a cache too, but keeps one for each thread, looks at every token in it
with each request, and keeps them without a limit.
"""

import threading
from time import monotonic
from typing import Final

MOST: Final = 2000
"""Tokens.  One takes some KiB, most of which is the catalogue."""


class TokenCache:
    """As much of a memcached client as keystonemiddleware uses; shared by all threads.

    All entries are kept for the same time, so the oldest one is also the first to end.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: dict[str, tuple[float, bytes]] = {}
        self._using = threading.Lock()

    def get(self, key: str) -> bytes | None:
        """Return what is kept, as long as it is."""
        end, value = self._kept.get(key, (0.0, None))
        return value if monotonic() < end else None

    def set(self, key: str, value: bytes, time: int = 0) -> None:
        """Keep something for a time in seconds; not at all where that is not positive."""
        if time <= 0:
            return
        now = monotonic()
        with self._using:
            self._kept.pop(key, None)
            self._kept[key] = (now + time, value)
            while len(self._kept) > self._most or self._oldest() <= now:
                del self._kept[next(iter(self._kept))]

    def _oldest(self) -> float:
        return next(iter(self._kept.values()))[0]
