# SPDX-License-Identifier: Apache-2.0
"""Limit of the requests that this process serves for one project; used by app.

Most requests need no manager, so that no limit of calls counts them: a client that polls without
a pause, or ignores Retry-After, would take the threads from others.  A refusal is cheap: it reads
neither the body nor the database.
"""

import threading
import time
from typing import Final

from attachd import exception
from attachd.conf import CONF
from attachd.context import RequestContext

BURST_SECONDS: Final = 10.0
"""The requests of so many seconds may come at once."""
MAX_PROJECTS: Final = 10_000
"""How many projects are known before those are forgotten that have sent nothing for a while."""


class RequestRate:
    """A limit for each project.

    :param rate: requests a second, on average
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at: dict[str, float] = {}
        """When the requests that a project has sent would be served, one after the other."""

    @classmethod
    def from_configuration(cls) -> "RequestRate | None":
        """Return the limit that [api]max_requests_per_project sets; None: there is none."""
        rate: float = CONF.api.max_requests_per_project
        return cls(rate) if rate else None

    def check(self, ctx: RequestContext) -> None:
        """Count a request of a user.

        Administrators and services, such as Compute for a user, have no limit.

        :raises TooManyCalls: the project has sent too many
        """
        if ctx.is_admin or ctx.by_service or not ctx.project_id:
            return
        excess = self._count(ctx.project_id)
        if excess > 0:
            raise exception.TooManyCalls(
                reason=f"The project sends more than {self._rate:g} requests a second to this "
                "process ([api]max_requests_per_project). Send fewer, and repeat this one later.",
                retry_after=excess,
            )

    def _count(self, project_id: str) -> float:
        """Count a request, unless it comes too early by the seconds that are returned."""
        now = time.monotonic()
        with self._lock:
            free_at = max(self._free_at.get(project_id, now), now)
            excess = free_at - now - BURST_SECONDS
            if excess <= 0:
                self._free_at[project_id] = free_at + 1 / self._rate
                if len(self._free_at) > MAX_PROJECTS:
                    self._free_at = {
                        project: moment
                        for project, moment in self._free_at.items()
                        if moment > now
                    }
        return excess
