# SPDX-License-Identifier: Apache-2.0
"""Those who do what a report has found to be due, each attachment by itself; for service.py.

What fails is tried again ever more seldom, and keeps nothing else waiting.
"""

from collections.abc import Callable, Iterable
from concurrent import futures
import dataclasses
import threading
from time import monotonic

from oslo_log import log

from attachd import exception

LOG = log.getLogger(__name__)

FIRST_PAUSE = 5.0
LONGEST_PAUSE = 300.0
"""Seconds until something that has failed is tried again."""


@dataclasses.dataclass(frozen=True)
class _Failing:
    pause: float
    until: float


class Crew:
    """A few threads.

    :param look: finds out what is due for an attachment, and does it; as Duties.look()
    """

    def __init__(self, look: Callable[[str], None], threads: int) -> None:
        self._look = look
        self._pool = futures.ThreadPoolExecutor(threads, thread_name_prefix="crew")
        self._lock = threading.Lock()
        self._stopped = False
        self._under_way: dict[str, futures.Future[None]] = {}
        self._failing: dict[str, _Failing] = {}

    def begin(self, attachment_ids: Iterable[str]) -> None:
        """Have something done about these, but for what is under way or has failed lately."""
        for each in attachment_ids:
            with self._lock:
                failing = self._failing.get(each)
                resting = failing is not None and monotonic() < failing.until
                if not (resting or self._stopped or each in self._under_way):
                    self._under_way[each] = self._pool.submit(self._work, each)

    def keep_only(self, attachment_ids: Iterable[str]) -> None:
        """Forget how others than these have failed."""
        known = set(attachment_ids)
        with self._lock:
            self._failing = {each: how for each, how in self._failing.items() if each in known}

    def look(self, attachment_id: str) -> None:
        """Do it now, whatever has failed before; raises what it raises."""
        self._look(attachment_id)
        with self._lock:
            self._failing.pop(attachment_id, None)

    def stop(self, patience: float) -> bool:
        """Begin nothing more, and wait for what is under way; False: it goes on after that."""
        with self._lock:
            self._stopped = True
            left = list(self._under_way.values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not futures.wait(left, patience).not_done

    def _work(self, attachment_id: str) -> None:
        try:
            self.look(attachment_id)
        except exception.Unavailable as error:
            LOG.debug("Attachment %s waits: %s", attachment_id, error)
        except exception.AttachdError as error:
            pause = self._note_failure(attachment_id)
            LOG.warning("Attachment %s, again in %d s: %s", attachment_id, pause, error)
        except Exception:
            pause = self._note_failure(attachment_id)
            LOG.exception("Attachment %s, again in %d s", attachment_id, pause)
        finally:
            with self._lock:
                self._under_way.pop(attachment_id, None)

    def _note_failure(self, attachment_id: str) -> float:
        with self._lock:
            before = self._failing.get(attachment_id)
            pause = min(2 * before.pause, LONGEST_PAUSE) if before else FIRST_PAUSE
            self._failing[attachment_id] = _Failing(pause, monotonic() + pause)
        return pause
