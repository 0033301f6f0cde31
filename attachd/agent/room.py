# SPDX-License-Identifier: Apache-2.0
"""How many volumes are worked on at once, and which of them take too long; for reconciler.py.

A command of a host, or os-brick itself, may hang in the kernel, where nobody can end it.  Whoever
hangs there keeps their place: all that can be done about it is to tell.
"""

from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import datetime
import threading
from time import monotonic

from oslo_log import log

from attachd.rpc.agent_manager_api import Report

LOG = log.getLogger(__name__)

NAMED = 10
"""How many attachments are named where many hang."""


@dataclasses.dataclass(frozen=True)
class Guest:
    """Who is inside.

    :ivar since: when they came, in UTC
    :ivar came: the same, by a clock that nobody sets; seconds
    """

    attachment_id: str
    since: datetime.datetime
    came: float


class Room:
    """Has places for a few; others wait.

    :param places: how many
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._free = threading.BoundedSemaphore(places)
        self._lock = threading.Lock()
        self._inside: list[Guest] = []
        self._warned_of: list[Guest] = []

    @contextlib.contextmanager
    def entered(self, attachment_id: str) -> Iterator[None]:
        """Have a place for an attachment, waiting for one if need be."""
        with self._free:
            guest = Guest(attachment_id, datetime.datetime.now(datetime.UTC), monotonic())
            with self._lock:
                self._inside.append(guest)
            try:
                yield
            finally:
                with self._lock:
                    self._inside.remove(guest)

    def hanging(self, seconds: float) -> list[Guest]:
        """Return who has been inside for longer than that, longest first."""
        now = monotonic()
        with self._lock:
            return [each for each in self._inside if now - each.came > seconds]

    def warn(self, report: Report, seconds: float) -> Report:
        """Return a report of the host that tells of those inside for longer than that.

        It is logged once.  Where all places hang, nothing can be attached.
        """
        hanging = self.hanging(seconds)
        if hanging and hanging != self._warned_of:
            LOG.warning("%s", self.told(hanging))
        self._warned_of = hanging
        if not hanging or report["error"]:
            return report
        connector = None if len(hanging) >= self.places else report["connector"]
        return {**report, "connector": connector, "error": self.told(hanging)}

    def told(self, hanging: Sequence[Guest]) -> str:
        """Say what hangs, for people."""
        names = [
            f"{each.attachment_id} (since {each.since:%Y-%m-%d %H:%M} UTC)" for each in hanging
        ]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return (
            f"{len(hanging)} of {self.places} places for work hang: a command of this host, such "
            "as iscsiadm or multipathd, or its kernel does not answer. Look at its processes. "
            f"Attachments: {', '.join(names[:NAMED])}{more}."
        )
