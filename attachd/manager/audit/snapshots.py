# SPDX-License-Identifier: Apache-2.0
"""Compare the snapshots of a backend with those in the database; for runner.py.

No lock is taken: what is found is compared again some times, and only what stays is a difference.
"""

from collections.abc import Iterator
from typing import Final

from attachd.db import audit
from attachd.drivers.abilities import Snapshots
from attachd.manager.audit.rules import MEANINGS, Difference, Kind
from attachd.manager.backends import Backend
from attachd.states import SnapshotState

_CHECKS: Final = 3
_WITH_DATA: Final = frozenset({SnapshotState.AVAILABLE, SnapshotState.RESTORING})


def compare(backend: Backend) -> list[Difference]:
    """Find snapshots without data, and data without a snapshot."""
    if not isinstance(backend.driver, Snapshots):
        return []
    found = set(_find(backend, backend.driver))
    for _ in range(_CHECKS):
        if not found:
            break
        found &= set(_find(backend, backend.driver))
    return [
        Difference(kind, backend.host, volume_id, text, MEANINGS[kind].action)
        for kind, volume_id, text in sorted(found)
    ]


def _find(backend: Backend, driver: Snapshots) -> Iterator[tuple[Kind, str, str]]:
    stored = driver.list_snapshots()
    # The rows later: each is added before its data, and removed after it.
    rows = {row["id"]: row for row in audit.list_snapshots(backend.host)}
    for snapshot_id, volume_id in stored.items():
        if snapshot_id not in rows:
            text = f"There is data of snapshot {snapshot_id}, which is unknown."
            yield Kind.DATA_WITHOUT_SNAPSHOT, volume_id, text
    for row in rows.values():
        if row["state"] in _WITH_DATA and row["id"] not in stored:
            text = f"Snapshot {row['id']} is {row['state']}, and there is nothing of it."
            yield Kind.SNAPSHOT_WITHOUT_DATA, row["volume_id"], text
