# SPDX-License-Identifier: Apache-2.0
"""Work that takes long, a few pieces at a time, beside the threads that answer; for volumes.py.

Copying a volume may take hours: were it done where messages are answered, a few copies would
keep everybody from attaching.  What is begun here is given up when the process ends, and taken
up again by the recovery of the next one: the row still says that it is due.
"""

from collections import deque
from collections.abc import Callable
import threading
from typing import Any, NamedTuple

from oslo_context import context as oslo_context
from oslo_log import log

LOG = log.getLogger(__name__)


class _Piece(NamedTuple):
    """Work on one volume, and who asked for it."""

    volume_id: str
    do: Callable[[], None]
    context: Any


class LongWork:
    """The long work of one backend in one process.

    :param most: how many pieces are done at the same time; the others wait
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._mutex = threading.Lock()
        self._waiting: deque[_Piece] = deque()
        self._known: set[str] = set()
        self._threads = 0

    def begin(self, volume_id: str, do: Callable[[], None]) -> None:
        """Have work done soon, and return at once; for a volume that has some already, nothing."""
        with self._mutex:
            if volume_id in self._known:
                return
            self._known.add(volume_id)
            self._waiting.append(_Piece(volume_id, do, oslo_context.get_current()))
            if self._threads == self._most:
                return
            self._threads += 1
        threading.Thread(target=self._work, name=f"long-{self._name}", daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether anything is done, or waits to be."""
        with self._mutex:
            return bool(self._known)

    def _work(self) -> None:
        while (piece := self._next()) is not None:
            try:
                if piece.context is not None:
                    piece.context.update_store()
                piece.do()
            except Exception:
                LOG.exception("Work on volume %s was given up, for now", piece.volume_id)
            finally:
                with self._mutex:
                    self._known.discard(piece.volume_id)

    def _next(self) -> _Piece | None:
        with self._mutex:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None
