# SPDX-License-Identifier: Apache-2.0
"""What a manager tells of itself in a Guru Meditation Report; begun by watching.py."""

from collections.abc import Iterable, Sequence

from attachd.conf import CONF
from attachd.db import api as db
from attachd.manager.backends import Backend
from attachd.manager.ha import volume_lock
from attachd.telemetry import gmr


def begin(backends: Sequence[Backend]) -> None:
    """Have reports tell of these backends from now on."""
    gmr.setup("attachd-manager")
    gmr.register_section("Database", db.pools)
    gmr.register_section("Backends", lambda: [_told(each) for each in backends])
    gmr.register_section("Turns of volumes", _turns)


def _told(backend: Backend) -> str:
    state = "ready" if backend.error is None else "down"
    long = "some" if backend.long_work.busy else "none"
    return (
        f"{backend.host} ({type(backend.driver).__name__}): {state}; threads for calls: "
        f"{CONF.manager.threads_per_backend}; long work: {long}; process {backend.presence.id}"
    )


def _turns() -> Iterable[str]:
    """Tell who works on a volume or waits for it; nobody is waited for to find out."""
    return [f"{name}: one at work, {many - 1} behind it" for name, many in volume_lock.lines()]
